"""Every reader against broken files: no traceback, no hang, no memory blow-up.

    python benchmarks/fuzz.py --inputs 20000 --seed 1        a long run, with a table at its end
    python benchmarks/fuzz.py --replay net 4711              one input again, with its traceback

An input is a valid file that was mutated (bytes flipped, pieces cut, doubled, moved or spliced, numbers
and names replaced by hostile ones, other encodings, compressed and then broken), or structured garbage in
the words of the format.  Each is read in a process of its own kind: a reader must return, or refuse with
one of the library's own errors in a single line, within ``SECONDS`` of processor time and ``MEMORY``.
Input k of a reader depends on its name, the seed and k alone.
"""

from __future__ import annotations

import argparse
import gzip
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
from pathlib import Path
from types import FrameType
from typing import Any

import quiltdp as qd
from quiltdp.errors import QuiltdpError
from quiltdp.printable import printable

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 20.0
MEMORY = 1 << 30
LONGEST_MESSAGE = 1_600

NET = (
    'net { }\nnode a { states = ("x" "y"); }\nnode b { states = ("u" "v" "w"); }\n'
    "potential ( a ) { data = ( 0.15 0.85 ); }\n"
    "potential ( b | a ) { data = ((0.5 0.3 0.2)(0.1 0.2 0.7)); }\n"
)
XMLBIF = (
    '<?xml version="1.0"?>\n<BIF VERSION="0.3"><NETWORK><NAME>n</NAME>'
    '<VARIABLE TYPE="nature"><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>'
    '<VARIABLE TYPE="nature"><NAME>b</NAME><OUTCOME>u</OUTCOME><OUTCOME>v</OUTCOME></VARIABLE>'
    "<DEFINITION><FOR>a</FOR><TABLE>0.2 0.8</TABLE></DEFINITION>"
    "<DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>0.3 0.7 0.6 0.4</TABLE></DEFINITION></NETWORK></BIF>"
)
XDSL = (
    '<?xml version="1.0"?>\n<smile id="n" version="1.0"><nodes>'
    '<cpt id="a"><state id="x"/><state id="y"/><probabilities>0.2 0.8</probabilities></cpt>'
    '<cpt id="b"><state id="u"/><state id="v"/><parents>a</parents>'
    "<probabilities>0.3 0.7 0.6 0.4</probabilities></cpt></nodes></smile>"
)
MARKOV = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n4\n1.0 2.0 3.0 0.5\n6\n1 2 3 4 5 6\n"
BAYES = "BAYES\n2\n2 2\n2\n1 0\n2 0 1\n2\n0.2 0.8\n4\n0.3 0.7 0.6 0.4\n"
CHAIN = '{"transition": [[0.9, 0.1], [0.2, 0.8]], "length": 50, "initial": "stationary", "prefix": "X"}'
NETWORK = json.dumps(
    {
        "nodes": [
            {"name": "a", "states": ["x", "y"], "table": [0.2, 0.8]},
            {"name": "b", "states": ["u", "v"], "parents": ["a"], "table": [[0.3, 0.7], [0.6, 0.4]]},
        ],
        "records": ["a", "b"],
        "people": {"b": 2},
        "notes": ["made"],
    }
)
FAM = "F1 dad 0 0 1 -9\nF1 mum 0 0 2 -9\nF1 kid dad mum 1 2\nF1 sis dad mum 2 1\n"
PED = "F1 dad 0 0 1 1 A A\nF1 mum 0 0 2 1 A G\nF1 kid dad mum 1 2 A G\n"
LINKAGE = "1 1 0 0 3 0 0 1 1 0 0\n1 2 0 0 3 0 0 2 0 0 0\n1 3 1 2 0 4 4 1 0 0 0\n1 4 1 2 0 0 0 2 0 0 0\n"
TABLE = "id,father,mother,sex,twin,zygosity\nf,,,1,,\nm,,,2,,\na,f,m,1,b,mz\nb,f,m,1,a,mz\n"
GED = (
    "0 HEAD\n1 CHAR UTF-8\n0 @I1@ INDI\n1 NAME Ann /Lee/\n1 SEX F\n1 FAMS @F1@\n0 @I2@ INDI\n1 SEX M\n"
    "1 FAMS @F1@\n0 @I3@ INDI\n1 FAMC @F1@\n2 PEDI birth\n0 @F1@ FAM\n1 HUSB @I2@\n1 WIFE @I1@\n1 CHIL @I3@\n"
    "0 TRLR\n"
)
POINTS = "user,time,lat,lon\n" + "".join(
    f"u{k % 2},2020-01-01T00:{k:02d}:00Z,47.{k},8.{k}\n" for k in range(12)
)
PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255\n0\n" + "".join(
    f"39.9{k},116.3{k},0,492,39744.1,2008-10-23,02:53:{k:02d}\n" for k in range(9)
)
GPX = (
    '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
    + "".join(
        f'<trkpt lat="47.{k}" lon="8.{k}"><time>2020-01-01T00:0{k}:00Z</time></trkpt>' for k in range(6)
    )
    + "</trkseg></trk></gpx>"
)
GEOJSON = json.dumps(
    {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"time": f"2020-01-01T00:0{k}:00Z", "user": "a"},
                "geometry": {"type": "Point", "coordinates": [8.5 + k / 10, 47.1]},
            }
            for k in range(5)
        ],
    }
)
MOVING = json.dumps(
    {
        "type": "Feature",
        "id": "a",
        "temporalGeometry": {
            "type": "MovingPoint",
            "datetimes": ["2020-01-01T00:00:00Z", "2020-01-01T00:05:00Z"],
            "coordinates": [[8.5, 47.1], [8.6, 47.2]],
        },
    }
)
GOOGLE = json.dumps(
    {"locations": [{"latitudeE7": 471000000, "longitudeE7": 85000000, "timestamp": "2020-01-01T00:00:00Z"}]}
)
AFREQ = "#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\trs1\tA\tG\t0.2\t9\nX\trs2\tC\tT\t0.5\t9\n"
FRQ = " CHR  SNP  A1  A2  MAF  NCHROBS\n   1  rs1   G   A  0.2  100\n   1  rs2   T   C  0.5  100\n"
VCF = (
    "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tdad\tmum\n"
    "1\t10\trs1\tA\tG\t.\tPASS\tAF=0.25\tGT:DP\t0/1:9\t1|1:8\n1\t20\trs2\tC\tT\t.\tPASS\tAF=0.5\tGT\t./.\t0/0\n"
)
STUDY = "# who\nkid\nF1 sis\ndad\n"

HOSTILE = [
    "",
    "0",
    "-1",
    "1e999",
    "-1e-999",
    "nan",
    "NaN",
    "inf",
    "1" * 5000,
    "9" * 400,
    "1e400",
    "0x10",
    "1_000",
    "٣",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "\ufeff",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    '"',
    "'",
    "`",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "/*",
    "*/",
    "//",
    "%",
    "#",
    "|",
    ";",
    ",",
    "\t",
    "\r",
    "\n\n",
    "&a;",
    "<!ENTITY a 'b'>",
    "<!DOCTYPE x>",
    "<![CDATA[",
    "]]>",
    "null",
    "true",
    "[]",
    "{}",
    "../../etc/passwd",
    "a" * 3000,
    "2147483648",
    "-2147483649",
    "99999999999999999999",
    "1000000000",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:60Z",
    "@I1@",
    "0 HEAD",
    "type discrete [ 2 ] { x, y };",
    "default 0.5, 0.5;",
    "table",
    "property",
]


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
    from quiltdp.domains.pedigree.study import read_ids

    return read_ids(path)


def _panel(path: Path) -> Any:
    from quiltdp.domains.pedigree.frequencies import read_frequencies

    return len(read_frequencies(path))


def _calibration(path: Path) -> Any:
    return qd.Calibration.from_json(path.read_bytes().decode("utf-8", "replace"))


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"lat": [47.1, 47.2], "lon": [8.1, 8.2], "time": ["2020-01-01T00:00:00Z"] * 2})
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue().to_pybytes())


def _shipped(*names: str) -> tuple[bytes, ...]:
    return tuple((ROOT / name).read_bytes() for name in names)


def readers() -> dict[str, Reader]:
    """Return every reader by name."""
    cancer = qd.load_model(ROOT / "models/cancer.bif")
    calibration = qd.calibrate(cancer, 1.0, qd.Laplace(1.0)).to_json()
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
        Reader("calibration", ".json", _texts(calibration), _calibration),
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


def main() -> None:
    """Run, and print the table of docs/benchmarks/fuzz.md."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--inputs", type=int, default=2_000, help="how many altogether")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=math.inf, help="stop after this long")
    options.add_argument("--only", nargs="*", help="readers by name")
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
    each = -(-given.inputs // len(chosen))
    ends = time.monotonic() + given.seconds
    print("| reader | inputs | read | refused | failed | slowest (s) |\n|---|---|---|---|---|---|")
    failures, total, started = [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for reader in chosen:
            numbers = (k for k in range(each) if time.monotonic() < ends)
            tally = run(reader, given.seed, numbers, Path(folder))
            count = sum(tally.outcomes.values())
            total += count
            good, refused = tally.outcomes["read"], tally.outcomes["refused"]
            print(
                f"| {reader.name} | {count:,} | {good:,} | {refused:,} | {count - good - refused} |"
                f" {tally.slowest:.1f} |",
                flush=True,
            )
            failures += [(reader.name, number, said) for number, said in tally.failures]
    print(
        f"\n{total:,} inputs, {time.monotonic() - started:,.0f} s,"
        f" seed {given.seed}, {len(failures)} failures"
    )
    for name, number, said in failures[:200]:
        print(f"{name} {number}: {said}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
