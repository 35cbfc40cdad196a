"""Every ``--release``, of visits and of genotypes: an account by default, and nothing is lost after the draw.

The parts: ``quiltdp.cli.release``, ``quiltdp.domains.accounts``, ``quiltdp.io.replace``.
"""

from __future__ import annotations

import errno
import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from accountant.ledger_fakes import terms

from quiltdp.accountant.ledger import Ledger
from quiltdp.domains.accounts import content_identity, find_account
from quiltdp.errors import FileFormatError, Refused

FAM = "F dad 0 0 1 -9\nF mum 0 0 2 -9\nF kid dad mum 1 2\n"
AFREQ = "#CHROM\tID\tREF\tALT\tALT_FREQS\n1\trs1\tA\tG\t0.2\n2\trs2\tC\tT\t0.5\n"
CALLS = (
    "FID IID PAT MAT SEX PHENOTYPE rs1_G rs2_T\n"
    "F dad 0 0 1 -9 0 1\nF mum 0 0 2 -9 1 NA\nF kid dad mum 1 2 1 2\n"
)
POINTS = "user,time,lat,lon\n" + "".join(
    f"ann,2024-05-07T{8 + k // 12:02}:{k % 12 * 5:02}:00Z,47.{370 + 5 * (k % 2)},8.540\n" for k in range(24)
)


@dataclass
class Job:
    """A command that releases, and its data."""

    cli: Callable[..., Any]
    folder: Path
    data: Path
    before: tuple[Any, ...]
    after: tuple[Any, ...]

    @property
    def out(self) -> Path:
        return self.folder / "out" / "release.csv"

    def run(self, *more: object, data: Path | None = None, out: Path | None = None) -> Any:
        words = (*self.before, data or self.data, *self.after, "--epsilon", 1)
        return self.cli(*words, "--release", out or self.out, *more)

    def ledgers(self) -> list[Path]:
        return sorted(self.folder.rglob("*.db"))


@pytest.fixture(params=["visits", "genotypes"])
def job(request: pytest.FixtureRequest, cli: Callable[..., Any], tmp_path: Path) -> Job:
    for folder in ("data", "out"):
        (tmp_path / folder).mkdir()
    files = {"t.fam": FAM, "t.afreq": AFREQ, "t.raw": CALLS, "may.csv": POINTS}
    for name, text in files.items():
        (tmp_path / "data" / name).write_text(text)
    fam, afreq, raw, points = (tmp_path / "data" / name for name in files)
    if request.param == "visits":
        area = ("--cell", "500m", "--estimator", "additive:1", "--area", "47.36,8.53,47.39,8.56")
        return Job(cli, tmp_path, points, ("trace",), area)
    panel = ("pedigree", fam, "--allele-frequency", afreq, "--genotypes")
    return Job(cli, tmp_path, raw, panel, ())


def spent(path: Path) -> float:
    return round(float(Ledger.open(path).head.spent), 9)


def renamed(job: Job) -> Path:
    return job.data.rename(job.data.with_name("june" + job.data.suffix))


def elsewhere(job: Job) -> Path:
    (job.folder / "copy").mkdir()
    return Path(shutil.copy(job.data, job.folder / "copy" / f"copy{job.data.suffix}"))


def sorted_otherwise(job: Job) -> Path:
    first, *rows = job.data.read_text().splitlines()
    random.Random(1).shuffle(rows)
    job.data.write_text("\r\n".join([first, *rows]))
    return job.data


def packed(job: Job) -> Path:
    path = job.folder / "out" / f"packed{job.data.suffix}.gz"
    path.write_bytes(gzip.compress(job.data.read_bytes()))
    return path


@pytest.mark.parametrize("change", [lambda job: job.data, renamed, elsewhere, sorted_otherwise, packed])
def test_a_second_release_is_refused_whatever_the_data_are_called(job: Job, change: Any, monkeypatch) -> None:
    first = job.run()
    assert first.code == 0, first.err
    (ledger,) = job.ledgers()
    assert ledger.parent == job.data.parent
    assert f"charged: {ledger}: 0 is left" in " ".join(first.out.split())
    assert spent(ledger) == 1
    text = job.out.read_text()
    data = change(job)
    late = "quiltdp.accountant.leakage.analyze", "quiltdp.domains.pedigree.panel_loci.LeakageProfile"
    for place in late:
        monkeypatch.setattr(place, lambda *_, **__: pytest.fail("too late"))
    again = job.run(data=data, out=job.out.with_name("second.csv"))
    assert (again.code, again.out) == (1, "")
    assert "may leak ε = 1 together, and nothing is left" in again.err
    assert "--ledger none" in again.err
    assert job.out.read_text() == text
    assert not job.out.with_name("second.csv").exists()
    assert job.ledgers() == [ledger]


def test_another_data_set_has_an_account_of_its_own(job: Job) -> None:
    assert job.run().code == 0
    job.data.write_text(
        job.data.read_text().replace("F mum 0 0 2 -9 1", "F mum 0 0 2 -9 2").replace("375", "376")
    )
    assert job.run(out=job.out.with_name("second.csv")).code == 0
    assert [spent(path) for path in job.ledgers()] == [1, 1]


def test_an_existing_release_stays(job: Job) -> None:
    job.out.write_text("old")
    done = job.run()
    assert done.code == 2
    assert f"{job.out}: this file exists: choose another name, or move it away" in done.err
    assert (job.out.read_text(), job.ledgers()) == ("old", [])
    job.out.unlink()
    assert job.run().code == 0
    assert "quiltdp" in job.out.read_text()


def test_no_ledger_is_typed_by_who_means_it(job: Job) -> None:
    for _ in range(2):
        job.out.unlink(missing_ok=True)
        done = job.run("--ledger", "none")
        assert done.code == 0, done.err
        assert "no account was kept: what several releases leak adds up" in " ".join(done.out.split())
    assert job.ledgers() == []
    assert job.run("--ledger", "none", "--total-epsilon", 2, out=job.out.with_name("2.csv")).code == 2


def test_a_larger_budget_is_said_with_the_first_release(job: Job) -> None:
    files = [job.out.with_name(f"{k}.csv") for k in range(4)]
    assert job.run("--total-epsilon", 0.5).code == 2
    done = job.run("--total-epsilon", 2.5, "--json", out=files[0])
    told = json.loads(done.out)
    told = told if "ledger" in told else told["release"]
    assert 0.3 < told["ledger_left"] < 0.7
    assert job.run(out=files[1]).code == 0
    assert job.run("--total-epsilon", 9, out=files[2]).code == 1
    refused = job.run(out=files[2])
    assert (refused.code, "is left and this one needs" in refused.err) == (1, True)
    other = job.run("--adversary", "prior", out=files[3])
    assert (other.code, "for another adversary" in other.err) == (1, True)
    assert [f.exists() for f in files] == [True, True, False, False]


def test_a_ledger_that_is_named_is_found_without_its_name(job: Job) -> None:
    named = job.folder / "books" / "study.db"
    named.parent.mkdir()
    assert job.run("--ledger", named).code == 0
    again = job.run(out=job.out.with_name("second.csv"))
    assert (again.code, str(named) in again.err) == (1, True)
    second = job.run("--ledger", job.folder / "other.db", out=job.out.with_name("second.csv"))
    assert (second.code, f"{named} keeps the account of the same data" in second.err) == (1, True)
    named.unlink()
    gone = job.run(out=job.out.with_name("second.csv"))
    assert (gone.code, f"{named}: this ledger kept the account" in gone.err) == (1, True)


def claim(data: Path, whole: Any, found: Any, told: Any) -> None:
    """Find the account when nobody has made one, then make it when all others do."""
    account = find_account([data])
    found.wait()
    try:
        account.ledger(whole).charge(1.0)
        told.put("charged")
    except Refused as error:
        told.put(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_of_copies_released_at_one_moment_one_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    context = multiprocessing.get_context("fork")
    found, told = context.Barrier(4, timeout=60), context.Queue()
    processes = []
    for k in range(4):
        data = tmp_path / str(k) / "may.csv"
        data.parent.mkdir()
        data.write_text(POINTS)
        processes.append(context.Process(target=claim, args=(data, terms(), found, told), daemon=True))
        processes[-1].start()
    answers = [told.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert answers.count("charged") == 1
    assert sum("keeps the account of the same data" in a for a in answers) == 3
    assert len(list(tmp_path.rglob("*.db"))) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes")
def test_an_index_that_is_no_file_is_told_at_once(job: Job) -> None:
    index = Path(os.environ["XDG_STATE_HOME"], "quiltdp", "accounts.jsonl")
    index.parent.mkdir(parents=True)
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        make(index)
        done = job.run()
        assert (done.code, str(index) in done.err, job.ledgers()) == (2, True, [])
        index.rmdir() if index.is_dir() else index.unlink()
    index.write_bytes(b'\xff\n[1]\n{"salt": "zz", "data": 1, "ledger": 2}\n' + b"[" * 100_000 + b"\n")
    assert job.run().code == 0


def test_data_that_may_only_be_read_have_their_account_in_the_state_folder(job: Job, monkeypatch) -> None:
    from quiltdp.io.replace import check_writable

    def closed(path: Path, *rest: Any, **more: Any) -> None:
        if Path(path).parent == job.data.parent:
            raise FileFormatError(path, None, "the file cannot be written (Read-only file system)")
        check_writable(path, *rest, **more)

    monkeypatch.setattr("quiltdp.domains.accounts.check_writable", closed)
    assert job.run().code == 0
    assert job.ledgers() == []
    (ledger,) = Path(os.environ["XDG_STATE_HOME"], "quiltdp").glob("*.db")
    assert spent(ledger) == 1
    assert job.run(out=job.out.with_name("second.csv")).code == 1


# -- charged and not written -------------------------------------------------------------------------


def test_another_output_that_fails_costs_nothing(job: Job) -> None:
    full = job.folder / ("full.json" if job.before[0] == "trace" else "full.tsv")
    full.symlink_to("/dev/full")
    done = job.run("-o", full)
    assert (done.code, "No space left on device" in done.err) == (2, True)
    assert (job.ledgers(), job.out.exists()) == ([], False)
    assert job.run().code == 0


def test_a_disk_without_room_is_found_before_the_charge(job: Job, monkeypatch) -> None:
    from quiltdp.io import replace

    real = replace._write_new_file

    def small(path: Path, content: bytes, mode: int | None) -> None:
        if len(content) > 4096:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content, mode)

    monkeypatch.setattr(replace, "_write_new_file", small)
    done = job.run()
    assert (done.code, "No space left on device" in done.err) == (2, True)
    assert job.ledgers() == []


def vanished(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    charge = Ledger.charge_mechanism

    def then_gone(*given: Any, **more: Any) -> Any:
        entry = charge(*given, **more)
        shutil.rmtree(job.out.parent)
        return entry

    monkeypatch.setattr(Ledger, "charge_mechanism", then_gone)
    return job.out


def broken(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk takes the ledger, and refuses the release its name."""
    rename, link = Path.replace, os.link

    def unless_out(act: Any) -> Any:
        def fails(source: Any, target: Any) -> Any:
            if Path(target) == job.out:
                raise OSError(errno.EIO, "Input/output error")
            return act(source, target)

        return fails

    monkeypatch.setattr(Path, "replace", unless_out(rename))
    monkeypatch.setattr(os, "link", unless_out(link))
    return job.out


def interrupted(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quiltdp.io.replace.write_whole", stop)
    return job.out


def impatient(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ctrl-C between the charge and the draw."""
    charge = Ledger.charge_mechanism

    def then_interrupted(*given: Any, **more: Any) -> Any:
        entry = charge(*given, **more)
        signal.raise_signal(signal.SIGINT)
        return entry

    monkeypatch.setattr(Ledger, "charge_mechanism", then_interrupted)
    return job.out


def another(job: Job, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody else writes a file of this name after the charge."""
    charge = Ledger.charge_mechanism
    monkeypatch.setattr(
        Ledger, "charge_mechanism", lambda *g, **m: (charge(*g, **m), job.out.write_text("mine"))[0]
    )
    return job.out


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C raises, also where the tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("fault", [vanished, broken, interrupted, impatient, another])
def test_a_release_that_cannot_be_written_is_kept(job: Job, fault: Any, monkeypatch) -> None:
    fault(job, monkeypatch)
    done = job.run()
    assert done.code == 2
    assert "the release was drawn and charged, and kept in " in done.err
    (kept,) = job.data.parent.glob("*.kept")
    assert str(kept) in done.err
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    first = kept.read_text().splitlines()
    assert "quiltdp" in first[0]
    assert len(first) > 3
    (ledger,) = job.ledgers()
    assert spent(ledger) == 1
    if fault is another:
        assert job.out.read_text() == "mine"


def test_a_map_that_fails_leaves_the_release(job: Job, monkeypatch) -> None:
    """It is a picture of the noisy numbers, so it is drawn when they are safe."""
    if job.before[0] != "trace":
        pytest.skip("a map of visits")

    def fails(*_: Any, **__: Any) -> bytes:
        raise FileFormatError("m.png", None, "the file cannot be written")

    monkeypatch.setattr("quiltdp.report.plots.map_picture", fails)
    assert job.run("-o", job.folder / "m.png").code == 2
    assert job.out.exists()


# -- identity ----------------------------------------------------------------------------------------


def test_a_pipe_has_no_identity(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="this is a pipe"):
        find_account([tmp_path / "pipe"])


def test_identity_is_of_rows_and_words(tmp_path: Path) -> None:
    texts = {"a": "x 1\ny 2\n", "b": "2,y\n1,x\n", "c": "x 1\ny 2\ny 2\n", "d": "x 1\ny 3\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    a, b, c, d = (content_identity([tmp_path / name]) for name in texts)
    assert a == b
    assert len({a, c, d}) == 3
