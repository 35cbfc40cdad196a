"""The published formula on chains with one matrix per step, and beside other answers (``mqm_chain``)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.bounds.mqm_chain import _log_ratio, _step_ratios
from quiltdp.errors import ModelTooWide
from quiltdp.inference.chains import ChainLaws
from quiltdp.work import LEVELS, ComparisonBudget


def matrices(seed: int, sizes: list[int], zeros: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for a, b in pairwise(sizes):
        table = rng.dirichlet(np.ones(b), size=a)
        if zeros:
            table[:, 0] = np.where(rng.random(a) < 0.4, 0.0, table[:, 0])
        found.append(table / table.sum(axis=1, keepdims=True))
    return found


@pytest.mark.parametrize(("sizes", "zeros"), [([3] * 9, False), ([2, 3, 4, 2, 5, 3], False), ([3] * 9, True)])
def test_ratios_of_all_distances_are_those_of_one_table_at_a_time(sizes: list[int], zeros: bool) -> None:
    start = np.full(sizes[0], 1.0 / sizes[0])
    chain = qd.markov_chain(matrices(1, sizes, zeros), initial=start)
    laws, width = ChainLaws(chain.segments[0]), 4
    back, ahead = _step_ratios(laws, width, lambda: None)
    for t in range(laws.length):
        count = int(laws.possible(t).sum())
        one = [_log_ratio(laws.forward(t, b), count) for b in range(1, min(width, laws.length - 1 - t) + 1)]
        other = [_log_ratio(laws.backward(t, a), count) for a in range(1, min(width, t) + 1)]
        assert [x.tobytes() for x in ahead[t]] == [x.tobytes() for x in one]
        assert [x.tobytes() for x in back[t]] == [x.tobytes() for x in other]


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_a_comparison_that_costs_more_than_the_answer_is_left_out_with_a_line(adversary: str) -> None:
    steps = matrices(2, [9] * 900)
    chain = qd.markov_chain(steps, initial=np.full(9, 1 / 9))
    found = qd.calibrate(chain, 1.0, qd.Laplace(1.0), adversary=adversary, work="normal:group")
    assert sorted(found.compared) == ["group", "independent"]
    (note,) = [n for n in found.notes if "published" in n]
    assert note.endswith("; method='published' (--method published) asks for it alone")


def test_the_budget_of_a_comparison_is_the_quick_one_and_refuses_more_work() -> None:
    quick, beside = LEVELS["quick"], ComparisonBudget(**LEVELS["quick"].to_dict())
    assert beside.to_dict() == quick.to_dict()
    assert beside.is_comparison
    assert not quick.is_comparison
    chain = qd.markov_chain(matrices(3, [9] * 900), initial=np.full(9, 1 / 9))
    with pytest.raises(ModelTooWide, match="900 different steps"):
        qd.dp_epsilon(chain, 1.0, "published", work=beside)
    short = qd.markov_chain(matrices(3, [4] * 30), initial=np.full(4, 0.25))
    alone = qd.dp_epsilon(short, 1.0, "published", work=quick)
    assert qd.dp_epsilon(short, 1.0, "published", work=beside) == alone


@pytest.mark.slow
def test_units_far_from_both_ends_pay_for_whole_sides_as_long_as_they_are():
    """On a slow chain no quilt within reach is cheap: a whole side costs more the longer it is."""
    chain = qd.markov_chain([[1 - 1e-6, 1e-6], [1e-6, 1 - 1e-6]], length=3000)
    every = qd.leakage(chain, 0.01, method="published", adversary="prior").per_record
    for k in (0, 399, 401, 1400, 1500, 2998):
        name = chain.nodes[k]
        alone = qd.leakage(chain, 0.01, method="published", adversary="prior", protect={"u": [name]})
        assert every[name] == pytest.approx(alone.epsilon, rel=1e-9)
    alpha = qd.dp_epsilon(chain, 1.0, method="published", adversary="prior")
    found = qd.leakage(chain, alpha, method="published", adversary="prior")
    assert found.epsilon == max(found.per_record.values()) <= 1.0
