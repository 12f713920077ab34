"""Fixtures for all tests, and run-time checks of every annotated array shape."""

from __future__ import annotations

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Must run before the first import of the packages: every shape in a signature is then checked at run time.
install_import_hook(["defocus.optics", "defocus.survey", "defocus.photo"], "beartype.beartype")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data beside the checkout; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (../shared) is not here")
    return folder
