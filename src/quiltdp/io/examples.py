"""Small models that come with the package, so that first lines run anywhere."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from quiltdp.errors import InvalidArgument
from quiltdp.io.load import load_model
from quiltdp.model import Model

EXAMPLES = {
    "alarm": "alarm.bif",
    "asia": "asia.bif",
    "cancer": "cancer.bif",
    "child": "child.bif",
    "location_chain": "location_chain.json",
    "two_families": "two_families.json",
}


def example(name: str) -> Model:
    """Return a small model that comes with the package.

    Raises
    ------
    InvalidArgument
        If there is none of that name, listing those there are.

    Examples
    --------
    >>> import quiltdp as qd
    >>> qd.example("asia")
    <Bayesian network: 8 nodes, 8 records>
    """
    if name not in EXAMPLES:
        raise InvalidArgument(f"there is no example {name!r}; there are {', '.join(EXAMPLES)}")
    inside = Path(str(files("quiltdp").joinpath("examples", EXAMPLES[name])))
    checkout = (
        Path(__file__).parents[3] / "models" / EXAMPLES[name]
    )  # a wheel has copies, a checkout the files
    return load_model(inside if inside.is_file() else checkout)
