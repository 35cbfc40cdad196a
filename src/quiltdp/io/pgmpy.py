"""To and from pgmpy's discrete networks, with state names kept.

pgmpy takes seconds to import, so it is imported by the functions that need it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from quiltdp.errors import InvalidArgument, InvalidModel
from quiltdp.factor import Table
from quiltdp.interface import any_model
from quiltdp.model import Model


def from_pgmpy(
    network: Any,
    *,
    records: Collection[str] | None = None,
    length: int | None = None,
    notes: Sequence[str] = (),
    provenance: Mapping[str, str] | None = None,
) -> Model:
    """Return the model of a pgmpy ``DiscreteBayesianNetwork``, ``DiscreteMarkovNetwork`` or dynamic network.

    Parameters
    ----------
    network
        The pgmpy network.  Names and states that are not strings become strings.
    records
        The nodes that are rows of the database; default every node that pgmpy does not call latent.
    length
        The time slices of a ``DynamicBayesianNetwork``; node X of slice t is called ``X_t``.

    Raises
    ------
    InvalidModel
        If a node has no table, or two tables do not agree on its states.

    Examples
    --------
    >>> import quiltdp as qd
    >>> bn = to_pgmpy("models/asia.bif")
    >>> from_pgmpy(bn).fingerprint == qd.load_model("models/asia.bif").fingerprint
    True
    """
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork, DynamicBayesianNetwork

    if isinstance(network, DynamicBayesianNetwork):
        states, tables = _unroll_slices(network, length)
        origin = {"format": "pgmpy", **(provenance or {})}
        return Model.from_tables(tables, records, states=states, notes=notes, provenance=origin)
    if length is not None:
        raise InvalidArgument("only a DynamicBayesianNetwork takes a length")
    names = _node_names(network)
    latents = {names[n] for n in getattr(network, "latents", ())}
    if records is None and latents:
        records = [n for n in names.values() if n not in latents]
    origin = {"format": "pgmpy", **(provenance or {})}
    if isinstance(network, DiscreteBayesianNetwork):
        states, tables = _bayesian_tables(network, names)
        return Model.from_tables(tables, records, states=states, notes=notes, provenance=origin)
    if isinstance(network, DiscreteMarkovNetwork):
        states, potentials = _markov_potentials(network, names)
        return Model.from_potentials(states, potentials, records, notes=notes, provenance=origin)
    raise InvalidArgument(
        "expected a pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or DynamicBayesianNetwork, not"
        f" {type(network).__name__}"
    )


@any_model
def to_pgmpy(model: Model) -> Any:
    """Return the model as a pgmpy network: ``DiscreteBayesianNetwork``, or ``DiscreteMarkovNetwork``.

    Latent nodes are pgmpy's latents.

    Examples
    --------
    >>> type(to_pgmpy("models/asia.bif")).__name__
    'DiscreteBayesianNetwork'
    """
    from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork

    if not model.directed:
        network = DiscreteMarkovNetwork()
        network.add_nodes_from(model.nodes)
        for f in model.factors:
            network.add_edges_from((a, b) for k, a in enumerate(f.scope) for b in f.scope[:k])
            named = {n: list(model.states[n]) for n in f.scope}
            network.add_factors(DiscreteFactor(f.scope, f.table.shape, f.table, state_names=named))
        network.latents = set(model.latents)
        return network
    bayesian = DiscreteBayesianNetwork()
    bayesian.add_nodes_from(model.nodes)
    for f in model.factors:
        bayesian.add_edges_from((p, f.child) for p in f.parents)
        bayesian.add_cpds(
            TabularCPD(
                f.child,
                f.table.shape[-1],
                np.moveaxis(f.table, -1, 0).reshape(f.table.shape[-1], -1),
                evidence=list(f.parents),
                evidence_card=list(f.table.shape[:-1]),
                state_names={n: list(model.states[n]) for n in f.scope},
            )
        )
    bayesian.latents = set(model.latents)
    return bayesian


def _node_names(network: Any) -> dict[Any, str]:
    """Return pgmpy's node -> its name as a string, or refuse two nodes with one name."""
    try:
        names = {n: str(n) for n in network.nodes()}
    except AttributeError:
        raise InvalidArgument(f"expected a pgmpy network, not {type(network).__name__}") from None
    if len(set(names.values())) != len(names):
        raise InvalidModel("two nodes of the pgmpy network have the same name as text")
    return names


def _bayesian_tables(
    network: Any, names: Mapping[Any, str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[list[str], Table]]]:
    """Return states and tables (axes parents…, child) of a Bayesian network."""
    cpds = {}
    for node, name in names.items():
        cpd = network.get_cpds(node)
        if cpd is None:
            raise InvalidModel(f"node {name!r} has no CPD in the pgmpy network", name)
        if set(cpd.variables[1:]) != set(network.get_parents(node)):
            raise InvalidModel(f"node {name!r}: its CPD and its edges do not name the same parents", name)
        cpds[node] = cpd
    order = {n: list(cpd.state_names[n]) for n, cpd in cpds.items()}
    tables = {}
    for node, cpd in cpds.items():
        values = np.moveaxis(_align_states(cpd, order, names), 0, -1)
        tables[names[node]] = ([names[p] for p in cpd.variables[1:]], values)
    return {names[n]: tuple(map(str, s)) for n, s in order.items()}, tables


def _unroll_slices(
    network: Any, length: int | None
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[list[str], Table]]]:
    """Return states and tables of a dynamic network over ``length`` slices.

    pgmpy fills in a table that slice 1 lacks with the values of slice 0 under parents in another order
    (1.1.2): such a copy is replaced by the table of slice 0 itself.
    """
    if length is None or length < 1:
        raise InvalidArgument(
            "a DynamicBayesianNetwork does not say how many time slices there are:"
            " quiltdp.io.pgmpy.from_pgmpy(network, length=...) makes the model"
        )
    own: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
    for cpd in network.cpds:
        name, slice_ = cpd.variables[0]
        own[slice_][name] = cpd
    later = dict(own[0]) | {
        name: cpd
        for name, cpd in own[1].items()
        if name not in own[0]
        or isinstance(cpd.variables[0], tuple)
        or not _has_same_values(cpd, own[0][name])
    }
    for node in network.nodes():
        name, slice_ = node
        cpd = (own[0], later)[slice_].get(name)
        drawn = {(p[0], p[1]) for p in network.get_parents(node)}
        if cpd is None or drawn != {(v[0], v[1] - cpd.variables[0][1] + slice_) for v in cpd.variables[1:]}:
            raise InvalidModel(f"node {name!r} has no CPD for slice {slice_} that fits its edges", str(name))
    order = {name: list(cpd.state_names[cpd.variables[0]]) for name, cpd in own[0].items()}
    tables: dict[str, tuple[list[str], Table]] = {}
    for t in range(length):
        for cpd in (later if t else own[0]).values():
            here = cpd.variables[0][1]
            nodes = {v: f"{v[0]}_{t - here + v[1]}" for v in cpd.variables}
            values = _align_states(cpd, {v: order[v[0]] for v in cpd.variables}, nodes)
            child, *parents = nodes.values()
            tables[child] = (parents, np.moveaxis(values, 0, -1))
    return {f"{n}_{t}": tuple(map(str, order[n])) for t in range(length) for n in order}, tables


def _has_same_values(copy: Any, cpd: Any) -> bool:
    """Return whether a table of slice 1 holds the values of slice 0 as they are written."""
    return bool(np.array_equal(copy.values, cpd.values))


def _markov_potentials(
    network: Any, names: Mapping[Any, str]
) -> tuple[dict[str, tuple[str, ...]], list[tuple[list[str], Table]]]:
    """Return states and potentials of a Markov network."""
    order: dict[Any, list[Any]] = {}
    for factor in network.get_factors():
        for n in factor.variables:
            order.setdefault(n, list(factor.state_names[n]))
    for node, name in names.items():
        if node not in order:
            raise InvalidModel(f"node {name!r} is in no factor of the pgmpy network", name)
    states = {name: tuple(map(str, order[node])) for node, name in names.items()}
    return states, [
        ([names[n] for n in f.variables], _align_states(f, order, names)) for f in network.get_factors()
    ]


def _align_states(factor: Any, order: Mapping[Any, list[Any]], names: Mapping[Any, str]) -> Table:
    """Return the values with the states of every axis in one order, which pgmpy does not promise."""
    values = np.asarray(factor.values, dtype=np.float64)
    for axis, node in enumerate(factor.variables):
        here = list(factor.state_names[node])
        if here == order[node]:
            continue
        if sorted(map(str, here)) != sorted(map(str, order[node])) or len(set(here)) != len(here):
            raise InvalidModel(
                f"node {names[node]!r}: one table gives it the states {here}, another {order[node]}",
                names[node],
            )
        values = np.take(values, [here.index(s) for s in order[node]], axis=axis)
    return values
