"""The package as it is given away: wheel and source archive, built here without a network, installed, and used."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

import defocus

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = pytest.importorskip("setuptools", reason="setuptools builds wheels: pip install 'defocus[dev]'")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive of a copy of the checkout, and the wheel that is built from that archive alone."""
    if int(SETUPTOOLS.__version__.split(".")[0]) < 77:
        pytest.skip(f"setuptools {SETUPTOOLS.__version__} cannot read pyproject.toml; 77 can")
    folder = tmp_path_factory.mktemp("distribution")
    tree = folder / "tree"
    tree.mkdir()
    names = ["pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt"]
    for name in names:
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = "from setuptools import build_meta as b; print(b.build_{}('..'))"

    def built(kind: str, place: Path) -> Path:
        command = [sys.executable, "-W", "ignore", "-c", build.format(kind)]
        out = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout
        return place.parent / out.strip().splitlines()[-1]

    source = built("sdist", tree)
    with tarfile.open(source) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return source, built("wheel", unpacked)


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_every_file_of_the_package_is_in_the_wheel(archives: tuple[Path, Path]) -> None:
    package = ROOT / "src" / "defocus"
    with zipfile.ZipFile(archives[1]) as archive:
        packed = {n for n in archive.namelist() if n.startswith("defocus/")}
    files = {f"defocus/{p.relative_to(package).as_posix()}" for p in package.rglob("*") if p.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}


def test_what_the_wheel_says_of_itself(archives: tuple[Path, Path]) -> None:
    about = metadata(archives[1])
    assert about["Version"] == defocus.__version__
    assert defocus.__version__ in archives[0].name
    assert "## Install" in about.get_payload()
    # No picture and no link that needs the repository's files.
    assert re.findall(r"\]\((?!https?://|#)", about.get_payload()) == []
    assert "docs/architecture.md" in about.get_payload()
    assert {"train", "docs", "ray"} <= set(about.get_all("Provides-Extra"))


def test_the_installed_wheel_works(archives: tuple[Path, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(archives[1]) as archive:  # a wheel of Python alone is installed by unpacking it
        archive.extractall(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    code = "import defocus, sys; from defocus.cli import run; print(defocus.__file__); sys.exit(run(sys.argv[1:]))"

    def said(*arguments: str) -> str:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.check_output(command, text=True, cwd=tmp_path, env=environment)

    listing = said("lens", "list")
    assert listing.splitlines()[0] == str(tmp_path / "defocus" / "__init__.py")
    assert "zeiss-tessar-50-f3.5" in listing
    assert "nafnet-small" in said("train", "--list")
    assert "next: defocus synth check" in said("synth", "init", str(tmp_path / "plan.toml"))
    assert "wrote" in said(
        "lens", "convert", "zeiss-tessar-50-f3.5", str(tmp_path / "lens.zmx")
    )  # glass data are there


@pytest.mark.parametrize(
    ("arguments", "extra"), [("explore", "web"), ("deblur photo.jpg", "train"), ("train nafnet-small", "train")]
)
def test_a_command_without_its_extra_names_it_first(arguments: str, extra: str, tmp_path: Path) -> None:
    """An installation without extras, where nothing else that is missing is asked for before."""
    (tmp_path / "photo.jpg").write_bytes(b"")
    hide = "import sys; sys.modules.update(torch=None, gradio=None)"
    code = f"{hide}; from defocus.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments.split()]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    (line,) = process.stderr.strip().splitlines()
    assert line.endswith(f"needs the extra [{extra}]: pip install 'defocus[{extra}]'")
