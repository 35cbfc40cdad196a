"""Answers that meet a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quiltdp.errors import LimitReached


def partial_answer(question: Callable[[], Any], match: str = "limit was reached") -> Any:
    """Return the partial answer of a question that must meet a limit."""
    with pytest.raises(LimitReached, match=match) as limit:
        question()
    assert limit.value.exit_code == 3
    return limit.value.partial


def answer_or_partial(question: Callable[[], Any]) -> tuple[Any, bool]:
    """Return an answer, and whether it is a partial one."""
    try:
        return question(), False
    except LimitReached as limit:
        return limit.partial, True
