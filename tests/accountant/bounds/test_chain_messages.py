"""Chains by messages on pairs of states: the exact limit, all evidence listed, one law in many forms."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quiltdp as qd
from quiltdp.accountant.adversaries import INFORMED, PRIOR, Adversary
from quiltdp.accountant.bounds.chain import ChainBound
from quiltdp.accountant.bounds.chain_contraction import ContractionBound
from quiltdp.accountant.bounds.contract import Problem, ready
from quiltdp.inference import plan
from quiltdp.inference.chain_schedule import repeating_end
from quiltdp.inference.workspace import Workspace
from quiltdp.work import WorkBudget

Tables = tuple[np.ndarray, list[np.ndarray], np.ndarray, list[int]]


def random_chain(seed: int) -> Tables:
    """A start, matrices, maybe with zeros; α's equal, unequal or 0; which steps are records.

    Matrices change from step to step, or (every third chain) repeat with a period of one or two; some are
    slow, some turn around; two or three states, every tenth chain up to six.
    """
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6)) if seed % 10 else 3
    sizes = rng.integers(2, 4 if seed % 10 else 7, size=n)
    period = int(rng.integers(1, 3)) if seed % 3 == 0 else n
    if period < n:
        sizes[:] = sizes[0]
    zeros, kind = rng.random() < 0.4, rng.choice(["plain", "slow", "turning"], p=[0.6, 0.2, 0.2])

    def law(*shape: int) -> np.ndarray:
        found = rng.dirichlet(np.full(shape[-1], rng.choice([0.3, 1.0, 3.0])), size=shape[:-1])
        if zeros:
            some = found * (rng.random(found.shape) > 0.3)
            found = np.where(some.sum(-1, keepdims=True) > 0, some, found)
        found = np.maximum(found, 1e-4 * (found > 0))
        return np.asarray(found / found.sum(-1, keepdims=True))

    start, steps = law(1, sizes[0])[0], [law(sizes[t], sizes[t + 1]) for t in range(n - 1)]
    steps = [steps[t % period] for t in range(n - 1)]
    if kind != "plain":
        steps = [_mostly(p, kind == "turning") for p in steps]
    alpha = np.full(n, float(rng.choice([0.05, 0.3, 1.0, 3.0])))
    if rng.random() < 0.5:
        alpha *= rng.random(n)
    if rng.random() < 0.4:
        alpha[rng.random(n) < 0.3] = 0.0
    records = list(range(n))
    if n > 2 and rng.random() < 0.3:
        records.remove(int(rng.integers(n)))
    alpha[[t for t in range(n) if t not in records]] = 0.0
    return start, steps, alpha, records


def _mostly(p: np.ndarray, turning: bool) -> np.ndarray:
    """A slow step, nine tenths of it to the same state; or one that goes to the next state in turn."""
    if p.shape[0] != p.shape[1]:
        return p
    return np.asarray(0.1 * p + 0.9 * np.roll(np.eye(len(p)), int(turning), axis=1))


def network(
    start: np.ndarray, steps: list[np.ndarray], records: list[int], order: list[int] | None = None
) -> qd.Model:
    """The chain as a Bayesian network, its nodes declared in some order."""
    tables = {"X0": ([], start.tolist())}
    tables |= {f"X{t + 1}": ([f"X{t}"], m.tolist()) for t, m in enumerate(steps)}
    names = [f"X{t}" for t in (order if order is not None else range(len(tables)))]
    return qd.Model.from_tables({n: tables[n] for n in names}, records=[f"X{r}" for r in records])


def check_against_the_limit(seed: int, adversaries: list[str]) -> float:
    """Compare every record and every two neighbours with the exact limit; return the largest ratio."""
    start, steps, alpha, records = random_chain(seed)
    if not alpha.any():
        return 1.0
    model = network(start, steps, records)
    costs = {f"X{r}": float(alpha[r]) for r in records}
    pairs = {f"{r}+": [f"X{r}", f"X{r + 1}"] for r in records if r + 1 in records}
    worst = 1.0
    for adversary in adversaries:
        if adversary == "declared":
            adversary = "knows=" + ",".join(f"X{r}" for r in records[::2])  # noqa: PLW2901
        for protect in (None, pairs) if pairs else (None,):
            found = qd.leakage(model, costs, "chain", adversary, protect=protect).per_record
            limit = qd.leakage(model, costs, "exact", adversary, protect=protect).per_record
            for unit, true in limit.items():
                # the limit's own programs end within a few 1e-7 above it
                assert found[unit] >= true * (1 - 1e-6) - 1e-9, (seed, adversary, unit)
                if true > 1e-6:
                    worst = max(worst, found[unit] / true)
    return worst


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_no_record_or_pair_is_below_the_limit(part: int) -> None:
    ratios = [
        check_against_the_limit(seed, ["informed", "prior", "knows:1", "declared"])
        for seed in range(20 * part, 20 * part + 20)
    ]
    assert max(ratios) < 1.6
    assert np.median(ratios) < 1.02


@pytest.mark.slow
@pytest.mark.parametrize("part", range(30))
def test_no_record_or_pair_is_below_the_limit_on_many_chains(part: int) -> None:
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        check_against_the_limit(seed, ["informed", "prior", "knows:1", "knows:2", "declared"])


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([INFORMED, PRIOR]), st.sampled_from([0.02, 0.2, 1.0]))
def test_far_evidence_is_no_worse_than_its_tail(seed: int, adversary: Adversary, alpha: float) -> None:
    """Chains of 80 steps with every known record listed, beside the certified tail."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 4))
    p = rng.dirichlet(np.full(k, 0.7), size=k) * (rng.random((k, k)) > 0.2) + 0.3 * np.eye(k) + 1e-3
    chain = qd.markov_chain(p / p.sum(1, keepdims=True), 80, rng.dirichlet(np.ones(k)))
    found = ready(ChainBound, chain, adversary=adversary).evaluate(np.full(80, alpha)).values
    near = plan.EVIDENCE_LISTED
    try:
        plan.EVIDENCE_LISTED = 100  # nothing is merged
        listed = ready(
            ChainBound,
            qd.markov_chain([p / p.sum(1, keepdims=True)] * 79, initial=chain.segments[0].initial),
            adversary=adversary,
        )
        every = listed.evaluate(np.append(np.full(79, alpha), np.nextafter(alpha, 0))).values
    finally:
        plan.EVIDENCE_LISTED = near
    assert (found >= every * (1 - 1e-9)).all()
    assert (found <= every * (1 + 5e-3)).all()


@pytest.mark.parametrize("adversary", ["informed", "prior"])
@pytest.mark.parametrize("length", [6, 60, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize("changing", [False, True])
def test_one_law_has_one_answer(length: int, adversary: str, changing: bool) -> None:
    rng = np.random.default_rng(length)
    kinds = [p / p.sum(1, keepdims=True) for p in rng.random((3, 3, 3)) + 0.1]
    steps = [kinds[int(rng.integers(3)) if changing else 0] for _ in range(length - 1)]
    start = rng.dirichlet(np.ones(3))
    order = rng.permutation(length).tolist()
    forms = [
        qd.markov_chain(steps, initial=start),
        network(start, steps, list(range(length))),
        network(start, steps, list(range(length)), order),
    ]
    told = [qd.leakage(m, 0.1, adversary=adversary) for m in forms]
    for other in told[1:]:
        assert other.epsilon == pytest.approx(told[0].epsilon, rel=1e-9)
        assert other.per_record["X3"] == pytest.approx(told[0].per_record["X3"], rel=1e-9)


@pytest.mark.parametrize(
    ("matrix", "prior", "informed"),
    [
        (np.full((5, 5), 0.025) + 0.875 * np.eye(5), 16.865, 17.139),
        ([[0.9, 0.1], [0.1, 0.9]], 8.641, 8.654),
    ],
)
def test_noise_of_long_chains(matrix: object, prior: float, informed: float) -> None:
    chain = qd.markov_chain(matrix, 100_000)
    short = qd.markov_chain(matrix, 60)
    for adversary, noise in (("prior", prior), ("informed", informed)):
        assert 1 / qd.dp_epsilon(chain, 1.0, adversary=adversary) <= noise
        assert qd.attack(short, 1 / noise, adversary=adversary, work="quick").leakage >= 0.9


def test_matrices_that_repeat_cost_a_few_periods_and_one_answer() -> None:
    rng = np.random.default_rng(3)
    day = [p / p.sum(1, keepdims=True) for p in rng.random((5, 3, 3)) + 0.05]
    few, many = (qd.markov_chain(day * n, initial=[0.2, 0.3, 0.5]) for n in (40, 4000))
    for adversary in (INFORMED, PRIOR):
        some, more = (ready(ChainBound, m, adversary=adversary) for m in (few, many))
        a, b = (x.evaluate(np.full(5 * n + 1, 0.1)).values for x, n in ((some, 40), (more, 4000)))
        assert a.max() == b.max()
        assert a[:30].tolist() == pytest.approx(b[:30].tolist(), rel=1e-9)
        scalar = ready(ContractionBound, few).evaluate(np.full(201, 0.1)).values
        assert a.max() < 0.9 * scalar.max()


def test_where_tables_prices_and_evidence_repeat() -> None:
    kinds, prices, may = np.array([7, 8, 7, 8, 7, 8, 7, 8, 7]), np.zeros(10, dtype=np.intp), np.ones(10, bool)
    assert repeating_end(kinds[:1], prices, may) == (0, 1)
    assert repeating_end(kinds, prices, may) == (1, 2)
    assert repeating_end(kinds, np.arange(10), may) is None
    assert repeating_end(kinds[:1], prices - 1, may) is None  # nothing costs: nothing to repeat


def test_what_is_too_much_work_falls_back_to_contraction() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(40), size=40) + 1e-3
    chain = qd.markov_chain(p / p.sum(1, keepdims=True), 50)
    a = np.full(50, 0.1)
    scalar = ready(ContractionBound, chain).evaluate(a).values
    assert ready(ChainBound, chain).evaluate(a).values.tolist() == pytest.approx(scalar.tolist(), rel=1e-12)


@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_prices_of_values_are_above_their_limit(adversary: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(6):
        k, n = int(rng.integers(2, 4)), int(rng.integers(2, 5))
        steps = [p / p.sum(1, keepdims=True) for p in rng.dirichlet(np.full(k, 0.6), size=(n - 1, k)) + 1e-3]
        chain = qd.markov_chain(steps, initial=rng.dirichlet(np.ones(k)))
        noise = qd.Laplace(values=sorted(rng.random(k).tolist()))
        found, limit = (
            qd.calibrate(chain, 1.0, noise, adversary=adversary, method=method).sigma
            for method in ("chain", "exact")
        )
        assert limit * (1 - 1e-7) <= found <= 1.2 * limit


@pytest.mark.slow
def test_levels_cost_less_than_any_change() -> None:
    """A birth–death chain of four levels, its states in another order and one that is never reached."""
    p = 0.1 * (np.eye(4, k=1) + np.eye(4, k=-1)) + 0.8 * np.eye(4)
    p[0, 0] = p[3, 3] = 0.9
    shuffled = np.zeros((5, 5))
    order = [2, 4, 0, 3]
    shuffled[np.ix_(order, order)] = p
    shuffled[1, 2] = 1.0
    levels = [2 / 3, 9.0, 0.0, 1.0, 1 / 3]
    start = np.zeros(5)
    start[order] = 0.25
    flat = 1 / qd.dp_epsilon(qd.markov_chain(p, 2000), 1.0, adversary="prior")
    plain = qd.calibrate(
        qd.markov_chain(p, 2000), 1.0, qd.Laplace(values=[0, 1 / 3, 2 / 3, 1.0]), adversary="prior"
    )
    other = qd.calibrate(
        qd.markov_chain(shuffled, 2000, start),
        1.0,
        qd.Laplace(values=levels),
        adversary="prior",
        method="chain",
    )
    assert plain.sigma <= 31.9
    assert flat >= 38.5
    assert other.sigma == pytest.approx(plain.sigma, rel=1e-3)


def twin_with_digits(p: np.ndarray, alpha: float, steps: int) -> float:
    """K(x, x') of a side of a two-state chain where nothing is known, by its recursion in 50 digits.

    T(p, q; D) of two states is the largest over x of the ratio with G tied to source x.
    """
    with mpmath.workdps(50):
        rows = [[mpmath.mpf(float(v)) for v in row] for row in p]
        m = [[mpmath.mpf(0)] * 2 for _ in range(2)]
        for _ in range(steps):
            d = [[m[x][y] + (mpmath.mpf(alpha) if x != y else 0) for y in range(2)] for x in range(2)]
            new = [[mpmath.mpf(0)] * 2 for _ in range(2)]
            for x, y in ((0, 1), (1, 0)):
                best = mpmath.mpf(1)
                for tied in range(2):
                    g = [mpmath.exp(-d[tied][j]) for j in range(2)]
                    top = sum(
                        rows[x][i] * min(mpmath.exp(d[i][j]) * g[j] for j in range(2)) for i in range(2)
                    )
                    best = max(best, top / sum(rows[y][j] * g[j] for j in range(2)))
                new[x][y] = mpmath.log(best)
            m = new
        return float(max(m[0][1], m[1][0]))


_SLOW = pytest.param((1e-3, 2e-3), 6000, marks=pytest.mark.slow)


@pytest.mark.parametrize("alpha", [0.01, 0.3, 5.0])
@pytest.mark.parametrize(("flips", "steps"), [((0.1, 0.3), 120), ((0.45, 0.2), 60), _SLOW])
def test_the_certified_tail_is_above_fifty_digits(
    flips: tuple[float, float], steps: int, alpha: float
) -> None:
    """Two states are reversible: both sides of a stationary chain say the same."""
    a, b = flips
    p = np.array([[1 - a, a], [b, 1 - b]])
    chain = qd.markov_chain(p, 100_000)
    found = ready(ChainBound, chain, adversary=PRIOR).evaluate(np.full(100_000, alpha)).values[50_000]
    true = alpha + 2 * twin_with_digits(p, alpha, steps)
    assert found >= true
    assert found <= true * (1 + 1e-3) + 1e-12


def test_a_law_whose_states_die_out_has_not_settled() -> None:
    """Thirteen steps long the law of two states stays as it is while those of a queue behind them die out.

    As long as the queue lasts, every other arrival comes from it and says nothing of what was before.
    """
    core, queue, alpha = np.array([[0.625, 0.375], [0.375, 0.625]]), 12, 0.5
    p = np.zeros((2 + queue, 2 + queue))
    p[:2, :2], p[2, :2] = core, 0.5
    p[np.arange(3, 2 + queue), np.arange(2, 1 + queue)] = 1.0
    start = np.array([0.5, 0.5, *2.0 ** np.arange(queue)])
    level = np.array([0.0, 1.0, *[0.5] * queue])
    chain = qd.markov_chain(p, 400, start / start.sum())
    prices = dict.fromkeys(chain.nodes, np.abs(level[:, None] - level))
    bound = ChainBound(Problem(chain, None, PRIOR, 1, prices))
    bound.prepare(Workspace(chain), WorkBudget())
    last = bound.evaluate(np.full(400, alpha)).values[-1]
    end = qd.leakage(qd.markov_chain(core, 8), alpha, method="exact", adversary="prior")  # its last steps
    assert last >= list(end.per_record.values())[-1]
