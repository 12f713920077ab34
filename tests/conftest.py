"""Fixtures for all tests, and run-time checks of every annotated array shape."""

from __future__ import annotations

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

from defocus.cli.programs import keep_programs

ROOT = Path(__file__).resolve().parents[1]
# Before JAX is imported. The workers of one run, the commands that they start, and the next run share their programs.
keep_programs(ROOT / ".cache" / "programs")

# Must run before the first import of the packages: every shape in a signature is then checked at run time.
install_import_hook(["defocus.optics", "defocus.survey", "defocus.photo"], "beartype.beartype")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data beside the checkout; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (../shared) is not here")
    return folder


# These files share the slow programs of wavefronts: one worker compiles them, and starts at once.
WAVEFRONTS = ("test_psf.py", "test_psf_camera.py", "test_draw_psf.py", "test_photograph.py", "test_cli_blur.py")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One file, one worker; the files of WAVEFRONTS first, on one worker together."""
    for item in items:
        own = item.path.relative_to(ROOT).as_posix()
        item.add_marker(pytest.mark.xdist_group("wavefronts" if item.path.name in WAVEFRONTS else own))
    items.sort(key=lambda item: item.path.name not in WAVEFRONTS)
