"""The UAI reader: networks of the UAI inference competitions, ``MARKOV`` and ``BAYES``.

Variables have numbers, not names: they become ``X0``, ``X1``, … with states ``0``, ``1``, ….  In
every table the last variable of the scope moves fastest; in a ``BAYES`` file it is the child.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from itertools import islice
from math import prod
from typing import NoReturn

import numpy as np

from quiltdp.factor import Table
from quiltdp.io.text import MAX_AXES, Source, blaming, is_number, read_source
from quiltdp.model import Model

_MOST_STATES = 4096


def read_uai(
    path: str | os.PathLike[str], *, records: Collection[str] | None = None, encoding: str | None = None
) -> Model:
    """Read a Markov or Bayesian network from a UAI file.

    Parameters
    ----------
    path
        The file; it may be compressed with gzip.
    records
        The nodes that are rows of the database; default all.
    encoding
        The encoding of the text, where it is not UTF-8.

    Raises
    ------
    FileFormatError
        With the line, what was found and what was expected.
    InvalidModel
        If the file is well formed and its network is not.
    """
    words = _WordReader(read_source(path, encoding=encoding))
    kind = words.next_word("'MARKOV' or 'BAYES'").upper()
    if kind not in ("MARKOV", "BAYES"):
        words.fail("'MARKOV' or 'BAYES'")
    sizes = [
        words.next_state_count(f"the number of states of variable {k}")
        for k in range(words.next_count("the number of variables"))
    ]
    scopes, at = _read_scopes(words, len(sizes))
    tables = [_read_table(words, k, [sizes[v] for v in scope]) for k, scope in enumerate(scopes)]
    words.refuse_more_words()
    names = [f"X{k}" for k in range(len(sizes))]
    provenance = {"file": str(path), "format": f"UAI {kind}"}
    if kind == "MARKOV":
        named = {s: tuple(map(str, range(s))) for s in sorted(set(sizes))}
        states = {n: named[s] for n, s in zip(names, sizes, strict=True)}
        scoped = [([names[v] for v in scope], table) for scope, table in zip(scopes, tables, strict=True)]
        with blaming(path):
            return Model.from_potentials(states, scoped, records, provenance=provenance)
    cpts: dict[str, tuple[list[str], Table]] = {}
    lines: dict[str, int] = {}
    for scope, table, place in zip(scopes, tables, at, strict=True):
        *parents, child = (names[v] for v in scope)
        if child in cpts:
            words.fail(
                f"one table with {child!r} as its last variable, the first is on line {lines[child]}", place
            )
        cpts[child] = (parents, table)
        lines[child] = words.line(place)
    for n in names:
        if n not in cpts:
            words.fail(f"a table with {n!r} as its last variable", None)
    with blaming(path, lines):
        return Model.from_tables({n: cpts[n] for n in names}, records, provenance=provenance)


def _read_scopes(words: _WordReader, variables: int) -> tuple[list[list[int]], list[int]]:
    """Return the scope of every table, and the word where it starts."""
    scopes: list[list[int]] = []
    at: list[int] = []
    for k in range(words.next_count("the number of tables", least=0)):
        width = words.next_count(f"the number of variables of table {k}")
        if width > MAX_AXES:
            words.fail(f"at most {MAX_AXES} variables in table {k}")
        at.append(words.position - 1)
        scope: list[int] = []
        for _ in range(width):
            v = words.next_count(f"a variable of table {k}", least=0)
            if v >= variables:
                words.fail(f"a variable below {variables}")
            if v in scope:
                words.fail(f"each variable once in table {k}")
            scope.append(v)
        scopes.append(scope)
    return scopes, at


def _read_table(words: _WordReader, k: int, shape: list[int]) -> Table:
    """Return one table, the last axis moving fastest."""
    size = words.next_count(f"the number of entries of table {k}")
    if size != prod(shape):
        words.fail(f"{prod(shape)} entries for table {k} (its variables have {shape} states)")
    return words.next_numbers(size, k).reshape(shape)


class _WordReader:
    """The words of the file, taken one after the other; the line is found only for an error."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.words = source.text.split()
        self.position = 0

    def line(self, position: int) -> int:
        """Return the line of a word."""
        word = next(islice(re.finditer(r"\S+", self.source.text), position, None), None)
        return self.source.line(len(self.source.text.rstrip()) if word is None else word.start())

    def fail(self, expected: str, position: int | None = -1) -> NoReturn:
        """Say what was expected at a word (default the last one taken)."""
        if position is None:
            raise self.source.error(None, f"expected {expected}, found none")
        place = self.position - 1 if position == -1 else position
        found = repr(self.words[place][:40]) if place < len(self.words) else "the end of the file"
        error = self.source.error(None, f"expected {expected}, found {found}")
        raise type(error)(self.source.path, self.line(place), f"expected {expected}, found {found}")

    def next_word(self, expected: str) -> str:
        """Return the next word."""
        self.position += 1
        if self.position > len(self.words):
            self.fail(expected)
        return self.words[self.position - 1]

    def next_count(self, expected: str, least: int = 1) -> int:
        """Return the next word as a whole number."""
        word = self.next_word(expected)
        if not (word.isascii() and word.isdigit() and len(word) < 18 and int(word) >= least):
            self.fail(f"{expected} (a whole number)")
        return int(word)

    def next_state_count(self, expected: str) -> int:
        """Return the next word as a number of states: no more than the file could have entries for."""
        size = self.next_count(expected)
        if size > max(_MOST_STATES, len(self.words)):
            self.fail(f"{expected}, at most {max(_MOST_STATES, len(self.words)):,}")
        return size

    def next_numbers(self, count: int, k: int) -> Table:
        """Return the next ``count`` words as numbers."""
        part = self.words[self.position : self.position + count]
        try:
            values = np.array(part, dtype=np.float64)
        except ValueError:
            values = np.empty(0)
        if len(values) != count:
            for word in part:
                self.position += 1
                if not is_number(word):
                    self.fail(f"a number of table {k}")
            self.position += 1
            self.fail(f"{count} numbers for table {k}")
        self.position += count
        return values

    def refuse_more_words(self) -> None:
        """Refuse words after the end."""
        if self.position < len(self.words):
            self.position += 1
            self.fail("the end of the file")
