"""Real pedigrees of thousands are accounted for in time; minutes together, so not in the quick run."""

from __future__ import annotations

from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.accountant.leakage import analyze
from quiltdp.graph.components import component_classes

MODELS = Path(__file__).parents[3] / "models" / "pedigree"


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_thousand_genomes_calibrates_exactly(shared_data, adversary):
    model = qd.pedigree(shared_data / "tests-only" / "akt_20130606_g1k.fam", allele_frequency=0.1)
    profile = analyze(model, adversary=adversary)
    alpha = profile.dp_epsilon(1.0)
    found = profile.leakage(alpha)
    assert found.epsilon <= 1
    assert found.certificate.kind == "exact"
    assert alpha > 1 / 5  # far better than the largest family as a group


@pytest.mark.slow
@pytest.mark.parametrize("name", ["royal92", "redsquirrels"])
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_wide_pedigrees_get_a_finite_certified_bound(name, adversary):
    model = qd.pedigree(MODELS / f"{name}.csv", allele_frequency=0.1)
    found = qd.leakage(model, dp_epsilon=0.001, adversary=adversary)
    assert found.epsilon < float("inf")
    assert found.method
    assert found.certificate.kind == "certified bound"
    if adversary == "prior":
        assert found.epsilon < 400 * 0.001  # far below the thousands of the component


def test_loci_of_equal_frequency_are_analysed_once():
    one = qd.pedigree(MODELS / "ceph" / "1330.ped", allele_frequency=0.1)
    many = qd.pedigree(MODELS / "ceph" / "1330.ped", allele_frequency={f"rs{k}": 0.1 for k in range(40)})
    single = qd.leakage(one, dp_epsilon=0.1, adversary="prior", method="coupling")
    panel = qd.leakage(many, dp_epsilon=0.1, adversary="prior", method="coupling")
    assert panel.epsilon == pytest.approx(single.epsilon, rel=1e-9)
    assert len(panel.per_record) == 40 * len(single.per_record)
    classes = component_classes(many)
    assert [len(c.copies) for c in classes] == [40]
