"""docs/papers.md: every numbered statement is there, and what it points to exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from quiltdp.accountant.methods import available_methods
from quiltdp.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
STATEMENTS = {
    "Zhao (2017)": [
        *("(1)", "(2)", "(3)–(4)", "Markov blanket", "Markov quilt", "Figure 1", "(5)–(6)", "Algorithm 1"),
        *("Theorem 1", "Theorem 2", "Theorem 3", "Figure 2", "Figure 3"),
        *(f"Lemma {k}" for k in range(1, 7)),
    ],
    "Wang, Lei and Fienberg (2016)": [
        *("Definition 1", "Definition 2", "Definition 3", "Theorem 4", "Remark 1", "Remark 2", "Remark 3"),
        *("Lemma 5", "Lemma 6", "Lemma 7", "Definition 8", "Theorem 9", "Definition 10", "Lemma 11"),
        *("Corollary 12", "Definition 13", "Lemma 14", "Corollary 15", "Table 1", "Figure 1", "Figure 2"),
    ],
    "Lecture": [
        *("Algorithm 1", "Theorem 0.1", "Theorem 0.2", "Algorithm 2", "Claim 0.3", "Lemma 0.4"),
        *("Definition 0.5", "Lemma 0.6"),
    ],
    "Bassily and Freund (2016)": [
        *("Definition 2.1", "Definition 2.2", "Definition 2.3", "Lemma 2.4", "Lemma 2.5", "§2.2"),
        *("Lemma 2.6", "Theorem 2.7", "Figure 1", "Definition 3.1", "Theorem 3.2", "Lemma 3.3"),
        *("Theorem 3.4", "Lemma 3.5", "Lemma 3.6", "Lemma 3.7", "Theorem 3.8", "Figure 2", "Theorem 4.1"),
        *("Theorem 4.2", "Figure 3", "Theorem 4.3", "Theorem 4.4"),
    ],
    "Rogers, Roth, Smith and Thakkar (2016)": [
        *("Definition 1.1", "Definition 1.2", "Theorem 1.3", "Theorem 1.4", "Lemma 1.5", "Corollary 1.6"),
        *("Definition 2.1", "Definition 2.2", "Definition 2.3", "Theorem 3.1", "Lemma 3.2", "Claim 3.3"),
        *("Claim 3.4", "Claim 3.5", "Claim 3.6", "Lemma 3.7", "Lemma 3.8", "Theorem 3.9", "Corollary 3.10"),
        *("Definition 3.11", "Definition 3.12", "Theorem 3.13", "Definition 3.14", "Lemma 3.15"),
        *("Definition 3.16", "Algorithm 1", "Algorithm 2", "Lemma 3.17", "Theorem A.1", "Theorem A.2"),
        *("Theorem A.3", "Definition A.4", "Definition A.5", "Lemma A.6", "Lemma A.7", "Theorem A.8"),
        *("Theorem A.9", "Lemma B.1", "Theorem B.2", "Theorem C.1", "Corollary C.2", "Theorem C.3"),
        "Theorem D.1",
    ],
}
CITED = {  # how docstrings name the papers -> their heading on the page
    r"Zhao \(2017\)": "Zhao (2017)",
    r"Wang, Lei and Fienberg \(2016\)": "Wang, Lei and Fienberg (2016)",
    r"Lecture on the transfer theorem": "Lecture",
    r"Bassily and Freund \(2016\)": "Bassily and Freund (2016)",
    r"Rogers et al\. \(2016\)": "Rogers, Roth, Smith and Thakkar (2016)",
}


def tables() -> dict[str, list[list[str]]]:
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        title, body = section.split("\n", 1)
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in body.splitlines() if line.startswith("|")]
        key = next(k for k in STATEMENTS if title.startswith(k))
        found[key] = [[cell.strip() for cell in row] for row in rows[2:]]
    return found


def rows() -> list[tuple[str, list[str]]]:
    return [(paper, row) for paper, listed in tables().items() for row in listed]


@pytest.mark.parametrize("paper", STATEMENTS)
def test_every_statement_is_there_once(paper: str) -> None:
    assert [row[0] for row in tables()[paper]] == STATEMENTS[paper]


@pytest.mark.parametrize(("paper", "row"), rows(), ids=[f"{p[:6]}-{r[0]}" for p, r in rows()])
def test_what_a_row_points_to_exists(paper: str, row: list[str]) -> None:
    assert len(row) == 6
    assert row[5], "printed or repaired?"
    for name in re.findall(r"`([^`]+)`", row[2]):
        assert exists(name), name
    tests = re.findall(r"`([^`]+)`", row[4])
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        file = ROOT / "tests" / path
        assert file.exists(), test
        if function:
            assert re.search(rf"^def {function}\b", file.read_text(encoding="utf-8"), re.MULTILINE), test


@pytest.mark.parametrize(("paper", "row"), rows(), ids=[f"{p[:6]}-{r[0]}" for p, r in rows()])
def test_what_reaches_a_statement_can_be_called(paper: str, row: list[str]) -> None:
    """A command that exists, a name that imports, a script or a page; only steps of proofs have nothing."""
    if row[3] == "–":
        assert row[2] == "–"
        return
    for page in re.findall(r"\]\(([^)]+)\)", row[3]):
        assert (ROOT / "docs" / page).exists(), page
    for name in re.findall(r"`([^`]+)`", row[3]):
        if name.startswith("quiltdp "):
            assert name.split()[1] in COMMANDS, name
        elif name.startswith("python "):
            assert (ROOT / name.split()[1]).exists(), name
        else:
            assert exists(name), name


def exists(name: str) -> bool:
    """Return whether this is a name of the package, a method of the accountant, an option or a file."""
    if name.startswith("benchmarks/"):
        return (ROOT / name).exists()
    if "=" in name or name in available_methods("informed"):
        return True
    homes = [""] if name.startswith("quiltdp.") else ["quiltdp.papers.", "quiltdp.generalization."]
    return any(imports(home + name) for home in homes)


def imports(dotted: str) -> bool:
    """Return whether a dotted name is there: the longest module that imports, then its attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_citations_name_statements_that_exist() -> None:
    """Every "Author (year), Theorem X" in the package is a numbered statement of that paper."""
    kind = "Theorem|Lemma|Corollary|Definition|Claim|Algorithm|Figure|Remark|Table"
    kinds = rf"(?:{kind}) [A-D]?\.?\d+(?:\.\d+)?"
    figures = {"Algorithm 2": "Figure 2", "Algorithm 3": "Figure 3"}  # Bassily and Freund draw them
    wrong = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for author, paper in CITED.items():
            for match in re.finditer(rf"{author},? ((?:(?!\. [A-Z]|;|\"\"\").)*)", text):
                for cited in re.findall(kinds, match[1][:120]):
                    if not {cited, figures.get(cited)} & set(STATEMENTS[paper]):
                        wrong.append((path.name, paper, cited))
    assert not wrong
