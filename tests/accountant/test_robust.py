"""Models that are wrong: what `robust` certifies (accountant.robust, inference.table_error) holds nearby."""

import numpy as np
import pytest

import quiltdp as qd
from quiltdp.accountant.bounds.contraction import phi
from quiltdp.accountant.robust import RobustProfile, robust, useless_below
from quiltdp.errors import InvalidArgument, UnknownNode
from quiltdp.inference.uncertain import interval_errors, relative_errors

NOISE = qd.Laplace(sensitivity=1.0)
SHAPES = {
    "chain": {"A": [], "B": ["A"], "C": ["B"], "D": ["C"]},
    "tree": {"A": [], "B": ["A"], "C": ["A"], "D": ["B"]},
    "loop": {"A": [], "B": ["A"], "C": ["A"], "D": ["B", "C"]},
    "two parts": {"A": [], "B": ["A"], "C": [], "D": ["C"]},
}


def tables(rng, parents, zeros=0.0):
    found = {}
    for node, above in parents.items():
        table = rng.dirichlet([0.7, 0.7], size=(2,) * len(above))
        table = np.where(rng.random(table.shape) < zeros, 0.0, table)
        table[table.sum(axis=-1) == 0.0] = 0.5
        found[node] = (above, table / table.sum(axis=-1, keepdims=True))
    return found


def neighbour(rng, given, x, only=None):
    """Tables whose every entry is off by a factor of at most 1 + x, extreme ones preferred."""
    eta = np.log1p(x) / 2
    moved = {}
    for node, (above, table) in given.items():
        factor = np.exp(rng.choice([-eta, eta], size=table.shape))
        new = table * factor if only is None or node in only else table
        moved[node] = (above, new / new.sum(axis=-1, keepdims=True))
    return moved


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adversary", ["informed", "prior"])
def test_no_neighbour_leaks_more(shape, adversary):
    rng = np.random.default_rng(7)
    for zeros in (0.0, 0.25):
        given = tables(rng, SHAPES[shape], zeros)
        model = qd.Model.from_tables(given)
        for x in (0.02, 0.3):
            profile = RobustProfile(model, relative_errors(model, x), adversary=adversary)
            for alpha in (0.1, 1.0):
                certified = profile.leakage(alpha).per_record
                for _ in range(6):
                    near = qd.Model.from_tables(neighbour(rng, given, x))
                    exact = qd.leakage(near, alpha, method="exact", adversary=adversary).per_record
                    for record, leak in exact.items():
                        assert leak <= certified[record] * (1 + 1e-9), (record, x, alpha)


def test_only_the_named_tables_move():
    rng = np.random.default_rng(3)
    given = tables(rng, SHAPES["loop"])
    model = qd.Model.from_tables(given)
    one = RobustProfile(model, relative_errors(model, {"D": 0.2}))
    every = RobustProfile(model, relative_errors(model, 0.2))
    certified = one.leakage(0.3)
    assert qd.leakage(model, 0.3).epsilon <= certified.epsilon < every.leakage(0.3).epsilon
    for _ in range(10):
        near = qd.Model.from_tables(neighbour(rng, given, 0.2, only={"D"}))
        exact = qd.leakage(near, 0.3, method="exact").per_record
        assert all(leak <= certified.per_record[r] * (1 + 1e-9) for r, leak in exact.items())


def test_a_named_table_of_one_of_two_equal_families_counts_for_both_copies():
    family = {"f": ([], [0.5, 0.5]), "g": ([], [0.5, 0.5])}
    same = np.array([[0.8, 0.2], [0.2, 0.8]])
    model = qd.Model.from_tables({**family, "a": (["f"], same), "b": (["g"], same)})
    found = RobustProfile(model, relative_errors(model, {"b": 0.5})).leakage(0.5).per_record
    exact = qd.leakage(
        qd.Model.from_tables({**family, "a": (["f"], same), "b": (["g"], [[0.86, 0.14], [0.14, 0.86]])}), 0.5
    )
    assert exact.per_record["b"] <= found["b"]


def test_sets_of_records_are_widened_too():
    rng = np.random.default_rng(11)
    given = tables(rng, SHAPES["loop"])
    model = qd.Model.from_tables(given)
    sets = {"pair": ["A", "D"]}
    certified = RobustProfile(model, relative_errors(model, 0.05), protect=sets).leakage(0.4).epsilon
    for _ in range(6):
        near = qd.Model.from_tables(neighbour(rng, given, 0.05))
        assert qd.leakage(near, 0.4, method="exact", protect=sets).epsilon <= certified


@pytest.mark.slow
def test_chains_near_a_chain():
    matrix = np.array([[0.85, 0.15], [0.25, 0.75]])
    chain = qd.markov_chain(matrix, length=300)
    certified = robust(chain, 1.0, NOISE, off_by=0.05)
    own = qd.calibrate(chain, 1.0, NOISE).sigma
    assert own < certified.sigma < 300
    low, high = matrix / 1.05, np.minimum(matrix * 1.05, 1.0)
    for p in (1 - low[0, 1], 1 - high[0, 1]):  # the rarer entry of a row ends its interval first
        for q in (1 - low[1, 0], 1 - high[1, 0]):
            near = qd.markov_chain([[p, 1 - p], [1 - q, q]], length=300)
            assert qd.calibrate(near, 1.0, NOISE).sigma <= certified.sigma
    boxed = robust(chain, 1.0, NOISE, intervals=(low, high))
    assert boxed.sigma == pytest.approx(certified.sigma, rel=0.05)
    windows = robust(chain, 1.0, NOISE, off_by=0.05, window=3)
    assert certified.sigma < windows.sigma < certified.sigma + 3


def test_a_chain_of_changing_matrices_and_a_path_of_tables():
    rng = np.random.default_rng(5)
    given = tables(rng, SHAPES["chain"])
    path = qd.Model.from_tables(given)
    steps = qd.markov_chain([given[n][1] for n in "BCD"], length=4, initial=given["A"][1])
    for x in (0.01, 0.4):
        for alpha in (0.2, 1.0):
            for m in (path, steps):
                found = RobustProfile(m, relative_errors(m, x), method="chain").leakage(alpha).per_record
                for _ in range(5):
                    near = qd.Model.from_tables(neighbour(rng, given, x))
                    exact = qd.leakage(near, alpha, method="exact").per_record
                    for mine, leak in zip(found.values(), exact.values(), strict=True):
                        assert leak <= mine * (1 + 1e-9)


def test_zeros_that_may_come_or_go_cost_group_privacy():
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[1.0, 0.0], [0.2, 0.8]])})
    found = robust(model, 1.0, NOISE, intervals={"B": ([[0.9, 0.0], [0.1, 0.7]], [[1.0, 0.1], [0.3, 0.9]])})
    assert found.sigma == pytest.approx(2.0)
    exact = interval_errors(model, {"B": ([[1.0, 0.0], [0.2, 0.8]], [[1.0, 0.0], [0.2, 0.8]])})
    assert exact.named["B"] == 0.0


def test_bounds_that_cannot_help_are_not_prepared():
    model = qd.example("asia")
    errors = relative_errors(model, 0.2)
    assert useless_below(errors.total(model)) > 1.0
    quick = RobustProfile(model, errors, up_to=1.0)
    full = RobustProfile(model, errors)
    for alpha in (0.05, 0.125):
        assert quick.leakage(alpha).epsilon == full.leakage(alpha).epsilon
    assert "exact" not in quick.leakage(0.1).by_method
    for total in (2.3, 3.0, 10.0):  # 2 Φ(W, o) = o there: below it group privacy is better
        o = useless_below(total)
        assert 2 * float(phi(total, o)) == pytest.approx(o)


def test_the_worst_of_a_family():
    family = [qd.markov_chain([[s, 1 - s], [1 - s, s]], length=50) for s in (0.6, 0.9, 0.8)]
    found = robust(family, 1.0, NOISE)
    assert found.sigma == max(qd.calibrate(m, 1.0, NOISE).sigma for m in family)
    assert found.fingerprint == family[1].fingerprint
    assert "each of 3 models" in found.notes[-1]


def test_no_error_is_the_answer_itself():
    model = qd.load_model("models/cancer.bif")
    assert robust(model, 1.0, NOISE, off_by=0.0).sigma == qd.calibrate(model, 1.0, NOISE).sigma


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"off_by": -0.1}, "share"),
        ({"off_by": "much"}, "must be a number"),
        ({"off_by": {}}, "at least one table"),
        ({"off_by": 0.1, "intervals": {}}, "not both"),
        ({"intervals": {"A": ([0.1], [0.2])}}, "shapes"),
        ({"intervals": {"A": ([0.6, 0.1], [0.9, 0.4])}}, "not between"),
    ],
)
def test_what_is_refused(options, told):
    model = qd.Model.from_tables({"A": ([], [0.5, 0.5]), "B": (["A"], [[0.9, 0.1], [0.2, 0.8]])})
    with pytest.raises(InvalidArgument, match=told):
        robust(model, 1.0, NOISE, **options)
    with pytest.raises(UnknownNode):
        robust(model, 1.0, NOISE, off_by={"nobody": 0.1})
    with pytest.raises(InvalidArgument, match="pure"):
        robust(model, 1.0, qd.Gaussian(sensitivity=1.0, delta=1e-6), off_by=0.1)
    with pytest.raises(InvalidArgument, match="family"):
        robust([], 1.0, NOISE)


def test_one_method_by_name_is_widened_like_all_of_them():
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], 4)
    near = RobustProfile(model, relative_errors(model, 0.1))
    for method in ("propagation", "chain", "exact"):
        usual = qd.leakage(model, 0.3, method=method).per_record
        found = near.with_method(method, "normal").leakage(0.3).per_record
        assert all(found[name] > usual[name] for name in usual), method
