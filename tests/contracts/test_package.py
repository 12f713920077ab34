"""What the package promises about itself: light imports, no device, lazy names."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import pytest

import defocus


def _fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_import_is_fast() -> None:
    empty = statistics.median(_seconds("pass") for _ in range(5))
    imported = statistics.median(_seconds("import defocus") for _ in range(5))
    assert imported - empty < 0.5


def _seconds(code: str) -> float:
    start = time.perf_counter()
    _fresh(code)
    return time.perf_counter() - start


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


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = defocus.nothing
