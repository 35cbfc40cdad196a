"""The layers: which may import which, what `import quiltdp` may load, and that the lists agree."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import quiltdp
from quiltdp import factor

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "quiltdp"

# A module directly under quiltdp/ (errors, model, chain, …) belongs to the base, below all layers.
BASE = "base"
BELOW_THE_EDGES = {BASE, "graph", "inference", "mechanisms", "accountant", "generalization", "holdout"}
MAY_IMPORT = {
    BASE: {BASE},
    "graph": {BASE, "graph"},
    "compiled": {BASE, "compiled"},
    "inference": {BASE, "graph", "compiled", "inference"},
    "mechanisms": {BASE, "mechanisms"},
    "accountant": {BASE, "graph", "compiled", "inference", "mechanisms", "accountant"},
    "generalization": {BASE, "graph", "inference", "mechanisms", "accountant", "generalization"},
    "holdout": {BASE, "mechanisms", "accountant", "holdout"},
    "papers": {BASE, "graph", "inference", "mechanisms", "accountant", "generalization", "papers"},
    "io": {BASE, "io"},
    "domains": {*BELOW_THE_EDGES, "io", "domains"},
    "report": {*BELOW_THE_EDGES, "io", "domains", "report"},
    "server": {*BELOW_THE_EDGES, "server"},
    "cli": {*BELOW_THE_EDGES, "papers", "io", "domains", "report", "server", "cli"},
}
# A mechanism's cost stands below the accountant, the reusable holdout with its ledger above it.
OF_ANOTHER_LAYER = {
    "quiltdp.__main__": "cli",
    "quiltdp.mechanisms.holdout": "holdout",
    "quiltdp.client": "holdout",
}
# The tables of names through which a lower layer reaches a higher one, and which each may reach.
TABLES = {
    "quiltdp.edges": {"report"},
    "quiltdp.interface": {"io"},
    "quiltdp.io.load": {"domains"},
}
BY_NAME = re.compile(r"quiltdp(\.\w+)+(:\w+)?")
HEAVY = (
    "dp_accounting",
    "fastapi",
    "h3",
    "highspy",
    "matplotlib",
    "networkx",
    "numba",
    "opendp",
    "pandas",
    "pgmpy",
    "pyarrow",
    "pyproj",
    "rich",
    "scipy.optimize",
    "scipy.stats",
    "sklearn",
    "sqlalchemy",
)
MAX_LINES = 400  # code lines of a file

# Code lines (no docstrings, comments, blank lines) of every package; C and web assets by their lines that are
# not blank.  They fall, or the change that raises one says what the lines buy.
MOST_CODE_LINES = {
    "C": 447,
    "accountant": 3134,
    "accountant/bounds": 3830,
    "accountant/ledger": 1806,
    "base": 1983,
    "cli": 3909,
    "compiled": 107,
    "domains": 6828,
    "generalization": 1908,
    "graph": 756,
    "inference": 3385,
    "io": 1576,
    "mechanisms": 2751,
    "papers": 1293,
    "report": 1352,
    "server": 1809,
    "web": 570,
}


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    """Return the layer of ``quiltdp.….…``: its package, or the base."""
    if module in OF_ANOTHER_LAYER:
        return OF_ANOTHER_LAYER[module]
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else BASE


def imported_by(path: Path, text: str) -> set[str]:
    """Return every quiltdp module or name a file imports, wherever in it the import stands."""
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if "import_module" in text and BY_NAME.fullmatch(node.value):
                found.add(node.value.partition(":")[0])  # imported later, by its name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            if module == "quiltdp":  # a public name: it counts as the module that holds it
                found.update(quiltdp._PUBLIC.get(a.name, f"quiltdp.{a.name}") for a in node.names)
            else:
                found.add(module)
    return {m for m in found if m == "quiltdp" or m.startswith("quiltdp.")}


def forbidden(path: Path, text: str) -> list[str]:
    """Return the forbidden arrows of a file, in words."""
    mine = layer_of(dotted(path))
    allowed = MAY_IMPORT[mine] | TABLES.get(dotted(path), set())
    return [
        f"{path.relative_to(ROOT)} ({mine}) imports {module} ({layer_of(module)})"
        for module in sorted(imported_by(path, text))
        if layer_of(module) not in allowed
    ]


def test_every_package_is_a_known_layer() -> None:
    packages = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert packages == set(MAY_IMPORT) - {BASE, "holdout"}


@pytest.mark.parametrize("path", sources(), ids=dotted)
def test_no_forbidden_arrow(path: Path) -> None:
    if path == PACKAGE / "__init__.py":  # names of every layer, imported on first use only
        return
    assert not forbidden(path, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("graph/quilts.py", "from quiltdp.inference.spread import spreads"),
        ("graph/quilts.py", "def f():\n    import quiltdp.inference.spread"),
        ("graph/quilts.py", "from ..inference import spread"),
        ("graph/quilts.py", "from quiltdp import leakage"),
        ("inference/spread.py", "from quiltdp.accountant.bounds import base"),
        ("accountant/specs.py", "from quiltdp.mechanisms.holdout import Answer"),
        ("accountant/bounds/mqm_chain.py", "from quiltdp.papers.comparisons import GK16Bound"),
        ("mechanisms/laplace.py", "from quiltdp.accountant.ledger import Ledger"),
        ("mechanisms/laplace.py", "from quiltdp.cli.app import fail"),
        ("io/bif.py", "from quiltdp.graph.moral import moralize"),
        ("report/page.py", "from quiltdp.cli.app import fail"),
        ("model.py", "if TYPE_CHECKING:\n    from quiltdp.graph.types import DependencyGraph"),
        ("graph/quilts.py", "from importlib import import_module\nimport_module('quiltdp.inference.spread')"),
        (
            "graph/quilts.py",
            "import importlib\nX = {'a': 'quiltdp.cli.app:main'}\nimportlib.import_module(X['a'])",
        ),
        ("edges.py", "from importlib import import_module\n_HOMES = {'a': 'quiltdp.accountant.audit'}"),
    ],
)
def test_the_test_sees_forbidden_arrows(place: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(quiltdp._PUBLIC, "leakage", "quiltdp.accountant.bounds")
    assert forbidden(PACKAGE / place, text)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("graph/quilts.py", "from quiltdp.errors import InvalidModel\nimport numpy"),
        ("accountant/specs.py", "from quiltdp.graph.quilts import quilts\nfrom quiltdp import moralize"),
        ("cli/info.py", "import quiltdp as qd\nfrom quiltdp.cli.app import fail"),
        ("edges.py", "from importlib import import_module\n_HOMES = {'a': 'quiltdp.report.plots'}"),
        ("graph/quilts.py", "WORDS = 'quiltdp.inference.spread'  # a name in a text is no import"),
    ],
)
def test_the_test_lets_allowed_arrows_pass(place: str, text: str) -> None:
    assert not forbidden(PACKAGE / place, text)


def loaded_after(code: str) -> set[str]:
    """Return the modules in memory after running some code in a fresh interpreter."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_next_to_nothing() -> None:
    loaded = loaded_after("import quiltdp")
    assert not loaded & {*HEAVY, "numpy", "scipy"}


def test_touching_every_public_name_loads_nothing_heavy() -> None:
    loaded = loaded_after("import quiltdp\nfor n in quiltdp.__all__: getattr(quiltdp, n)")
    assert not loaded & set(HEAVY)


SMALL = """
quiltdp.accountant.approximate quiltdp.accountant.ledger
quiltdp.accountant.noise_attack
quiltdp.accountant.robust quiltdp.accountant.compare quiltdp.accountant.bounds.conditioned
quiltdp.accountant.bounds.coupling quiltdp.accountant.bounds.forward_backward
quiltdp.accountant.bounds.listed_evidence quiltdp.accountant.bounds.worst_evidence
quiltdp.accountant.bounds.mqm_chain
quiltdp.accountant.bounds.approximate 
quiltdp.inference.ancestry quiltdp.inference.brute_force quiltdp.accountant.bounds.sparse_coupling
quiltdp.inference.interaction quiltdp.inference.uncertain
quiltdp.domains.series quiltdp.domains.trace quiltdp.generalization quiltdp.journal quiltdp.mechanisms.cells
quiltdp.mechanisms.holdout quiltdp.mechanisms.queries
quiltdp.io.json_models quiltdp.io.uai quiltdp.io.declared quiltdp.parallel quiltdp.report
networkx pgmpy pandas multiprocessing sqlite3 scipy.stats
"""
UNNEEDED = set(SMALL.split())  # by a small answer: the exact limit settles it


def test_what_a_small_answer_does_not_need_exists() -> None:
    ours = {dotted(p) for p in sources()}
    assert {m for m in UNNEEDED if m.startswith("quiltdp")} <= ours


OTHER_FAMILIES = ("gedcom", "linked", "panel")  # formats and loci that a .fam has not
FAMILY = "f a 0 0 1 -9\nf b 0 0 2 -9\nf c a b 1 -9\n"


def small_answers(folder: Path) -> dict[str, list[str]]:
    """Return the arguments of two small calibrations: a network, and a family of three."""
    family = folder / "trio.fam"
    family.write_text(FAMILY, encoding="utf-8")
    network, larger = (str(ROOT / "models" / name) for name in ("cancer.bif", "asia.bif"))
    ask = ["--epsilon", "1", "--json"]
    return {
        "network": ["calibrate", network, "--sensitivity", "1", *ask],
        "asia": ["calibrate", larger, "--sensitivity", "1", *ask],
        "family": ["calibrate", str(family), "--allele-frequency", "0.1", "--query", "allele-count", *ask],
    }


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        ("network", {"quiltdp.domains"}),
        ("family", {"quiltdp.io.bif", *(f"quiltdp.domains.pedigree.{n}" for n in OTHER_FAMILIES)}),
        pytest.param("asia", {"quiltdp.domains"}, marks=pytest.mark.slow),
    ],
)
def test_a_small_answer_loads_nothing_that_it_does_not_need(
    kind: str, others: set[str], tmp_path: Path
) -> None:
    command = small_answers(tmp_path)[kind]
    code = f"from quiltdp.cli.app import main\ntry:\n    main({command!r})\nexcept SystemExit:\n    pass"
    assert not loaded_after(code) & (UNNEEDED | others)


@pytest.mark.parametrize("name", ["two_families.json", "location_chain.json"])
def test_no_answer_loads_masked_arrays(name: str) -> None:
    """``np.unique`` of an array alone does, for a hundredth of a second."""
    command = ["calibrate", str(ROOT / "models" / name), "--epsilon", "1", "--json"]
    code = f"from quiltdp.cli.app import main\ntry:\n    main({command!r})\nexcept SystemExit:\n    pass"
    assert "numpy.ma" not in loaded_after(code)


@pytest.mark.parametrize("kind", ["network", "family", pytest.param("asia", marks=pytest.mark.slow)])
def test_a_small_answer_does_nothing_twice(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One model, one moral graph, one list of components; every table is checked once."""
    from quiltdp.cli.app import main
    from quiltdp.graph import components, moral
    from quiltdp.inference import sums, tables, trees

    with pytest.raises(SystemExit):
        main(small_answers(tmp_path)[kind])  # what is imported meanwhile is not to hold a counter
    capsys.readouterr()
    done: Counter[str] = Counter()

    def counted(owner: object, name: str, label: str) -> None:
        original = getattr(owner, name)

        def count(*given: object, **named: object) -> object:
            done[label] += 1
            return original(*given, **named)

        places = [owner]
        if isinstance(owner, ModuleType):  # wherever it was imported to
            loaded = [m for n, m in sys.modules.items() if n.startswith("quiltdp")]
            places = [m for m in loaded if vars(m).get(name) is original]
        for place in places:
            monkeypatch.setattr(place, name, count)

    counted(quiltdp.Model, "__init__", "model")
    counted(moral, "moralize", "moral graph")
    counted(components, "component_classes", "components")
    counted(components.FactorGraph, "__init__", "factor graph")
    counted(tables.FactorTables, "__init__", "logarithms")
    counted(factor, "frozen_table", "tables")
    counted(trees.JunctionTree, "__init__", "junction trees")
    counted(sums.WeightedSums, "__init__", "attacks")
    with pytest.raises(SystemExit):
        main(small_answers(tmp_path)[kind])
    assert json.loads(capsys.readouterr().out)["sigma"] > 0
    distinct = {"network": 5, "family": 2, "asia": 8}[
        kind
    ]  # people have one of two tables: founders, children
    assert done.pop("tables") == distinct
    # the bound's, that of the attack which checks it (not for one query by its values), and that of what
    # zeros leave possible
    assert done.pop("junction trees") == 2 + (kind == "asia")
    attacked = [] if kind == "family" else ["attacks"]
    assert done == Counter(["model", "moral graph", "components", "factor graph", "logarithms", *attacked])


def type_checking_names() -> dict[str, str]:
    """Return name -> module of the imports under TYPE_CHECKING in quiltdp/__init__.py."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {
        alias.asname or alias.name: str(node.module)
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_three_lists_of_public_names_agree() -> None:
    assert type_checking_names() == quiltdp._PUBLIC
    assert set(quiltdp.__all__) == {*quiltdp._PUBLIC, "__version__"}
    assert len(quiltdp.__all__) == len(set(quiltdp.__all__))
    assert list(quiltdp._HOMES) == sorted(quiltdp._HOMES)
    for name in quiltdp.__all__:
        assert getattr(quiltdp, name) is not None


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = quiltdp.nonsense
    assert set(quiltdp.__all__) <= set(dir(quiltdp))


def code_lines(text: str) -> int:
    """Count the lines of a Python file that hold code: neither docstring nor comment nor blank."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (
            tokenize.COMMENT,
            tokenize.NL,
            tokenize.NEWLINE,
            tokenize.INDENT,
            tokenize.DEDENT,
        ):
            code.update(range(token.start[0], token.end[0] + 1) if token.string else ())
    for node in ast.walk(ast.parse(text)):
        for part in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(part, ast.Expr) and isinstance(getattr(part.value, "value", None), str):
                code.difference_update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return len(code)


def package_lines() -> Counter[str]:
    """Return the code lines of every package, C and the assets of pages apart."""
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*"):
        kind = path.suffix
        if kind in (".c", ".h", ".js", ".html", ".css") and ".min." not in path.name:
            text = path.read_text(encoding="utf-8").splitlines()
            if max(map(len, text), default=0) <= 2000:  # else a bundle of somebody else's
                lines["C" if kind in (".c", ".h") else "web"] += sum(bool(line.strip()) for line in text)
        elif kind == ".py":
            inner = path.relative_to(PACKAGE).parts[:-1]
            room = "/".join(inner[:2]) if inner[:1] == ("accountant",) else inner[0] if inner else BASE
            lines[room] += code_lines(path.read_text(encoding="utf-8"))
    return lines


def test_no_package_grows_unnoticed() -> None:
    now = package_lines()
    assert set(now) == set(MOST_CODE_LINES)
    grown = {room: now[room] for room, most in MOST_CODE_LINES.items() if now[room] > most}
    assert not grown, "these packages grew: say in the commit what the lines buy, and raise MOST_CODE_LINES"
    slack = {room: now[room] for room, most in MOST_CODE_LINES.items() if now[room] < 0.97 * most - 10}
    assert not slack, "these packages are smaller now: lower MOST_CODE_LINES, so that they stay so"


def test_code_lines_are_counted_as_code() -> None:
    text = (
        '"""Doc."""\n\n# why\nx = 1  # one\n\ndef f():\n    """Doc\n    doc."""\n    return (\n        x)\n'
    )
    assert code_lines(text) == 4


@pytest.mark.parametrize("path", sources(), ids=dotted)
def test_a_file_has_one_subject(path: Path) -> None:
    assert code_lines(path.read_text(encoding="utf-8")) <= MAX_LINES


def named_in_tests() -> set[str]:
    """Return the modules that a test names: by import, by a public name, or by the name of its file."""
    files = list((ROOT / "tests").rglob("*.py"))
    text = "\n".join(p.read_text(encoding="utf-8") for p in files if p != Path(__file__))
    public = {a or b for a, b in re.findall(r"\bqd\.(\w+)|\bquiltdp\.(\w+)", text)}
    for line in re.findall(r"from quiltdp import \(?([^)\n]*(?:\n[^)]*)?)", text):
        public.update(re.findall(r"\w+", line))
    found = {module for name, module in quiltdp._PUBLIC.items() if name in public}
    stems = {p.stem for p in files}
    for path in sources():
        module = dotted(path)
        package, _, leaf = module.rpartition(".")
        imported = rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{leaf}\b"
        if f"test_{leaf}" in stems or re.search(imported, text):
            found.add(module)
    return found


def test_every_module_is_named_by_a_test() -> None:
    modules = {dotted(p) for p in sources() if p.name not in ("__init__.py", "__main__.py")}
    assert not modules - named_in_tests()


def counts_in(path: Path) -> list[str]:
    """Return the names in capitals that a module gives to whole numbers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = [(n.targets[0], n.value) for n in tree.body if isinstance(n, ast.Assign)]
    named += [(n.target, n.value) for n in tree.body if isinstance(n, ast.AnnAssign) and n.value is not None]
    found = []
    for target, value in named:
        numbers = [n.value for n in ast.walk(value) if isinstance(n, ast.Constant)]
        whole = bool(numbers) and all(isinstance(n, int) for n in numbers)
        if isinstance(target, ast.Name) and target.id.isupper() and whole:
            found.append(target.id)
    return found


@pytest.mark.parametrize("path", sorted((PACKAGE / "inference").glob("*.py")), ids=dotted)
def test_thresholds_of_inference_stand_in_its_plan(path: Path) -> None:
    assert bool(counts_in(path)) == (path.stem == "plan")


THEOREMS = PACKAGE / "accountant" / "bounds"


@pytest.mark.parametrize("path", sorted(THEOREMS.glob("*.py")), ids=dotted)
def test_a_theorem_says_what_it_assumes_what_it_costs_and_where_it_stands(path: Path) -> None:
    if path.stem in ("__init__", "contract", "table"):
        return
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    for word in ("Assumes", "Cost", "Reference"):
        assert word in text, word
