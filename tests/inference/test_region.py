"""What the inference layer answers with: checked at birth, frozen, and it can be pickled."""

from __future__ import annotations

import math
import pickle

import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.inference.region import Attained, QuiltInfluence, check_disjoint


@pytest.mark.parametrize("numbers", [(math.nan, 1.0, 1.0), (0.0, -1.0, 1.0), (0.0, 1.0, math.nan)])
def test_nonsense_is_refused(numbers: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidModel, match="≥ 0"):
        QuiltInfluence(*numbers, True, (), {})


def test_an_influence_is_frozen_and_travels_with_its_witnesses() -> None:
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=5)
    quilt = next(q for q in qd.quilts(qd.moralize(model), "X2") if q.nearby == {"X1"})
    found = qd.quilt_influence(model, quilt)
    back = pickle.loads(pickle.dumps(found))
    assert back == found
    assert (back.witness, back.b_witness) == (found.witness, found.b_witness)
    assert isinstance(back.find, Attained)
    with pytest.raises(TypeError):
        found.swing_of[frozenset()] = 0.0  # type: ignore[index]


def test_parts_must_be_disjoint() -> None:
    model = qd.markov_chain([[0.9, 0.1], [0.2, 0.8]], length=3)
    check_disjoint(model, of=["X0"], on=["X1"])
    with pytest.raises(InvalidArgument, match="both"):
        check_disjoint(model, of=["X0"], on=["X1", "X0"])
