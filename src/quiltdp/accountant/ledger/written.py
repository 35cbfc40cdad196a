"""Numbers as a ledger writes them: one grammar, bounded, so that nobody's file can ask for long work.

``Fraction("1e9999999")`` computes for seconds and ``float.fromhex("0x1p99999")`` overflows; a ledger
writes neither.  Each function raises ValueError, in a few words, for anything but what it wrote.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

__all__ = ["MOST_BITS", "read_count", "read_double", "read_share"]

_MOST_DIGITS = 4300  # what Python writes of one whole number
MOST_BITS = int(_MOST_DIGITS * math.log2(10))
"""Bits of the longest number that can be written."""

_SHARE = re.compile(rf"(?:0|[1-9][0-9]{{0,{_MOST_DIGITS - 1}}})(?:/[1-9][0-9]{{0,{_MOST_DIGITS - 1}}})?")
_DOUBLE = re.compile(r"-?0x[01]\.[0-9a-f]{1,13}p[-+][0-9]{1,4}")
_LARGEST_COUNT = 2**63 - 1  # of SQLite


def read_count(value: Any) -> int:
    """Return a whole number from 0 to 2⁶³ − 1.

    Examples
    --------
    >>> read_count(7)
    7
    """
    if type(value) is not int or not 0 <= value <= _LARGEST_COUNT:
        raise ValueError("a count is no whole number from 0 to 2⁶³ − 1")
    return value


def read_share(text: Any) -> Fraction:
    """Return a share of the calibrated privacy, ``n`` or ``n/d`` in lowest terms.

    Examples
    --------
    >>> read_share("1/12")
    Fraction(1, 12)
    """
    if isinstance(text, str) and _SHARE.fullmatch(text):
        share = Fraction(text)
        if str(share) == text:
            return share
    raise ValueError("its share is no fraction n/d in lowest terms")


def read_double(text: Any) -> float:
    """Return a finite double from what :meth:`float.hex` wrote.

    Examples
    --------
    >>> read_double("0x1.8000000000000p+1")
    3.0
    """
    if isinstance(text, str) and _DOUBLE.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            pass
    raise ValueError("a number is no double in hexadecimal")
