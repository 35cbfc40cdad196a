"""The models that come with the package (quiltdp.io.examples), from a checkout and from a wheel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import quiltdp as qd
from quiltdp.errors import InvalidArgument
from quiltdp.io.examples import EXAMPLES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_the_shipped_model(name):
    shipped = qd.load_model(ROOT / "models" / EXAMPLES[name])
    assert qd.example(name).fingerprint == shipped.fingerprint


def test_an_unknown_example_lists_the_others():
    with pytest.raises(InvalidArgument, match=r"no example 'asiaa'; there are alarm, asia"):
        qd.example("asiaa")


def test_the_wheel_is_told_to_carry_every_example():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for file in EXAMPLES.values():
        assert f'"models/{file}" = "quiltdp/examples/{file}"' in text


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Wheel and source archive, built once."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_wheel_and_sdist_work_in_a_clean_environment(tmp_path, dist, kind):
    """Installed alone without extras, and asked for a first answer, away from the checkout."""
    (archive,) = dist.glob(kind)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "clean")], check=True)
    python = tmp_path / "clean" / "bin" / "python"
    quiet = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([python, "-m", "pip", "install", *quiet, str(archive)], check=True, capture_output=True)
    subprocess.run([python, "-m", "pip", "check"], check=True, capture_output=True)
    code = (
        "import quiltdp as qd; m = qd.example('asia');"
        "c = qd.calibrate(m, epsilon=1.0, mechanism=qd.Laplace(sensitivity=1.0));"
        "c.report('asia.html'); print(c.sigma)"
    )
    elsewhere = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found = subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path, env=elsewhere
    )
    assert 1.0 < float(found.stdout) < 8.0
    assert (tmp_path / "asia.html").stat().st_size > 500_000
    installed = next((tmp_path / "clean").glob("lib/python*/site-packages/quiltdp"))
    assert {f.name for f in (installed / "examples").iterdir()} >= set(EXAMPLES.values())
    assert (installed / "report/assets/report.html").exists()
    if shutil.which(os.environ.get("CC", "cc")):
        used = [python, "-c", "from quiltdp.compiled import kernels; assert kernels() is not None"]
        subprocess.run(used, check=True, cwd=tmp_path, env=elsewhere)
