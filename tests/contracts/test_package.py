"""What the package promises about itself: light imports, no device, public names, one name for one thing."""

from __future__ import annotations

import ast
import importlib
import json
import pickle
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import defocus
from defocus.errors import MissingExtraError, MissingPackageError
from defocus.srgb import from_srgb, to_srgb

ROOT = Path(defocus.__file__).parent
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))

# What is still to be mended: these lists only become shorter.
WITHOUT_PUBLIC_NAMES: set[str] = set()
SAME_FILES: set[str] = set()
# Participles say what happened to a thing, not what it is: how often they may be used as names.
PARTICIPLES = {"told", "made", "found", "seen", "known", "wanted", "given", "chosen"}
MOST_PARTICIPLES = 85


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The syntax of every file of the package."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in sorted(ROOT.rglob("*.py"))
    }


def _fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, json, defocus; print(json.dumps(sorted(sys.modules)))"
    loaded = {name.partition(".")[0] for name in json.loads(_fresh(code))}
    assert not loaded & {"jax", "numpy", "scipy", "matplotlib", "torch", "equinox", "typer"}


def test_tracing_modules_touch_no_device_on_import() -> None:
    code = """
import defocus.optics.trace, defocus.optics.pupil, defocus.survey, defocus.cli
from jax._src import xla_bridge
print(len(xla_bridge._backends))
"""
    assert _fresh(code).strip() == "0"


@pytest.mark.parametrize("name", defocus.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(defocus, name) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_lists_its_public_names(package: str) -> None:
    module = importlib.import_module(f"defocus.{package}")
    names = getattr(module, "__all__", None)
    if names is None:
        assert package in WITHOUT_PUBLIC_NAMES
        return
    assert names
    assert len(set(names)) == len(names)
    assert [name for name in names if getattr(module, name, None) is None] == []
    if hasattr(module, "__getattr__"):  # names on demand: a module of the same name would hide one once it is imported
        assert set(names) & {path.stem for path in (ROOT / package).iterdir()} == set()


def test_no_two_files_have_the_same_name(trees: dict[str, ast.Module]) -> None:
    names = [Path(file).stem for file in trees if not Path(file).stem.startswith("__")]
    assert _twice(names) - SAME_FILES == set()


def test_no_two_classes_have_the_same_name(trees: dict[str, ast.Module]) -> None:
    names = [node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert _twice(names) == set()


def _twice(names: list[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}


def test_names_say_what_a_thing_is(trees: dict[str, ast.Module]) -> None:
    uses = Counter(
        file.partition("/")[0]
        for file, tree in trees.items()
        for node in ast.walk(tree)
        for name in _names(node)
        if name in PARTICIPLES
    )
    assert uses.total() <= MOST_PARTICIPLES, uses


def _names(node: ast.AST) -> list[str]:
    """Identifiers that a node of the syntax tree writes down."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.keyword(arg=str(name)) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
    return []


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = defocus.nothing


@pytest.mark.parametrize("kind", [MissingPackageError, MissingExtraError])
def test_what_is_missing_is_told_by_workers(kind: type[MissingPackageError | MissingExtraError]) -> None:
    """Errors of other processes come as pickles."""
    error = kind("the table", "pyarrow")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_srgb_curve_is_written_once() -> None:
    files = [path for path in ROOT.rglob("*.py") if re.search(r"0\.0031308|0\.04045|12\.92", path.read_text("utf-8"))]
    assert [path.relative_to(ROOT).as_posix() for path in files] == ["srgb.py"]


def test_srgb_curve() -> None:
    # IEC 61966-2-1: the parts meet within 1e-7, and these are the light of the codes 0, 10, 128 and 255.
    codes, light = np.array([0.0, 10.0, 128.0, 255.0]) / 255.0, [0.0, 0.00303527, 0.21586050, 1.0]
    np.testing.assert_allclose(from_srgb(codes), light, rtol=0.0, atol=5e-9)
    x = np.concatenate([np.linspace(-0.01, 1.5, 1001), [0.0031308, np.nextafter(0.0031308, 1.0)]])
    np.testing.assert_allclose(from_srgb(to_srgb(x)), x, rtol=0.0, atol=5e-9)
    assert abs(np.diff(to_srgb(x[-2:]))[0]) < 1e-7
    assert to_srgb(x.astype(np.float32)).dtype == np.float32
