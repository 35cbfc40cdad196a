"""The walk over a clique tree: against the definition, and equal tasks once."""

import numpy as np
import pytest
from strategies import random_network

from quiltdp import Model, markov_chain
from quiltdp.inference.cliques import listed_cliques
from quiltdp.inference.marginals import conditional, log_marginal
from quiltdp.inference.schedule import schedule
from quiltdp.inference.trees import junction_tree


def walks():
    """Yield drawn models with zeros and latents, and the walk of every record and of a pair."""
    for seed in range(12):
        model = drawn(seed)
        units = [(r,) for r in model.records] + [tuple(model.records[:2])]
        yield model, units, schedule(model, units)


def drawn(seed):
    rng = np.random.default_rng(seed)
    names = [f"X{k}" for k in range(int(rng.integers(3, 7)))]
    parents = {n: tuple(rng.permutation(names[:k])[: rng.integers(1, 4)]) for k, n in enumerate(names)}
    sizes = {n: int(rng.integers(2, 4)) for n in names}
    zeros, records = float(rng.choice([0.0, 0.4])), [n for n in names if rng.random() < 0.8] or names
    return random_network(seed, parents, sizes, zeros=zeros, records=records)


def test_levels_follow_the_possible_states():
    for model, _, walk in walks():
        for task in walk.tasks:
            for reverse in (False, True):
                for together in (1, 4, 30):
                    check_order(model, task, task.order(reverse=reverse, together=together))


def check_order(model, task, order):
    """Every slot leads to a longer prefix with the value it names; laws are the model's conditionals."""
    states = task.clique.states[:, [task.columns[n] for n in (*task.root, *task.new)]]
    place = {n: k for k, n in enumerate((*task.root, *task.new))}
    prefixes = sorted({tuple(s[: len(task.root)]) for s in states.tolist()})
    assert [list(p) for p in prefixes] == task.root_states.tolist()
    names = list(task.root)
    for depth, level in enumerate(order.levels, 1):
        columns = [place[n] for n in (*names, *level.nodes)]
        possible = {tuple(s) for s in states[:, columns].tolist()}
        longer = sorted(possible)
        if depth == len(order.levels):
            longer = [tuple(s) for s in states[:, columns].tolist()]
        law = conditional(model, [model.nodes[n] for n in level.nodes], [model.nodes[n] for n in names])
        for k, prefix in enumerate(prefixes):
            reached = [longer[t] for t in level.longer[:, k]]
            assert set(reached) == {p for p in possible if p[: len(prefix)] == prefix}
            seen = set()
            for slot, state in enumerate(reached):
                value = tuple(level.values[level.value[slot, k]].tolist())
                assert state == (*prefix, *value)
                want = 0.0 if state in seen else law[state]
                assert level.law[slot, k] == pytest.approx(want, rel=1e-9)
                seen.add(state)
        prefixes, names = longer, [*names, *level.nodes]
    for (level, label), (_, full), root in zip(order.shown, task.children, task.roots, strict=True):
        names = [*task.root, *(n for v in order.levels[:level] for n in v.nodes)]
        assert set(root) <= set(names)
        if level:
            fewer = [*task.root, *(n for v in order.levels[: level - 1] for n in v.nodes)]
            assert not set(root) <= set(fewer)
        rows = states[:, [place[n] for n in names]].tolist()
        number = {}
        for row in sorted(map(tuple, rows)) if level < len(order.levels) else map(tuple, rows):
            number.setdefault(row, len(number))
        for row, at in zip(map(tuple, rows), full.tolist(), strict=True):
            assert label[number[row]] == at


def test_sums_run_over_all_beyond_the_root():
    """E[Π w(x)] given a root state, by the recipe of the module, is the ratio of two sums of tables."""
    rng = np.random.default_rng(1)
    for model, units, walk in walks():
        weights = [rng.random(model.cardinality(n)) for n in model.nodes]

        def step(tasks, below, weights=weights):
            return [summed(t, b, weights) for t, b in zip(tasks, below, strict=True)]

        found = walk.run(step)[walk.edges :]
        joint = np.exp(log_marginal(model, model.nodes))
        for axis, w in enumerate(weights):
            joint = joint * w.reshape([-1 if k == axis else 1 for k in range(joint.ndim)])
        for task, table in zip(walk.tasks[walk.edges :], found, strict=True):
            own = [weights[n][task.root_states[:, k]] for k, n in enumerate(task.root)]
            mass = np.bincount(task.label, np.exp(task.clique.log_p))
            assert joint.sum() == pytest.approx(float((table * mass * np.prod(own, axis=0)).sum()))
        assert len(found) == len(units)


def summed(task, below, weights):
    """E[Π w of all beyond the root | root state]."""
    mass = np.exp(task.clique.log_p)
    total = np.bincount(task.label, mass)
    for n in task.new:
        mass = mass * weights[n][task.clique.states[:, task.columns[n]]]
    for message, (_, label) in zip(below, task.children, strict=True):
        mass = mass * message[label]
    return np.bincount(task.label, mass) / total


def test_only_what_units_need_and_every_weight_beyond_once():
    chain = markov_chain([[0.9, 0.1], [0.2, 0.8]], 6)
    assert len(schedule(chain, [("X0",)]).tasks) == 5  # four edges, one direction each
    walk = schedule(chain, [(n,) for n in chain.nodes])
    assert walk.edges == 8
    for task, total in zip(walk.tasks, walk.beyond([1.0] * 6), strict=True):
        assert total == pytest.approx(5.0 if task in walk.tasks[8:] else total)
    assert walk.beyond([1.0] * 6)[walk.edges :] == pytest.approx([5.0] * 6)


def test_equal_tasks_are_computed_once_and_others_are_not():
    step = [[0.9, 0.1], [0.2, 0.8]]
    star = Model.from_tables({"A": ([], [0.5, 0.5])} | {n: (["A"], step) for n in "BCD"})
    walk = schedule(star, [("A",)])
    orders = {task: task.order() for task in walk.tasks}
    cost = dict.fromkeys(range(4), 1.0)

    def key(task):
        return (orders[task].signature, *(cost[n] for n in task.new))

    assert len(set(walk.classes(key))) < len(walk.tasks)
    cost[3] = 2.0
    unequal = len(set(walk.classes(key)))
    cost[2] = 3.0
    assert len(set(walk.classes(key))) > unequal or unequal == len(walk.tasks)
    calls = []

    def counted(tasks, below):
        calls.extend(tasks)
        return [0] * len(tasks)

    cost.update(dict.fromkeys(range(4), 1.0))
    assert len(walk.run(counted, key)) == len(walk.tasks) > len(calls)


def test_cliques_list_their_possible_states():
    """Every clique's listed states have the model's marginal probabilities; the others are impossible."""
    for seed in range(6):
        model = drawn(seed)
        for clique in listed_cliques(junction_tree(model), 2**20):
            law = np.exp(log_marginal(model, clique.nodes))
            assert np.count_nonzero(law) == len(clique.states)
            np.testing.assert_allclose(np.exp(clique.log_p), law[tuple(clique.states.T)], rtol=1e-9)
