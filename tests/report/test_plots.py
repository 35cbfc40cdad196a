"""Pictures in Python: quiltdp.report.plots and tables, and the table of edges that finds them."""

import importlib

import pytest

import quiltdp as qd
from quiltdp import edges
from quiltdp.accountant.leakage import analyze

pytest.importorskip("matplotlib", reason="pictures need the extra 'plot'")


@pytest.fixture(scope="module")
def cancer():
    return qd.example("cancer")


def test_every_edge_leads_somewhere():
    assert set(edges.__all__) == set(edges._HOMES)
    for name, module in edges._HOMES.items():
        assert getattr(edges, name) is getattr(importlib.import_module(module), name)
        assert module.startswith("quiltdp.report.")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = edges.nonsense


def test_the_bars_are_the_leakages(cancer):
    found = qd.leakage(cancer, 0.1)
    axes = found.plot(top=3)
    assert [b.get_width() for b in axes.patches][::-1] == [v for _, v in found.per_record.top(3)]
    assert "2 smaller ones left out" in axes.get_title()


def test_a_quilt_is_drawn_in_its_parts(cancer):
    graph = qd.moralize(cancer)
    quilt = next(iter(qd.quilts(graph, "Smoker", max_nearby=0)))
    axes = graph.plot(highlight=quilt)
    parts = {c.get_label(): len(c.get_offsets()) for c in axes.collections}
    assert parts["target"] == 1
    assert parts["separator"] == len(quilt.separator)
    assert len(axes.texts) == len(cancer.nodes)


def test_profiles_and_calibrations_are_drawn(cancer):
    assert analyze(cancer).plot([0.1, 1.0]).get_xlabel()
    assert qd.calibrate(cancer, 1.0, qd.Laplace(sensitivity=1.0)).plot().patches


def test_notebooks_show_tables_with_harmless_names():
    model = qd.Model.from_tables({"<script>": ([], [0.5, 0.5])})
    for shown in (qd.leakage(model, 0.1), qd.calibrate(model, 1.0, qd.Laplace(sensitivity=1.0))):
        page = shown._repr_html_()
        assert "&lt;script&gt;" in page
        assert "<script>" not in page
