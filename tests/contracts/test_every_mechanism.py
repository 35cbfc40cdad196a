"""What every registered mechanism promises: costs, scales, composition, JSON, profiles."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.mechanisms import (
    DiscreteGaussian,
    Gaussian,
    Laplace,
    Mechanism,
    PureMechanism,
    PureRepeated,
    Repeated,
    Thresholdout,
    check_mechanism,
    mechanism_from_dict,
    mechanism_from_options,
    mechanism_kinds,
    register,
)
from quiltdp.mechanisms import contract as contract_module
from quiltdp.mechanisms.laplace import LaplaceProfile
from quiltdp.mechanisms.profiles import PureProfile

EXAMPLES: dict[str, Mechanism] = {
    "laplace": Laplace(0.5),
    "thresholdout": Thresholdout(3, 0.5),
    "gaussian": Gaussian(0.5, 1e-6),
    "discrete-gaussian": DiscreteGaussian(1, 1e-6),
    "repeated": Repeated(Laplace(0.5), 3, 1e-6),
    "pure-repeated": PureRepeated(Laplace(0.5), 3),
}
UNEQUAL: dict[str, Mechanism] = {
    "laplace": Laplace({"a": 1.0, "b": 0.0}),
    "thresholdout": Thresholdout(2, {"a": 1.0, "b": 0.25}),
    "gaussian": Gaussian({"a": 1.0, "b": 0.0}, 1e-5),
    "discrete-gaussian": DiscreteGaussian({"a": 1, "b": 0}, 1e-5),
    "repeated": Repeated(Gaussian({"a": 1.0, "b": 0.0}, 1e-5), 3, 1e-6),
    "pure-repeated": PureRepeated(Laplace({"a": 1.0, "b": 0.0}), 3),
}


def test_every_mechanism_has_an_example() -> None:
    assert set(EXAMPLES) == set(UNEQUAL) == set(mechanism_kinds())


@pytest.fixture(params=sorted(EXAMPLES))
def spec(request: pytest.FixtureRequest) -> Mechanism:
    return EXAMPLES[request.param]


def test_it_says_what_it_is(spec: Mechanism) -> None:
    assert mechanism_kinds()[spec.kind] is type(spec)
    assert spec.says
    assert spec.scale_name
    check_mechanism(spec)


@pytest.mark.parametrize("table", [EXAMPLES, UNEQUAL])
def test_json_brings_it_back(table: dict[str, Mechanism]) -> None:
    for one in table.values():
        assert mechanism_from_dict(one.to_dict()) == one


def test_cost_and_scale_are_inverse(spec: Mechanism) -> None:
    if spec.pure:
        assert spec.dp_epsilon(spec.scale(0.3)) <= 0.3  # type: ignore[operator]
        assert spec.target_delta == 0.0
    else:
        scale = spec.scale(0.3)
        weight = spec.max_sensitivity
        assert spec.group_profile(scale).delta(0.3, weight) <= spec.target_delta * (1 + 1e-9)
        with pytest.raises(InvalidArgument, match="no pure"):
            spec.dp_epsilon(scale)


@pytest.mark.parametrize("times", [1, 2, 3, 7, 12, 100, 999, 1000])
def test_equal_shares_fill_the_budget_and_no_more(spec: Mechanism, times: int) -> None:
    if isinstance(spec, (Repeated, DiscreteGaussian)):
        pytest.skip("its uses are counted when it is made")
    for sigma in (1.0, 1 / 3, math.pi * 1e-7, 2.8e9):
        each = spec.scale_for_uses(sigma, times)
        share = spec.spent_share_of(spec.single(), each, sigma)
        assert share * times <= 1
        assert share * times >= 1 - Fraction(1, 2**40)
    with pytest.raises(InvalidArgument, match="releases"):
        spec.scale_for_uses(1.0, 0)


def test_shares_of_unequal_records() -> None:
    calibrated = Gaussian({"a": 1.0, "b": 0.5}, 1e-5)
    assert Gaussian({"a": 0.5, "b": 0.5}, 1e-5).spent_share(4.0, calibrated, 2.0) == Fraction(1, 4)
    with pytest.raises(InvalidArgument, match="'b'"):
        Gaussian({"a": 0.5, "b": 0.5}, 1e-5).spent_share(4.0, Gaussian({"a": 1.0, "b": 0.0}, 1e-5), 2.0)
    with pytest.raises(InvalidArgument, match="no pure cost"):
        Gaussian(1.0, 1e-5).spent_share(4.0, Laplace(1.0), 2.0)
    with pytest.raises(InvalidArgument, match="gaussian"):
        Laplace(1.0).spent_share(4.0, calibrated, 2.0)
    whole = Laplace({"a": 1.0, "b": 0.5})
    assert Laplace({"a": 0.5, "b": 0.5}).spent_share(4.0, whole, 2.0) == Fraction(1, 2)
    assert Laplace(0.5).spent_share(4.0, whole, 2.0) == Fraction(1, 2)
    with pytest.raises(InvalidArgument, match="'b'"):
        Laplace(1.0).spent_share(1.0, Laplace({"a": 1.0, "b": 0.0}), 1.0)
    with pytest.raises(InvalidArgument, match="'c'"):
        Laplace({"a": 1.0, "c": 0.5}).spent_share(1.0, whole, 1.0)


def test_profiles_are_profiles(spec: Mechanism) -> None:
    """δ falls in ε, grows with the group, obeys δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε), and is 0 for no group."""
    profile = spec.group_profile(2.0)
    grid = [-30.0, -2.0, -0.1, 0.0, 0.05, 0.3, 1.0, 4.0, 50.0]
    for weight in (0.0, 0.5, 1.0, 3.0):
        values = [profile.delta(e, weight) for e in grid]
        assert all(0.0 <= v <= 1.0 for v in values)
        assert values == sorted(values, reverse=True)
        assert all(profile.delta(e, weight) <= profile.delta(e, 2 * weight) for e in grid)
        for e in (0.05, 0.3, 1.0):
            other = -math.expm1(-e) + math.exp(-e) * profile.delta(e, weight)
            assert profile.delta(-e, weight) == pytest.approx(other, rel=1e-9)
    assert profile.delta(0.0, 0.0) == 0.0


def test_laplace_and_pure_profiles_against_integrals() -> None:
    from scipy.integrate import quad

    def laplace(y: float) -> float:
        return 0.5 * math.exp(-abs(y))

    for shift in (0.2, 1.0, 3.0):
        for e in (-5.0, -0.5, 0.0, 0.1, 0.9, 2.5):
            integral, _ = quad(
                lambda y, e=e, shift=shift: max(0.0, laplace(y - shift) - math.exp(e) * laplace(y)),
                -40,
                40,
                points=[0.0, shift, (shift + e) / 2],
                limit=400,
            )
            assert LaplaceProfile(0.5).delta(e, 2 * shift) == pytest.approx(integral, abs=1e-7)
            a = math.exp(shift) / (1 + math.exp(shift))
            both = max(0.0, a - math.exp(e) * (1 - a)) + max(0.0, (1 - a) - math.exp(e) * a)
            assert PureProfile(1.0).delta(e, shift) == pytest.approx(both, rel=1e-12, abs=1e-15)


def test_options_that_do_not_belong_together_are_refused() -> None:
    assert mechanism_from_options("laplace", {"delta": None}, most=2) == Laplace(2.0)
    assert mechanism_from_options("thresholdout", {"budget": 4}, most=2, people=8) == Thresholdout(4, 0.25)
    with pytest.raises(InvalidArgument, match="--budget belongs to thresholdout, not to gaussian"):
        mechanism_from_options("gaussian", {"budget": 3, "delta": 0.1})
    with pytest.raises(InvalidArgument, match="needs --delta, for example --delta 1e-6"):
        mechanism_from_options("gaussian", {})
    with pytest.raises(InvalidArgument, match="'cauchy' is not one of"):
        mechanism_from_options("cauchy", {})
    with pytest.raises(InvalidArgument, match=r"'repeated' is not one of [a-z, -]*thresholdout$"):
        mechanism_from_options("repeated", {"delta": 0.1})


def test_a_new_mechanism_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that registers itself is calibrated, described, stored and split without further ado."""
    monkeypatch.setattr(contract_module, "_KINDS", dict(contract_module._KINDS))

    @register("staircase", says="a test")
    @dataclasses.dataclass(frozen=True)
    class Staircase(PureMechanism):
        sensitivity: float

        def _cost_factor(self) -> Fraction:
            return Fraction(1, 2)

        def group_profile(self, scale: float) -> PureProfile:
            return PureProfile(0.5 / scale)

    model = qd.markov_chain([[0.9, 0.1], [0.1, 0.9]], length=5)
    found = qd.calibrate(model, 1.0, Staircase(2.0))
    assert found.sigma == pytest.approx(qd.calibrate(model, 1.0, Laplace(1.0)).sigma)
    assert qd.Calibration.from_json(found.to_json()).mechanism == Staircase(2.0)
    assert mechanism_from_options("staircase", {"sensitivity": 3.0}) == Staircase(3.0)
    with pytest.raises(InvalidArgument, match="OpenDP"):
        found.to_opendp()
