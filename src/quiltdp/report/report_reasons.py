"""The report's reasons: the theorem behind the number, and what if the model is wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

import numpy as np

from quiltdp.accountant.adversaries import adversary_from
from quiltdp.accountant.calibration import Calibration
from quiltdp.accountant.methods import find_method
from quiltdp.accountant.robust import robust
from quiltdp.chain import ChainModel, markov_chain
from quiltdp.errors import QuiltdpError
from quiltdp.graph.components import component_classes
from quiltdp.mechanisms import Mechanism
from quiltdp.model import Model
from quiltdp.numbers import format_up
from quiltdp.parallel import each

__all__ = ["OFF_BY", "attackable", "if_the_model_is_wrong", "theorem_of"]

OFF_BY = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""How far the tables may be off, as shares: the lines of the section on a wrong model."""

_RUN = 100  # steps of a chain
_LARGEST = 400  # nodes of a network


def attackable(model: Model, unit: str) -> Model | None:
    """Return the part of a model in which an attack on ``unit`` is looked for; ``None`` if it is too large.

    A mechanism may read fewer records, so whatever an attack attains on a part whose law is the model's
    own it attains on the whole: the record's connected component, and of a long chain a run of steps.
    """
    if isinstance(model, ChainModel):
        segment, step = model.locate(unit)
        if segment.length <= _RUN:
            return ChainModel([segment], None if not segment.homogeneous else model.states[unit])
        if not segment.homogeneous:
            return None
        first = min(max(0, step - _RUN // 2), segment.length - _RUN)
        law = np.asarray(segment.initial @ np.linalg.matrix_power(segment.transition(0), first))
        law = np.maximum(law, 0.0) / np.maximum(law, 0.0).sum()
        return markov_chain(segment.transition(0), length=_RUN, initial=law)
    if len(model.nodes) <= _LARGEST:
        return model
    place = model.index[unit]
    for found in component_classes(model):
        if any(place in copy for copy in found.copies):
            return found.model if len(found.model.nodes) <= _LARGEST else None
    return None


def theorem_of(cal: Calibration) -> str:
    """Return the theorem by which the answer was found, with its proof where it is short; or nothing."""
    try:
        entry = find_method(adversary_from(cal.adversary), cal.binding.method)
    except QuiltdpError:
        return ""
    text = sys.modules[entry.make.__module__].__doc__ or ""
    return re.sub(r":\w+:`~?\.?([^`]*)`", r"\1", text).strip()


def if_the_model_is_wrong(
    cal: Calibration, model: Model, options: Mapping[str, Any], executor: Executor | None = None
) -> dict[str, Any]:
    """Return the noise that is enough if every table is off by so much, one line per share.

    Each line is a calibration of its own, certified for every model in that neighbourhood; once group
    privacy is reached nothing larger is needed, whatever the tables say.
    """
    if not cal.mechanism.pure:
        return {"lines": [], "says": "Not told for this mechanism: the theorem is about pure α."}
    asked = {**options, "work": "quick", "adversary": cal.adversary}
    most = cal.compared.get("group")
    lines: list[dict[str, Any]] = []
    found = each(_nearby, OFF_BY, shared=(model, cal.epsilon, cal.mechanism, asked), executor=executor)
    for share in OFF_BY:
        reached = lines and most is not None and lines[-1]["sigma"] >= most * (1 - 1e-9)
        if not reached:
            told = next(found)
            if told is None:
                break
            # the model itself is among them, and its own answer searched further
            lines.append({"off_by": share, "sigma": max(told[0], cal.sigma), "method": told[1]})
        else:
            lines.append({**lines[-1], "off_by": share})
    if not lines:
        return {"lines": [], "says": "Not told: no bound for models nearby exists for this kind of model."}
    says = (
        "Off by 5 % means that a probability p may truly be anything from p/1.05 to 1.05 p, in every table at"
        " once; a zero stays a zero. Each line is certified for all such models together. Which records"
        " depend on which is still assumed."
    )
    if most is not None and lines[-1]["sigma"] >= most * (1 - 1e-9):
        says += f" No model with these dependencies needs more than {format_up(most)}, group privacy."
    return {"lines": lines, "says": says}


def _nearby(
    shared: tuple[Model, float, Mechanism, Mapping[str, Any]], share: float
) -> tuple[float, str] | None:
    """Return σ for all models that are off by so much, and its method; ``None`` where there is no bound."""
    model, epsilon, mechanism, asked = shared
    try:
        found = robust(model, epsilon, mechanism, off_by=share, **asked)
    except QuiltdpError:
        return None
    return found.sigma, found.binding.method
