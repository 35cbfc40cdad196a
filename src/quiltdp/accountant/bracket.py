"""The bracket of an answer: *certified* (no mechanism leaks more) and *attained* (an attack leaks that).

Their ratio is at least 1 and says how far, at most, the bound is from the best possible one, on models of
any size that have a junction tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quiltdp.accountant.adversaries import Adversary
from quiltdp.accountant.attack import Attack, attack, attackable_part
from quiltdp.accountant.trade_offs import BRACKET_ENTRIES, BRACKET_NODES
from quiltdp.accountant.units import DpEpsilon
from quiltdp.errors import InvalidArgument, ModelTooWide, option
from quiltdp.model import Model
from quiltdp.work import WorkBudget

if TYPE_CHECKING:
    from quiltdp.accountant.calibration import Calibration
    from quiltdp.accountant.noise_attack import NoiseAttack


@dataclass(frozen=True)
class Bracket:
    """What is certified and what is attained at the same cost.

    Attributes
    ----------
    certified
        No mechanism of this cost leaks more.
    attack
        An explicit mechanism of this cost, the adversary, and what they attain.
    """

    certified: float
    attack: Attack | NoiseAttack

    @property
    def attained(self) -> float:
        """What the attack leaks, rounded down."""
        return self.attack.leakage

    @property
    def ratio(self) -> float | None:
        """The quotient certified / attained: 1 is best possible; ``None`` where nothing can be attained."""
        return self.certified / self.attained if self.attained > 0.0 else None

    def __str__(self) -> str:
        """Read as one line."""
        ratio = "–" if self.ratio is None else f"{self.ratio:.4g}"
        return f"certified ≤ {self.certified:.4g}, attained ≥ {self.attained:.4g}, ratio {ratio}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; :meth:`Attack.to_dict` has the mechanism itself."""
        found = self.attack
        return {
            "certified": self.certified,
            "attained": self.attained,
            "ratio": self.ratio,
            "target": found.target,
            "values": list(found.values),
            "knows": dict(found.knows),
        }


def bracket(
    model: Model,
    certified: float,
    dp_epsilon: DpEpsilon,
    adversary: str | Adversary = "informed",
    **options: Any,
) -> Bracket:
    """Return a certified leakage beside what an attack at the same cost attains; options are the attack's.

    Raises
    ------
    ModelTooWide
        If the model has no junction tree of affordable width.

    Examples
    --------
    >>> import quiltdp as qd
    >>> asia = qd.example("asia")
    >>> found = bracket(asia, qd.leakage(asia, 0.1, adversary="prior").epsilon, 0.1, "prior")
    >>> found.attained <= found.certified, found.ratio < 1.05
    (True, True)
    """
    return Bracket(certified, attack(model, dp_epsilon, adversary, **options))


def bracket_of(calibration: Calibration, work: str | WorkBudget = "normal") -> Bracket:
    """Return the certified leakage of a calibration beside what an attack at the same cost attains.

    For Gaussian noise, discrete or not, both are ε at the calibration's δ, and the attack is a noisy sum.
    What the calibration protects together is attacked together.

    Raises
    ------
    InvalidArgument
        For noise that is neither pure nor Gaussian, and if the calibration was read from a file.
    ModelTooWide
        If the model has no junction tree of affordable width.
    """
    if calibration.origin is None:
        raise InvalidArgument(
            "this calibration knows no single model (it was read from a file, or holds for many models):"
            " calibrate one model"
        )
    model, certified = calibration.origin[0], calibration.leakage
    if calibration.mechanism.prices(model):
        raise InvalidArgument(
            f"{option('bracket')}: the attack chooses a mechanism of its own, and this calibration is for one"
            " query by its values; calibrate by the sensitivity for a bracket"
        )
    what = _protection_options(calibration)
    if what is None:
        raise InvalidArgument(f"{option('bracket')}: what this calibration protects is not written in it")
    if calibration.dp_epsilon is not None:
        return bracket(model, certified, calibration.dp_epsilon, calibration.adversary, work=work, **what)
    found = _attack_noise(calibration, model, work=work, **what)
    if found is None:
        raise InvalidArgument(
            f"{option('bracket')} is for pure mechanisms (Laplace and Thresholdout) and Gaussian noise"
        )
    return Bracket(certified, found)


def quick_bracket(calibration: Calibration, model: Model) -> Bracket | None:
    """Return a bracket that costs next to nothing, or ``None`` where there is none.

    There is none for noise that is neither pure nor Gaussian, and for models that are too large or whose
    junction tree is too wide to be attacked in passing.
    """
    what = _protection_options(calibration)
    if what is None or calibration.mechanism.prices(model):
        return None
    alpha, certified = calibration.dp_epsilon, calibration.leakage
    try:
        if alpha is not None:
            if len(model.nodes) > BRACKET_NODES:
                return None
            who = calibration.adversary
            found = attack(model, alpha, who, max_entries=BRACKET_ENTRIES, in_passing=True, **what)
            return Bracket(certified, found)
        if len(attackable_part(model, BRACKET_NODES).nodes) > BRACKET_NODES:  # of a chain some steps are read
            return None
        sums = _attack_noise(calibration, model, max_entries=BRACKET_ENTRIES, in_passing=True, **what)
        return None if sums is None else Bracket(certified, sums)
    except (InvalidArgument, ModelTooWide):  # too wide, or no protected set among the steps that are read
        return None


def _protection_options(calibration: Calibration) -> dict[str, Any] | None:
    """Return what a calibration protects, as options of an attack; ``None`` if it does not say."""
    options = {} if calibration.origin is None else calibration.origin[1]
    found = {"protect": options.get("protect"), "window": options.get("window", 1)}
    alone = found["protect"] is None and found["window"] == 1
    return found if alone == (calibration.protected == "single records") else None


def _attack_noise(calibration: Calibration, model: Model, **options: Any) -> NoiseAttack | None:
    """Return the attack on Gaussian noise, discrete or not; ``None`` for other noise."""
    mechanism, sigma = calibration.mechanism, calibration.sigma
    whole = mechanism.as_gaussian(sigma) is None
    std = mechanism.as_discrete_gaussian(sigma) if whole else mechanism.as_gaussian(sigma)
    if std is None:
        return None
    from quiltdp.accountant.noise_attack import attack_gaussian

    alone = mechanism.scale(calibration.epsilon)
    return attack_gaussian(
        model,
        std,
        calibration.delta,
        calibration.epsilon * alone / sigma,
        calibration.adversary,
        sensitivity=mechanism.deltas,
        whole=whole,
        **options,
    )
