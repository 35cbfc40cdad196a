"""What public functions take: any description of a model, and for one version their old keywords.

Public functions that take a model are decorated with :func:`any_model`: their first argument may be a
:class:`~quiltdp.model.Model`, a pgmpy network, a networkx DiGraph with tables, or the path of a file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from quiltdp.errors import InvalidArgument
from quiltdp.model import Model, suggest_names

_Rest = ParamSpec("_Rest")
_Result = TypeVar("_Result")

# Who makes a model of an object, by the package that its class (or a base of it) comes from.
_READERS = {"pgmpy": "quiltdp.io.pgmpy:from_pgmpy", "networkx": "quiltdp.io.networkx:from_networkx"}


def as_model(thing: Any) -> Model:
    """Return the model of a pgmpy network, a networkx DiGraph with tables, or a file; a model as it is.

    Raises
    ------
    InvalidArgument
        If it is none of them, naming what to call.

    Examples
    --------
    >>> as_model("models/asia.bif")
    <Bayesian network: 8 nodes, 8 records>
    """
    if isinstance(thing, Model):
        return thing
    if isinstance(thing, (str, os.PathLike)):
        return _call_reader("quiltdp.io.load:load_model", thing)
    packages = [base.__module__.partition(".")[0] for base in type(thing).__mro__]
    for package, reader in _READERS.items():
        if package in packages:
            return _call_reader(reader, thing)
    if "pandas" in packages:
        raise InvalidArgument(
            "a DataFrame is data, not a model: fit_chain(frame[column]), fit_network(frame) or"
            " fit_rows(frame, ...) makes one of past data"
        )
    raise InvalidArgument(
        f"a model is needed, not {type(thing).__name__}: a quiltdp Model (load_model, markov_chain,"
        " Model.from_tables), a pgmpy network, a networkx DiGraph with tables, or the path of a file"
    )


def _call_reader(name: str, thing: Any) -> Model:
    module, _, function = name.partition(":")
    made: Model = getattr(import_module(module), function)(thing)
    return made


def any_model(
    function: Callable[Concatenate[Model, _Rest], _Result],
) -> Callable[Concatenate[Any, _Rest], _Result]:
    """Let a function of a model take anything that :func:`as_model` understands; name unknown options."""

    @wraps(function)
    def with_model(*args: Any, **options: Any) -> _Result:
        known = _option_names(function)
        unknown = next((name for name in options if known and name not in known), None)
        if unknown is not None:
            raise TypeError(f"{function.__name__}() has no option {unknown!r}{suggest_names(unknown, known)}")
        if args:
            return function(as_model(args[0]), *args[1:], **options)
        if "model" in options:
            options["model"] = as_model(options["model"])
        return function(**options)  # type: ignore[call-arg]  # the model is among them, or missing

    return with_model


@cache
def _option_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters of a function whose further options a ``TypedDict`` lists; of others nothing."""
    parameters = signature(function).parameters
    further = str([*parameters.values()][-1].annotation)
    if not further.startswith("Unpack["):
        return ()
    return (*parameters, *function.__globals__[further[7:-1]].__annotations__)


def old_keyword(old: str, new: str) -> Callable[[Callable[_Rest, _Result]], Callable[_Rest, _Result]]:
    """Let a function take a keyword by its old name, with a warning that says the new one."""

    def decorate(function: Callable[_Rest, _Result]) -> Callable[_Rest, _Result]:
        @wraps(function)
        def with_new_keyword(*args: _Rest.args, **options: _Rest.kwargs) -> _Result:
            if old in options:
                warnings.warn(f"{old}= is now {new}=", FutureWarning, stacklevel=2)
                options[new] = options.pop(old)
            return function(*args, **options)

        return with_new_keyword

    return decorate
