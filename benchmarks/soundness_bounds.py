"""Every bound by itself against the truth by enumeration: no ``auto``, no exact limit in its place.

    python benchmarks/soundness_bounds.py --seeds 3000 --weak 400 [--start 0] [--state DIR] [--docs PAGE.md]

Each seed draws one connected model: a network of 3 to 6 nodes, a loop of six, a tree, nearly independent
records, or a chain of 2 to 6 states (homogeneous, changing, periodic, slow, cyclic; as a chain, or as a path
with latent steps).  Zeros, unequal α, α = 0 that may be known, prices as tables, sets, windows, and all four
kinds of adversary.  The ``--weak`` ones are chains of nearly independent steps, where the published formulas
are below group privacy; on the longest of them one known record at most is tried.
Bounds are asked for by name, and by class where they are parts of a bound of a name.

The truth is written from the definition (:class:`Truth`; numpy, and HiGHS for linear programs): the joint law
is multiplied out, every set and value of records that may be known is applied to it, and explicit
likelihoods h are evaluated, e^{−distance to a set} for the threshold sets of p / q, then the best ones there
are.  What such an h attains is a leakage.  A bound below it by more than a part in 10¹¹ is a violation.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import highspy
import numpy as np
from campaigns import add_options, campaign, told
from numpy.typing import NDArray

import quiltdp as qd
import quiltdp.papers  # registers the comparisons
from quiltdp.accountant.adversaries import parse_adversary
from quiltdp.accountant.bounds import chain as chains
from quiltdp.accountant.bounds.chain_contraction import ContractionBound
from quiltdp.accountant.bounds.conditioned import ConditionedModels
from quiltdp.accountant.bounds.contract import ALL, Bound, Problem
from quiltdp.accountant.bounds.coupling import CouplingBound
from quiltdp.accountant.methods import find_method, method_names
from quiltdp.errors import QuiltdpError
from quiltdp.inference import plan
from quiltdp.inference.workspace import Workspace
from quiltdp.parallel import workers
from quiltdp.work import WorkBudget

HEADING = "## Every bound by itself"
SLACK = 1e-11
CHUNK = 20
LARGE = 2000  # joint states beyond which only some evidence and no linear program is tried
PUBLISHED = ("published", "published-blanket", "lemma4", "lange", "mqm-approx", "gk16")
TELLING = 0.95  # of group privacy: only records below it are counted
EVERY = {"exact": (4, 0), "listed-evidence": (2, 0), "worst-evidence": (2, 1), "swing": (3, 0)}
"""The costly bounds take only seeds of one remainder: more models in the same time."""
PROGRAMS = 40  # linear programs for every unit, the evidence that looks worst first
Array = NDArray[np.float64]
Unit = tuple[str, ...]


# -- the truth -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """The joint law of the records and what each change of them costs: nothing of the library's is used."""

    records: tuple[str, ...]
    joint: Array
    costs: tuple[Array, ...]
    may_know: frozenset[str]
    most: int

    def attained(self, unit: Unit, programs: int = PROGRAMS) -> float:
        """Return what explicit likelihoods tell about a unit, to the worst of those who know something.

        The worst evidence is often not the one that a guess puts first: with two programs a third of the
        units of small models came out too small.  A hypothesis is passed over only where its ceiling shows
        that no likelihood at all attains more than what was attained before.
        """
        best, tried = 0.0, []
        for bases, p, q, costs in self._hypotheses([self.records.index(r) for r in unit]):
            guesses = bases + guess(p, q, costs)
            best = max(best, float(guesses.max()))
            solver = Programs(costs)
            ceilings = bases + ceiling(p, q, costs)
            tried += [
                (float(guesses[k]), float(ceilings[k]), -len(tried), float(bases[k]), p[k], q[k], solver)
                for k in np.flatnonzero(ceilings > best).tolist()
            ]
        tried.sort(key=lambda t: t[:3], reverse=True)
        for _, most, _, base, p, q, solver in tried:
            if programs and most > best * (1.0 + SLACK) + SLACK:
                programs -= 1
                best = base + solver.improved(p, q, best - base)
        return best

    def _hypotheses(self, places: list[int]) -> Iterator[tuple[Array, Array, Array, list[Array]]]:
        """Yield, for all evidence: own prices of pairs of values, two laws of the rest each, its prices."""
        others = [k for k, r in enumerate(self.records) if r in self.may_know and k not in places]
        for size in range(min(self.most, len(others)) + 1):
            for known in itertools.combinations(others, size):
                rest = [k for k in range(self.joint.ndim) if k not in known and k not in places]
                idle = tuple(k for k in rest if not self.costs[k].any())  # no likelihood reads them
                rest = [k for k in rest if k not in idle]
                law = np.transpose(self.joint.sum(axis=idle, keepdims=True), [*known, *places, *rest, *idle])
                shape = law.shape[size : size + len(places)]
                law = law.reshape(-1, int(np.prod(shape)), *(self.joint.shape[k] for k in rest))
                own = np.zeros((1, 1))
                for k in places:
                    own = (own[:, None, :, None] + self.costs[k][:, None]).reshape(
                        len(own) * len(self.costs[k]), -1
                    )
                mass = law.reshape(*law.shape[:2], -1).sum(axis=2)
                for found, total in zip(law, mass, strict=True):
                    values = np.flatnonzero(total > 0)
                    pairs = [(x, y) for x, y in itertools.permutations(values, 2)]
                    if not pairs:
                        continue
                    x, y = np.array(pairs).T
                    laws = found / np.where(total > 0, total, 1.0).reshape(-1, *(1,) * len(rest))
                    yield own[x, y], laws[x], laws[y], [self.costs[k] for k in rest]


def lipschitz(h: Array, costs: Sequence[Array]) -> Array:
    """Return the least functions above h (one for every first index) that change by at most e^price."""
    for axis, cost in enumerate(costs, start=1):
        spread = np.exp(-cost).reshape(cost.shape + (1,) * (h.ndim - 1)) * np.moveaxis(h, axis, 0)[:, None]
        h = np.moveaxis(spread.max(axis=0), 0, axis)
    return h


def value(p: Array, q: Array, h: Array) -> Array:
    """Return ln E_p h / E_q h for every first index."""
    count = len(p)
    return np.asarray(
        np.log((p * h).reshape(count, -1).sum(axis=1)) - np.log((q * h).reshape(count, -1).sum(axis=1))
    )


def guess(p: Array, q: Array, costs: Sequence[Array], levels: Sequence[float] = (1.0,)) -> Array:
    """Return the most that e^{−distance to the set where p > level q} attains, for every first index."""
    if p[0].size == 1:
        return np.zeros(len(p))
    return np.max([value(p, q, lipschitz((p > t * q) + 1e-300, costs)) for t in levels], axis=0)


def ceiling(p: Array, q: Array, costs: Sequence[Array]) -> Array:
    """Return what nothing exceeds, as no likelihood changes by more than all prices together."""
    p, q = p.reshape(len(p), -1), q.reshape(len(q), -1)
    order = np.argsort(-p / np.maximum(q, 1e-300), axis=1)
    most = np.expm1(sum(float(c.max()) for c in costs))
    above, below = (1.0 + most * np.take_along_axis(v, order, axis=1).cumsum(axis=1) for v in (p, q))
    return np.asarray(np.log(above / below).max(axis=1, initial=0.0))


class Programs:
    """Linear programs for the best likelihood of some prices: one polytope, solved again and again by HiGHS.

    To improve on e^t, E_p h − e^t E_q h is maximised over the likelihoods 0 ≤ h ≤ 1; what its h attains is
    the next t.  Whatever HiGHS returns is made feasible and evaluated.
    """

    def __init__(self, costs: Sequence[Array]) -> None:
        self._costs, self._shape = costs, tuple(len(c) for c in costs)
        self._solver: Any = None

    def _made(self) -> Any:
        count = int(np.prod(self._shape))
        index = np.arange(count).reshape(self._shape)
        rows = [
            (np.moveaxis(index, axis, 0)[a].ravel(), np.moveaxis(index, axis, 0)[b].ravel(), cost[a, b])
            for axis, cost in enumerate(self._costs)
            for a, b in itertools.permutations(range(len(cost)), 2)
        ]
        ends = np.concatenate([np.stack(row[:2], axis=1) for row in rows])
        weight = np.concatenate([np.full(len(row[0]), -np.exp(row[2])) for row in rows])
        program, solver = highspy.HighsLp(), highspy.Highs()
        program.num_col_, program.num_row_ = count, len(ends)
        program.col_cost_ = program.col_lower_ = np.zeros(count)
        program.col_upper_ = np.ones(count)
        program.row_lower_, program.row_upper_ = np.full(len(ends), -np.inf), np.zeros(len(ends))
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.arange(0, 2 * len(ends) + 1, 2)
        program.a_matrix_.index_ = ends.ravel()
        program.a_matrix_.value_ = np.stack([np.ones(len(ends)), weight], axis=1).ravel()
        program.sense_ = highspy.ObjSense.kMaximize
        for option, setting in (("output_flag", False), ("presolve", "off"), ("threads", 1)):
            solver.setOptionValue(option, setting)
        for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            solver.setOptionValue(option, 1e-10)
        solver.passModel(program)
        return solver

    def improved(self, p: Array, q: Array, t: float) -> float:
        """Return what the best h attains, or ``t`` if that is no more; of a large program, a guess."""
        if p.size > LARGE // 2:
            return max(t, float(guess(p[None], q[None], self._costs, (0.25, 0.5, 0.8, 1.25, 2.0, 4.0))[0]))
        self._solver = self._solver or self._made()
        for _ in range(20):
            gain = (p - np.exp(t) * q).ravel()
            if not (gain > 0).any():
                return t
            columns = np.arange(p.size, dtype=np.int32)
            self._solver.changeColsCost(p.size, columns, gain / np.abs(gain).max())
            self._solver.run()
            h = np.array(self._solver.getSolution().col_value)
            if not (h > 0).any():
                return t
            h = lipschitz(np.maximum(h, 1e-300).reshape(1, *self._shape), self._costs)
            reached = float(value(p[None], q[None], h)[0])
            if not reached > t + 1e-13:
                return t
            t = reached
        return t


def joint_law(model: qd.Model) -> Array:
    """Return P(records), axes in their order, by multiplying all tables."""
    letter = {n: k for k, n in enumerate(model.nodes)}
    operands: list[object] = []
    for factor in model.factors:
        operands += [np.asarray(factor.table), [letter[n] for n in factor.scope]]
    joint = np.einsum(*operands, [letter[n] for n in model.records], optimize="greedy")
    return np.asarray(joint / joint.sum())


# -- what is drawn -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """One problem: model, α of its records, prices of their values, units, adversary."""

    model: qd.Model
    alpha: dict[str, float]
    prices: dict[str, Array]
    adversary: str
    units: tuple[Unit, ...]
    window: int
    tags: tuple[str, ...]

    def truth(self) -> Truth:
        """Return what the definition says of it."""
        who, records = self.adversary, tuple(self.model.records)
        may, most = frozenset(records), len(records)
        if who.startswith("knows="):
            may = frozenset(who.removeprefix("knows=").split(","))
        elif who != "informed":
            most = 0 if who == "prior" else int(who.removeprefix("knows:"))
        flat = {r: 1.0 - np.eye(self.model.cardinality(r)) for r in records}
        costs = tuple(self.alpha[r] * self.prices.get(r, flat[r]) for r in records)
        joint = joint_law(self.model)
        return Truth(records, joint, costs, may, min(most, 1) if joint.size > LARGE else most)

    @property
    def problem(self) -> Problem:
        """The same as the bounds take it."""
        units = None if self.window > 1 else self.units
        return Problem(self.model, units, parse_adversary(self.adversary), self.window, self.prices)


def rows(rng: np.random.Generator, shape: Sequence[int], zeros: bool, weak: bool = False) -> Array:
    """Return conditional tables: smooth or sharp, with zeros, or all rows nearly alike."""
    table = np.maximum(
        rng.dirichlet(np.full(shape[-1], rng.choice([0.4, 1.0, 6.0])), size=tuple(shape[:-1])), 1e-7
    )
    if weak:
        share = rng.choice([0.003, 0.02, 0.1])
        table = (1 - share) * rng.dirichlet(np.full(shape[-1], 5.0)) + share * table
    if zeros:
        table = np.where(rng.random(table.shape) < 0.2, 0.0, table)
        table[..., 0] = np.where(table.sum(axis=-1) > 0, table[..., 0], 1.0)
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def sizes(rng: np.random.Generator, count: int, most: int) -> list[int]:
    """Return numbers of states, two or three, with at most so many joint states."""
    found = rng.choice([2, 2, 3], size=count)
    while np.prod(found) > most:
        found[int(np.argmax(found))] = 2
        if (found == 2).all():
            break
    return [int(s) for s in found]


def network(rng: np.random.Generator, zeros: bool, shape: str) -> qd.Model:
    """Return a connected Bayesian network; a loop of six is a Markov network."""
    count = 6 if shape in ("loop of six", "nearly independent") else int(rng.integers(3, 6))
    states = sizes(rng, count, 108)
    names = [f"X{k}" for k in range(count)]
    latent = (
        set(rng.choice(count, size=int(rng.integers(1, 3)), replace=False).tolist())
        if rng.random() < 0.3
        else ()
    )
    records = [n for k, n in enumerate(names) if k not in latent]
    if shape == "loop of six":
        potentials = []
        for k in range(6):
            table = np.exp(rng.normal(0, rng.choice([0.3, 1.0, 2.5]), (states[k], states[(k + 1) % 6])))
            table = np.where(rng.random(table.shape) < 0.15, 0.0, table) if zeros else table
            table[0, 0] = 1.0
            potentials.append(((names[k], names[(k + 1) % 6]), table))
        return qd.Model.from_potentials(dict(zip(names, states, strict=True)), potentials, records)
    tables = {}
    for k, name in enumerate(names):
        number = 1 if shape == "tree" or rng.random() < 0.5 else 2
        parents = sorted(rng.choice(k, size=min(k, number), replace=False).tolist())
        own = rows(rng, [*(states[p] for p in parents), states[k]], zeros, shape == "nearly independent")
        tables[name] = ([names[p] for p in parents], own)
    return qd.Model.from_tables(tables, records)


def chain(rng: np.random.Generator, zeros: bool) -> tuple[qd.Model, list[str]]:
    """Return a chain and what kind it is: of 2 to 6 states, now and then a path with latent steps."""
    states = int(rng.choice([2, 2, 3, 3, 4, 5, 6]))
    length = int(rng.integers(3, {2: 8, 3: 6, 4: 5, 5: 5, 6: 4}[states]))
    kind = str(rng.choice(["homogeneous", "changing", "periodic", "slow", "cyclic"]))
    matrix = rows(rng, (states, states), zeros)
    if kind == "slow":
        stay = rng.choice([0.9, 0.97])
        matrix = stay * np.eye(states) + (1 - stay) * matrix
    if kind == "cyclic":
        matrix = 0.05 * matrix * (not zeros) + np.roll(np.eye(states), 1, axis=1)
        matrix = matrix / matrix.sum(axis=1, keepdims=True)
    other = rows(rng, (states, states), zeros)
    moves = [matrix] * (length - 1)
    if kind == "periodic":
        moves = [(matrix, other)[k % 2] for k in range(length - 1)]
    if kind == "changing":
        moves = [rows(rng, (states, states), zeros) for _ in range(length - 1)]
    start = rng.choice(["stationary", "uniform", "any"]) if kind != "changing" else "any"
    first = rows(rng, (states,), zeros) if start == "any" else np.full(states, 1 / states)
    tags = ["chains", f"{kind} chains", *(["k ≥ 5"] if states > 4 else [])]
    if rng.random() < 0.4:  # the same law as a network, with some steps latent
        if start == "stationary":
            first = np.linalg.matrix_power(0.5 * (np.eye(states) + matrix), 4096)[0]
            first = np.maximum(first, 0.0) / np.maximum(first, 0.0).sum()
        tables: dict[str, Any] = {"S0": ([], first)}
        for k, move in enumerate(moves, start=1):
            tables[f"S{k}"] = ([f"S{k - 1}"], move)
        records = [n for n in tables if rng.random() < 0.7]
        return qd.Model.from_tables(tables, records if len(records) > 1 else list(tables)[:2]), [
            *tags,
            "paths",
        ]
    if kind in ("periodic", "changing"):
        return qd.markov_chain(moves, initial=first), tags
    try:
        return qd.markov_chain(matrix, length, "stationary" if start == "stationary" else first), tags
    except QuiltdpError:  # zeros: no one stationary law
        return qd.markov_chain(matrix, length, np.full(states, 1 / states)), tags


def price_tables(rng: np.random.Generator, model: qd.Model) -> dict[str, Array]:
    """Return differences of values for some records of three or more states, the largest 1."""
    found = {}
    for r in model.records:
        states = model.cardinality(r)
        if states > 2 and rng.random() < 0.8:
            level = np.arange(states) if rng.random() < 0.5 else rng.random(states).cumsum()
            found[r] = np.abs(level[:, None] - level) / np.ptp(level)
    return found


def draw(seed: int) -> Scene:
    """Return the scene of a seed."""
    rng = np.random.default_rng([24, seed])
    zeros = bool(rng.random() < 0.3)
    shape = str(
        rng.choice(
            ["chain", "network", "loop of six", "tree", "nearly independent"], p=[0.45, 0.2, 0.1, 0.1, 0.15]
        )
    )
    model, tags = chain(rng, zeros) if shape == "chain" else (network(rng, zeros, shape), [shape])
    records = list(model.records)
    alpha = np.full(len(records), float(np.exp(rng.uniform(np.log(0.05), np.log(3.0)))))
    if rng.random() < 0.4:
        alpha = np.exp(rng.uniform(np.log(0.05), np.log(3.0), len(records)))
        tags.append("unequal α")
        if rng.random() < 0.6:
            alpha[rng.permutation(len(records))[: int(rng.integers(1, 3))]] = 0.0
            alpha[int(rng.integers(len(records)))] = 0.7
            tags.append("α = 0")
    prices = price_tables(rng, model) if rng.random() < 0.35 else {}
    who = str(rng.choice(["informed", "prior", "set", "count"], p=[0.4, 0.35, 0.12, 0.13]))
    if who == "set":
        named = rng.choice(records, size=int(rng.integers(1, min(3, len(records)) + 1)), replace=False)
        who = "knows=" + ",".join(sorted(named))
    elif who == "count":
        who = f"knows:{int(rng.integers(1, 3))}"
    units: tuple[Unit, ...] = tuple((r,) for r in records)
    window = 1
    if rng.random() < 0.2 and len(records) > 3:
        if shape == "chain" and "paths" not in tags and rng.random() < 0.6:
            window = int(rng.integers(2, 4))
            units = tuple(tuple(records[k : k + window]) for k in range(len(records) - window + 1))
            tags.append("windows")
        else:
            chosen = sorted(rng.choice(records, size=2, replace=False).tolist(), key=records.index)
            units = (tuple(chosen), *((r,) for r in records if r not in chosen))
            tags.append("sets")
    tags += ["zeros"] if any((np.asarray(f.table) == 0).any() for f in model.factors) else []
    tags += ["latents"] if model.latents else []
    tags += ["prices"] if prices else []
    tags += ["ternary or more"] if max(model.cardinality(r) for r in records) > 2 else []
    tags.append("knows" if who.startswith("knows") else who)
    return Scene(
        model, dict(zip(records, alpha.tolist(), strict=True)), prices, who, units, window, tuple(tags)
    )


def draw_weak(seed: int) -> Scene:
    """Return a homogeneous chain of nearly independent binary steps, reversible and stationary."""
    rng = np.random.default_rng([25, seed])
    long, share = seed % 5 == 0, rng.choice([0.001, 0.01, 0.05, 0.15])
    law = rng.dirichlet([8.0, 8.0])
    length = int(rng.integers(13, 15)) if long else int(rng.integers(6, 8))
    model = qd.markov_chain(share * np.eye(2) + (1 - share) * law, length, "stationary")
    alpha = float(rng.uniform(6.0, 9.0) if long else np.exp(rng.uniform(np.log(0.3), np.log(3.0))))
    who = ("prior", "informed")[long or int(rng.integers(2))]
    units = tuple((r,) for r in model.records)
    tags = ("chains", "homogeneous chains", "nearly independent", who)
    return Scene(model, dict.fromkeys(model.records, alpha), {}, who, units, 1, tags)


# -- the bounds ----------------------------------------------------------------------------------------


class AtOnce(chains.ChainBound):
    """Messages on pairs with all evidence merged into the tail as soon as it may be."""

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """Merge whatever is within e³ of the free tilt, after one step."""
        before = chains.CHAIN_MERGED, plan.EVIDENCE_LISTED
        chains.CHAIN_MERGED, plan.EVIDENCE_LISTED = ((3.0, 1.0),), 0
        try:
            super().prepare(workspace, budget)
            self.evaluate = partial(self._merging, super().evaluate)  # type: ignore[method-assign]
        finally:
            chains.CHAIN_MERGED, plan.EVIDENCE_LISTED = before

    @staticmethod
    def _merging(evaluate: Callable[..., Any], alpha: Array, need: Any = ALL) -> Any:
        before = chains.CHAIN_MERGED, plan.EVIDENCE_LISTED
        chains.CHAIN_MERGED, plan.EVIDENCE_LISTED = ((3.0, 1.0),), 0
        try:
            return evaluate(alpha, need)
        finally:
            chains.CHAIN_MERGED, plan.EVIDENCE_LISTED = before


class Conditioned:
    """Conditioned models by themselves."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def prepare(self, workspace: Workspace, budget: WorkBudget) -> None:
        """List the evidence."""
        self._bound = ConditionedModels(self._problem, workspace, budget)

    def evaluate(self, alpha: Array, need: Any = ALL) -> Any:
        """Return the leakage of every unit."""
        return self._bound.evaluate(alpha, need)


def bounds(scene: Scene, seed: int) -> Iterator[tuple[str, Callable[[Problem], Bound]]]:
    """Yield (name, what makes it) of everything that holds against the adversary."""
    who = parse_adversary(scene.adversary)
    for name in method_names(who)[1:]:
        if name == "group" or seed % EVERY.get(name, (1, 0))[0] != EVERY.get(name, (1, 0))[1]:
            continue
        yield (
            f"{name} (prior)" if name == "published" and who.knows_nothing else name,
            find_method(who, name).make,
        )
    if "chains" in scene.tags:
        yield "chain, evidence merged at once", AtOnce
        yield "chain contraction", ContractionBound
    if seed % 4 == 1:
        yield "conditioned models", Conditioned
    if who.knows_nothing:
        sparse = ((0.1, "mass above 0.1"), (1.0, "single changes"))[seed % 2]
        yield f"sparse coupling, {sparse[1]}", partial(CouplingBound, sparse=sparse[0])


@dataclass
class Tally:
    """What was compared so far, and what failed."""

    models: int = 0
    records: int = 0
    compared: int = 0
    telling: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    tags: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    of: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    ratios: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    violations: list[str] = field(default_factory=list)


def compare(seed: int, tally: Tally, *, weak: bool = False) -> None:
    """Add everything about one seed."""
    scene = draw_weak(seed) if weak else draw(seed)
    truth = scene.truth()
    attained = np.array([truth.attained(unit) for unit in scene.units])
    vector = np.array([scene.alpha.get(n, 0.0) for n in scene.model.nodes])
    group, any_below = float(vector.sum()), np.zeros(len(attained), dtype=bool)
    tally.models += 1
    for name, make in bounds(scene, seed):
        if weak and name.removesuffix(" (prior)") not in PUBLISHED:
            continue
        try:
            bound = make(scene.problem)
            bound.prepare(Workspace(scene.model), WorkBudget())
            found = bound.evaluate(vector).values
        except QuiltdpError:
            continue
        tally.compared += len(found)
        for k in np.flatnonzero(~(found >= attained * (1 - SLACK) - SLACK)).tolist():
            tally.violations.append(
                f"seed {seed}, {scene.adversary}, {name}, {scene.units[k]}: {found[k]!r} < {attained[k]!r}"
            )
        below = found < TELLING * group
        any_below |= below
        tally.telling[name] += int(below.sum())
        counted = below & (attained > 1e-9)
        tally.ratios[name] += np.round(found[counted] / attained[counted], 5).tolist()
        for tag in scene.tags:
            tally.of[f"{name}: {tag}"] += int(below.sum())
    tally.records += int(any_below.sum())
    for tag in scene.tags:
        tally.tags[tag] += int(any_below.sum())


def work(part: str, seeds: range) -> dict[str, Any]:
    """Return the sums of some seeds."""
    tally = Tally()
    for seed in seeds:
        compare(seed, tally, weak=part == "weak")
    return vars(tally)


COLUMNS = (
    "chains",
    "loop of six",
    "zeros",
    "latents",
    "unequal α",
    "α = 0",
    "prices",
    "sets",
    "windows",
    "knows",
)


def page(total: dict[str, Any], seeds: range) -> str:
    """Return the section of the documentation."""
    lines = []
    for name, count in sorted(total["telling"].items()):
        ratios = total["ratios"].get(name) or [np.nan]
        of = " | ".join(f"{total['of'].get(f'{name}: {tag}', 0):,}" for tag in COLUMNS)
        lines.append(
            f"| {name} | {count:,} | {of} | {np.median(ratios):.3f} | {np.quantile(ratios, 0.95):.2f} |"
        )
    kinds = ", ".join(f"{tag} {n:,}" for tag, n in sorted(total["tags"].items(), key=lambda t: -t[1]))
    listed = "".join(f"\n- {v}" for v in total["violations"])
    return f"""{HEADING}

Each bound is asked for by name, or made by its class where it is a part of one, so that `auto` and the exact
limit answer for nobody. The truth is written apart from the library, in `benchmarks/soundness_bounds.py`: the
full joint law, every set and value of known records, explicit likelihoods for the threshold sets, and the
best linear programs, made feasible and evaluated. Networks, trees, loops of six, nearly independent records,
and chains of 2 to 6 states with all evidence enumerated. A record counts for a bound that is below
{TELLING} of group privacy.

Last run: seeds {seeds.start} to {seeds.stop - 1}: {total["models"]:,} models, {total["compared"]:,} leakages,
{total["records"]:,} different records that some bound tells from group privacy,
**{len(total["violations"])} violations**; {total["seconds"]:,.0f} s of processor time,
{len(total["versions"])} version(s) of the sources.
{listed}
Of those records: {kinds}.

| bound | records | {" | ".join(COLUMNS)} | median × attained | 95 % |
|---|---|{"---|" * len(COLUMNS)}---|---|
{chr(10).join(lines)}
"""


def main() -> int:
    """Run the campaign; exit 1 if anything is below the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3000)
    parser.add_argument("--weak", type=int, default=400, help="chains of nearly independent steps")
    add_options(parser, "build/soundness-bounds")
    options = parser.parse_args()
    start = options.start
    ranges = {"loopy": range(start, start + options.seeds), "weak": range(start, start + options.weak)}
    with workers(options.workers) as executor:
        total = campaign(ranges, CHUNK, work, options.state, executor)
    return told(total, HEADING, page(total, ranges["loopy"]), options.docs)


if __name__ == "__main__":
    sys.exit(main())
