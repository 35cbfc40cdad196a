"""Every reader against broken files: no traceback, no hang, no memory blow-up.

    python benchmarks/fuzz.py --inputs 20000 --seed 1        a long run, with a table at its end
    python benchmarks/fuzz.py --minutes 60 --state fuzz.json an hour of processor time, in any number of runs
    python benchmarks/fuzz.py --replay net 4711              one input again, with its traceback

An input is a valid file that was mutated (bytes flipped, pieces cut, doubled, moved or spliced, numbers
and names replaced by hostile ones, other encodings, compressed and then broken), or structured garbage in
the words of the format.  Each is read in a process of its own kind: a reader must return, or refuse with
one of the library's own errors in a single line, within ``SECONDS`` of processor time and ``MEMORY``.
Input k of a reader depends on its name, the seed and k alone.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import math
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz_examples import (
    AFREQ,
    BAYES,
    CELLS,
    CHAIN,
    FAM,
    FRQ,
    GED,
    GEOJSON,
    GOOGLE,
    GPX,
    HOSTILE,
    LINKAGE,
    MARKOV,
    MOVING,
    NET,
    NETWORK,
    PED,
    PLT,
    POINTS,
    SERIES,
    STUDY,
    TABLE,
    VCF,
    XDSL,
    XMLBIF,
)

import quiltdp as qd
from quiltdp.errors import QuiltdpError
from quiltdp.printable import printable

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 20.0
ROUND = 50
MEMORY = 1 << 30
LONGEST_MESSAGE = 1_600


@dataclass(frozen=True)
class Reader:
    """A reader under test: the suffix of its files, valid examples, and how it is called."""

    name: str
    suffix: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], Any]


def _model(path: Path) -> Any:
    model = qd.load_model(path)
    return model.fingerprint if len(model.nodes) < 100_000 else len(model.nodes)


def _family(path: Path) -> Any:
    return qd.load_model(path, allele_frequency=0.1).fingerprint


def _points(path: Path) -> Any:
    from quiltdp.domains.trace import read_points

    return len(read_points(path))


def _study(path: Path) -> Any:
    from quiltdp.domains.pedigree.people import read_ids

    return read_ids(path)


def _panel(path: Path) -> Any:
    from quiltdp.domains.pedigree.frequencies import read_frequencies

    return len(read_frequencies(path))


def _calibration(path: Path) -> Any:
    from quiltdp.cli.holdout import read_calibration

    return read_calibration(path)


def _plan(path: Path) -> Any:
    from quiltdp.cli.holdout import read_terms

    return read_terms(path, None, None, 0.05, None)


def _ledger(path: Path) -> Any:
    """Open, walk, show and charge an account; what was refused must not have been charged."""
    Path(f"{path}-journal").unlink(missing_ok=True)
    ledger = qd.Ledger.open(path)
    ledger.export()
    ledger.odometer()
    before = ledger.verify().spent
    if before < 1:
        ledger.charge(ledger.terms.dp_epsilon, count=1) if before == 0 else None
    return ledger.verify().spent


def _export(path: Path) -> Any:
    from quiltdp.cli.ledger import _verify_export

    return _verify_export(path)


def _anchor(path: Path) -> Any:
    from quiltdp.accountant.ledger.anchor import Anchor

    return Anchor(path).read()


def _holdout_table(path: Path) -> Any:
    from quiltdp.cli.holdout import read_columns
    from quiltdp.mechanisms.rows import data_identity

    return data_identity(read_columns(path))


def _series(path: Path) -> Any:
    from quiltdp.domains.series.read import read_columns

    return len(read_columns(path))


def _genotypes(path: Path) -> Any:
    from quiltdp.domains.pedigree import read_pedigree
    from quiltdp.domains.pedigree.frequencies import read_frequencies
    from quiltdp.domains.pedigree.genotypes import count_genotypes

    folder = path.parent
    (folder / "family.fam").write_text(FAM)
    (folder / "panel.txt").write_text("rs1 0.1\nrs2 0.2\n")
    family = read_pedigree(folder / "family.fam")
    panel = read_frequencies(folder / "panel.txt")
    return count_genotypes(path, panel, family, ["dad", "mum", "kid"])


def _accounts(calibration: Any) -> dict[str, bytes]:
    """Return a ledger with two entries, its export and its anchor, and a plan."""
    with tempfile.TemporaryDirectory() as folder:
        path, anchor = Path(folder, "study.db"), Path(folder, "anchor")
        plain = qd.Ledger.create(path, calibration)
        plain.charge(calibration.dp_epsilon / 4, label="first")
        plain.charge(calibration.dp_epsilon / 4, key="again")
        export = json.dumps(plain.export())
        plain.close()
        other = qd.Ledger.create(Path(folder, "other.db"), calibration, anchor=anchor)
        other.close()
        return {"ledger": path.read_bytes(), "export": export.encode(), "anchor": anchor.read_bytes()}


def _plans() -> bytes:
    """Return what ``quiltdp plan … --json`` prints for a chain."""
    from quiltdp.cli import main as command

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        model = Path(folder, "chain.json")
        qd.save_model(qd.markov_chain([[0.6, 0.4], [0.4, 0.6]], length=100_000), model)
        with contextlib.suppress(SystemExit):
            command(["plan", str(model), "--budget", "5", "--queries", "200", "--epsilon", "8", "--json"])
    return said.getvalue().encode()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"lat": [47.1, 47.2], "lon": [8.1, 8.2], "time": ["2020-01-01T00:00:00Z"] * 2})
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue().to_pybytes())


def _shipped(*names: str) -> tuple[bytes, ...]:
    return tuple((ROOT / name).read_bytes() for name in names)


@cache
def readers() -> dict[str, Reader]:
    """Return every reader by name."""
    cancer = qd.load_model(ROOT / "models/cancer.bif")
    calibration = qd.calibrate(cancer, 1.0, qd.Laplace(1.0))
    accounts = _accounts(calibration)
    made = [
        Reader("bif", ".bif", _shipped("models/cancer.bif", "models/asia.bif", "models/survey.bif"), _model),
        Reader("bif.gz", ".bif.gz", tuple(map(gzip.compress, _shipped("models/cancer.bif"))), _model),
        Reader("json", ".json", _texts(CHAIN, NETWORK) + _shipped("models/two_families.json"), _model),
        Reader("uai", ".uai", _texts(MARKOV, BAYES), _model),
        Reader("net", ".net", _texts(NET), _model),
        Reader("xmlbif", ".xmlbif", _texts(XMLBIF), _model),
        Reader("xdsl", ".xdsl", _texts(XDSL), _model),
        Reader("fam", ".fam", _texts(FAM) + _shipped("models/pedigree/ceph1463.fam"), _family),
        Reader("ped", ".ped", _texts(PED, FAM), _family),
        Reader(
            "psam",
            ".psam",
            _texts(
                "#FID IID PAT MAT SEX\n" + FAM.replace(" -9", "").replace(" 1 2", " 1").replace(" 2 1", " 2")
            ),
            _family,
        ),
        Reader("linkage", ".dat", _texts(LINKAGE), _family),
        Reader("family table", ".csv", _texts(TABLE), _family),
        Reader("gedcom", ".ged", _texts(GED), _family),
        Reader("study ids", ".txt", _texts(STUDY), _study),
        Reader("frequencies", ".txt", _texts(AFREQ, FRQ, VCF, "rs1 0.1\nrs2 0.2\n"), _panel),
        Reader("points", ".csv", _texts(POINTS), _points),
        Reader("plt", ".plt", _texts(PLT), _points),
        Reader("gpx", ".gpx", _texts(GPX), _points),
        Reader("geojson", ".geojson", _texts(GEOJSON, MOVING, GOOGLE), _points),
        Reader("parquet", ".parquet", (_parquet(),), _points),
        Reader("genotypes", ".vcf", _texts(VCF), _genotypes),
        Reader("holdout table", ".csv", _texts(CELLS), _holdout_table),
        Reader("series", ".csv", _texts(SERIES), _series),
        Reader("calibration", ".json", _texts(calibration.to_json()), _calibration),
        Reader("plan", ".json", (_plans(),), _plan),
        Reader("ledger", ".db", (accounts["ledger"],), _ledger),
        Reader("exported ledger", ".json", (accounts["export"],), _export),
        Reader("anchor", ".json", (accounts["anchor"],), _anchor),
    ]
    return {reader.name: reader for reader in made}


def _texts(*texts: str) -> tuple[bytes, ...]:
    return tuple(text.encode() for text in texts)


# -- inputs ------------------------------------------------------------------------------------------


def make_input(reader: Reader, seed: int, number: int) -> bytes:
    """Return input ``number`` of a reader: a mutated example, or garbage in its words."""
    dice = random.Random(f"{reader.name}/{seed}/{number}")
    data = dice.choice(reader.seeds)
    if dice.random() < 0.15:
        data = _garbage(dice, reader.seeds)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 6, 12))):
        data = dice.choice(_MUTATORS)(dice, data, reader.seeds)
        if len(data) > 2_000_000:
            data = data[:2_000_000]
    return data


def _garbage(dice: random.Random, seeds: Sequence[bytes]) -> bytes:
    words = dice.choice(seeds).decode("latin-1").replace("\n", " \n ").split(" ")
    chosen = [
        dice.choice(words) if dice.random() < 0.8 else dice.choice(HOSTILE)
        for _ in range(dice.randint(0, 300))
    ]
    return dice.choice((" ", "", "\n", ",")).join(chosen).encode("utf-8", "replace")


def _cut(dice: random.Random, data: bytes) -> tuple[int, int]:
    a = dice.randint(0, len(data))
    return a, min(len(data), a + dice.choice((1, 2, 5, 20, 100, 1000)))


def _flip(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _k in range(dice.choice((1, 3, 10))):
        if changed:
            changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def _drop(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a, b = _cut(dice, data)
    return data[:a] + data[b:]


def _truncate(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: dice.randint(0, len(data))]


def _repeat(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a, b = _cut(dice, data)
    return data[:b] + data[a:b] * dice.choice((1, 2, 10, 1000, 20_000 if b - a < 100 else 5)) + data[b:]


def _splice(dice: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = dice.choice(seeds)
    return data[: dice.randint(0, len(data))] + other[dice.randint(0, len(other)) :]


def _insert(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a = dice.randint(0, len(data))
    word = dice.choice(HOSTILE).encode("utf-8", "replace") * dice.choice((1, 1, 1, 50, 5000))
    return data[:a] + word + data[a:]


def _word(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Replace one word or number by a hostile one or by another word of the file."""
    import re

    words = [m.span() for m in re.finditer(rb"[\w.+-]+", data[:20_000])]
    if not words:
        return data
    a, b = dice.choice(words)
    c, d = dice.choice(words)
    new = data[c:d] if dice.random() < 0.4 else dice.choice(HOSTILE).encode("utf-8", "replace")
    return data[:a] + new + data[b:]


def _lines(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    a, b = dice.randrange(len(lines)), dice.randrange(len(lines))
    kind = dice.randrange(3)
    if kind == 0:
        lines[a], lines[b] = lines[b], lines[a]
    elif kind == 1:
        del lines[a]
    else:
        lines[a:a] = [lines[b]] * dice.choice((1, 2, 500 if len(lines[b]) < 4_000 else 3))
    return b"\n".join(lines)


def _encode(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    kind = dice.randrange(6)
    if kind < 3:
        return data.decode("latin-1").encode(("utf-16", "utf-16-be", "utf-32")[kind])
    if kind == 3:
        return b"\xef\xbb\xbf" + data
    if kind == 4:
        return data.replace(b"\n", b"\r\n")
    return gzip.compress(data)[: None if dice.random() < 0.5 else dice.randint(0, 200)]


def _nest(dice: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    a = dice.randint(0, len(data))
    mark = dice.choice((b"[", b"{", b"(", b"<a>", b'{"a":', b"/*", b'"', b"\\"))
    return data[:a] + mark * dice.choice((10, 1000, 100_000)) + data[a:]


_MUTATORS = (
    _flip,
    _drop,
    _truncate,
    _repeat,
    _splice,
    _insert,
    _insert,
    _word,
    _word,
    _word,
    _lines,
    _encode,
    _nest,
)


# -- judging -----------------------------------------------------------------------------------------


class _TooSlow(BaseException):
    """The alarm rang."""


def _ring(_: int, __: FrameType | None) -> None:
    raise _TooSlow


def judge(reader: Reader, path: Path) -> str:
    """Return ``read``, ``refused``, or what went wrong with the traceback's last lines."""
    signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor: a busy machine is not a hang
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except QuiltdpError as error:
        said = str(error)
        wrong = "\n" in said.strip() or len(said) > LONGEST_MESSAGE or printable(said) != said
        return f"message: {said[:200]!r}" if wrong else "refused"
    except _TooSlow:
        return "slow"
    except MemoryError:
        return "memory"
    except BaseException:
        return "traceback: " + " ← ".join(traceback.format_exc().strip().splitlines()[-1:-7:-1])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return "read"


def little_memory() -> None:
    """Allow this process ``MEMORY`` more address space than it has now, where the system counts it."""
    status = Path("/proc/self/statm")
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


@dataclass
class Tally:
    """What happened to the inputs of one reader."""

    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    failures: list[tuple[int, str]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many inputs were read or refused, or went wrong."""
        return sum(self.outcomes.values())

    def add(self, other: Tally) -> None:
        """Take another run's numbers in."""
        self.outcomes += other.outcomes
        self.slowest = max(self.slowest, other.slowest)
        self.failures += other.failures


def run(reader: Reader, seed: int, numbers: Iterator[int], folder: Path) -> Tally:
    """Read inputs until ``numbers`` ends."""
    tally = Tally()
    path = folder / f"input{reader.suffix}"
    for number in numbers:
        path.write_bytes(make_input(reader, seed, number))
        began = time.process_time()
        said = judge(reader, path)
        tally.slowest = max(tally.slowest, time.process_time() - began)
        tally.outcomes[said if said in ("read", "refused") else said.split(":")[0]] += 1
        if said not in ("read", "refused"):
            tally.failures.append((number, said))
    return tally


@dataclass
class Campaign:
    """A run over all readers, in rounds, so that one that is stopped early has been fair to each."""

    seed: int
    tallies: dict[str, Tally]
    next: int = 0
    processor: float = 0.0

    @classmethod
    def kept(cls, state: Path | None, seed: int, names: Sequence[str]) -> Campaign:
        """Return the campaign that ``state`` holds, or a new one."""
        new = cls(seed, {name: Tally() for name in names})
        if state is None or not state.exists():
            return new
        held = json.loads(state.read_text(encoding="utf-8"))
        if (held["seed"], list(held["tallies"])) != (seed, list(names)):
            sys.exit(f"{state} is of another seed or other readers")
        new.next, new.processor = held["next"], held["processor"]
        for name, (outcomes, slowest, failures) in held["tallies"].items():
            new.tallies[name] = Tally(Counter(outcomes), slowest, [(k, said) for k, said in failures])
        return new

    def keep(self, state: Path) -> None:
        """Write the campaign down, whole or not at all."""
        tallies = {name: (t.outcomes, t.slowest, t.failures) for name, t in self.tallies.items()}
        new = state.with_name(state.name + ".new")
        held = {"seed": self.seed, "next": self.next, "processor": self.processor, "tallies": tallies}
        new.write_text(json.dumps(held), encoding="utf-8")
        new.replace(state)

    def go(self, chosen: Sequence[Reader], inputs: int, seconds: float, state: Path | None = None) -> None:
        """Read until so many inputs, altogether, or so much processor time, or the last round."""
        each = -(-inputs // len(chosen))
        with tempfile.TemporaryDirectory() as folder:
            while self.next < each and self.processor < seconds:
                began = time.process_time()
                numbers = range(self.next, min(self.next + ROUND, each))
                for reader in chosen:
                    self.tallies[reader.name].add(run(reader, self.seed, iter(numbers), Path(folder)))
                self.next = numbers.stop
                self.processor += time.process_time() - began
                if state is not None:
                    self.keep(state)


def page(campaign: Campaign) -> str:
    """Return docs/benchmarks/fuzz.md."""
    tallies = campaign.tallies
    lines = ["| reader | inputs | read | refused | failed | slowest (s) |", "|---|---|---|---|---|---|"]
    failures = []
    for name, tally in tallies.items():
        count, good, refused = tally.count, tally.outcomes["read"], tally.outcomes["refused"]
        lines.append(
            f"| {name} | {count:,} | {good:,} | {refused:,} | {count - good - refused} |"
            f" {tally.slowest:.1f} |"
        )
        failures += [f"- {name} {number}: {said}" for number, said in tally.failures[:20]]
    total = sum(tally.count for tally in tallies.values())
    wrong = sum(len(tally.failures) for tally in tallies.values())
    text = (
        "# Broken files\n\n"
        "Every reader against mutated files and structured garbage: it must return, or refuse in one\n"
        f"printable line, within {SECONDS:g} s of processor time and 1 GiB of memory. `make fuzz` runs it;"
        " `make test` runs 40 inputs each.\n\n"
        f"{total:,} inputs, {campaign.processor / 60:,.1f} minutes of processor time, seed {campaign.seed}:"
        f" **{wrong} failures**.\n\n"
    )
    return text + "\n".join([*lines, *([""] if failures else []), *failures]) + "\n"


def main() -> None:
    """Run, print the table and write docs/benchmarks/fuzz.md."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--inputs", type=int, default=2_000, help="how many altogether")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--minutes", type=float, default=math.inf, help="of processor time")
    options.add_argument("--state", type=Path, help="keep the campaign here and go on where it stopped")
    options.add_argument("--only", nargs="*", help="readers by name")
    options.add_argument("--docs", type=Path, help="write the page here")
    options.add_argument("--replay", nargs=2, metavar=("READER", "NUMBER"))
    given = options.parse_args()
    known = readers()
    if given.replay:
        reader = known[given.replay[0]]
        path = Path(tempfile.mkdtemp(), f"input{reader.suffix}")
        path.write_bytes(make_input(reader, given.seed, int(given.replay[1])))
        print(path)
        reader.read(path)
        return
    little_memory()
    chosen = [known[name] for name in given.only] if given.only else list(known.values())
    campaign = Campaign.kept(given.state, given.seed, [reader.name for reader in chosen])
    campaign.go(chosen, given.inputs, 60 * given.minutes, given.state)
    text = page(campaign)
    print(text)
    if given.docs is not None:
        before = given.docs.read_text(encoding="utf-8") if given.docs.exists() else ""
        earlier = before[before.index("\n## ") :] if "\n## " in before else ""  # what is told of other runs
        given.docs.write_text(text + earlier, encoding="utf-8")
    sys.exit(any(tally.failures for tally in campaign.tallies.values()))


if __name__ == "__main__":
    main()
