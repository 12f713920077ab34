"""What the package promises about itself: light imports, no device, lazy names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import defocus
from defocus.srgb import from_srgb, to_srgb


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


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = defocus.nothing


def test_the_srgb_curve_is_written_once() -> None:
    root = Path(defocus.__file__).parent
    files = [path for path in root.rglob("*.py") if re.search(r"0\.0031308|0\.04045|12\.92", path.read_text("utf-8"))]
    assert [path.relative_to(root).as_posix() for path in files] == ["srgb.py"]


def test_srgb_curve() -> None:
    # IEC 61966-2-1: the parts meet within 1e-7, and these are the light of the codes 0, 10, 128 and 255.
    codes, light = np.array([0.0, 10.0, 128.0, 255.0]) / 255.0, [0.0, 0.00303527, 0.21586050, 1.0]
    np.testing.assert_allclose(from_srgb(codes), light, rtol=0.0, atol=5e-9)
    x = np.concatenate([np.linspace(-0.01, 1.5, 1001), [0.0031308, np.nextafter(0.0031308, 1.0)]])
    np.testing.assert_allclose(from_srgb(to_srgb(x)), x, rtol=0.0, atol=5e-9)
    assert abs(np.diff(to_srgb(x[-2:]))[0]) < 1e-7
    assert to_srgb(x.astype(np.float32)).dtype == np.float32
