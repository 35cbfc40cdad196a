"""How a clique's states are read: against the definition, and the same from memory as anew."""

import numpy as np
import pytest

from quiltdp import Model
from quiltdp.inference.coupling_tree import TreeReader
from quiltdp.inference.reading import Reading, _read, read_states


def some_states(rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    """Return a list of different states in a random order, and how many values each column has."""
    sizes = rng.integers(1, 4, rng.integers(2, 5)).tolist()
    every = np.argwhere(np.ones(sizes, dtype=bool)).astype(np.int64)
    return every[rng.permutation(len(every))[: max(1, len(every) * 2 // 3)]], sizes


def check_moves(found: Reading, known: int) -> None:
    """Every slot of every state leads to a state with the same beginning and the value it names."""
    prefixes = sorted({tuple(row[:known]) for row in found.states.tolist()})
    for move in found.moves:
        low, high = move.columns
        assert low == known
        longer = sorted({tuple(row[:high]) for row in found.states.tolist()})
        values = [tuple(v) for v in move.values.tolist()]
        for k, prefix in enumerate(prefixes):
            reached = {longer[t] for t in move.after[:, k].tolist()}
            assert reached == {p for p in longer if p[:known] == prefix}
            for slot in range(len(move.after)):
                assert longer[move.after[slot, k]][known:] == values[move.value[slot, k]]
        for t, (origin, slot) in enumerate(zip(move.origin.tolist(), move.slot.tolist(), strict=True)):
            assert move.after[slot, origin] == t
        prefixes, known = longer, high
    assert known == found.states.shape[1]


@pytest.mark.parametrize("seed", range(12))
def test_readings_follow_the_states(seed: int) -> None:
    rng = np.random.default_rng(seed)
    states, sizes = some_states(rng)
    columns = rng.permutation(len(sizes)).tolist()
    known, together = int(rng.integers(0, len(sizes))), int(rng.choice([1, 4, 30]))
    shown = [columns[:1], list(range(len(sizes)))]
    in_order = [sizes[k] for k in columns]
    found = read_states(states, columns, in_order, known, together, shown)
    assert found.states.tolist() == sorted(states[:, columns].tolist())
    assert states[found.sorting][:, columns].tolist() == found.states.tolist()
    check_moves(found, known)
    for places, label in zip(shown, found.shown, strict=True):
        rows = [tuple(row) for row in found.states[:, places].tolist()]
        assert label.tolist() == [sorted(set(rows)).index(row) for row in rows]
    again = read_states(states.copy(), columns, in_order, known, together, shown)
    assert again is found  # remembered
    anew = _read(states, tuple(columns), tuple(in_order), known, together, tuple(map(tuple, shown)))
    assert (anew.signature, anew.work) == (found.signature, found.work)
    with pytest.raises(ValueError, match="read-only"):
        found.states[0, 0] = 7


@pytest.mark.parametrize(("together", "both"), [(1, False), (30, True), (8, False)])
def test_work_is_known_before_a_tree_is_read(together: int, both: bool) -> None:
    rng = np.random.default_rng(3)
    tables: dict[str, tuple[list[str], object]] = {}
    for k in range(8):
        parents = [f"x{j}" for j in sorted(rng.choice(k, min(k, 2), replace=False).tolist())]
        tables[f"x{k}"] = (parents, rng.dirichlet([1.0] * 3, size=(3,) * len(parents)))
    model = Model.from_tables(tables)
    units = [(n,) for n in model.nodes]
    reader = TreeReader(model, units)
    assert reader.work(together=together, both_orders=both) == (
        reader.read(together=together, both_orders=both).work
    )
