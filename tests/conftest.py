"""Fixtures for all tests, and run-time checks of every annotated array shape."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from defocus.programs import keep_programs

ROOT = Path(__file__).resolve().parents[1]
# Many processes start here, and each would compile the same programs again. The smallest are not worth it: with each
# program that it keeps, JAX looks at all that are there, and lets no other process look meanwhile.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
# The programs are those that users get; the workers of one run, the commands that they start, and the next run share
# them. JAX finds a program again under the same name of the folder alone: checkouts that link to one need its own name.
keep_programs((ROOT / ".cache" / "programs").resolve())

# The same examples in every run: a failure belongs to the change that made it.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

LONG_TESTS = "DEFOCUS_LONG_TESTS" in os.environ

CHECKED = (
    "analysis",
    "camera",
    "draw",
    "evaluate",
    "files",
    "point_requests",
    "psf",
    "render",
    "restore",
    "scene",
    "synth",
    "srgb",
)
# Must run before the first import of the packages: every shape in a signature is then checked at run time, and where
# rays and photographs are computed every other type, too (the last hook is asked first).
install_import_hook([f"defocus.{name}" for name in CHECKED], "shape_checks.check")
install_import_hook(["defocus.optics", "defocus.survey", "defocus.photo"], "beartype.beartype")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data beside the checkout; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (../shared) is not here")
    return folder


# Files that use the same programs run in one process, one after the other: what the first traced and compiled, or made
# as a fixture, the others find. The large families begin first; a worker that is left alone with a
# slow file at the end would cost minutes.
FAMILIES = {
    "psf": (
        "test_psf_camera.py",
        "test_analysis.py",
        "test_psf.py",
        "test_rays_and_waves.py",
        "test_pixel_integral.py",
        "test_cli_blur.py",
        "test_lens_defocus.py",
        "test_alignment.py",
        "test_draw_psf.py",
        "test_photograph.py",
    ),
    "synth": (
        "test_resume.py",
        "test_torch_data.py",
        "test_engines.py",
        "test_ablation.py",
        "test_bad_input.py",
        "test_show.py",
        "test_repair.py",
        "test_labels.py",
        "test_sampling.py",
    ),
    "page": ("test_explore.py", "test_explore_browser.py"),
    "gradients": ("test_programs_of_users.py", "test_gradients.py"),
    "survey": (
        "test_survey_collection.py",
        "test_library.py",
        "test_apertures.py",
        "test_cli_lens.py",
        "test_draw.py",
    ),
    "rays": (
        "test_pupils.py",
        "test_real_rays.py",
        "test_invariants.py",
        "test_batching.py",
        "test_paraxial.py",
        "test_third_order.py",
    ),
    "train": ("test_train.py", "test_train_data.py"),
    "render": ("test_composite.py", "test_field.py", "test_inpaint.py", "test_layers.py"),
}


FAMILY_OF = {
    file: (number, family)
    for number, (family, file) in enumerate((family, file) for family, files in FAMILIES.items() for file in files)
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Families first, the other files in their own order; long tests only where they are asked for."""
    if not LONG_TESTS:
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="takes long: set DEFOCUS_LONG_TESTS=1"))
    items.sort(key=lambda item: FAMILY_OF.get(item.path.name, (len(FAMILY_OF), ""))[0])


def pytest_collection_finish() -> None:
    """What is imported by now stays: to look for garbage among it, time and again, takes as long as many a test."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `--dist loadfile`: a family is given out as one file is.

    xdist's own groups do not do: with pytest 9.2 it writes them where nobody reads them, and gives out test by test.
    """
    from xdist.scheduler import LoadFileScheduling

    class FamilyScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return FAMILY_OF.get(Path(file).name, (0, file))[1]

    return FamilyScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
