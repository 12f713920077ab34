"""Fixtures for all tests, and run-time checks of every annotated array shape."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

from defocus.cli.programs import keep_programs

ROOT = Path(__file__).resolve().parents[1]
# Many processes start here, and each would compile the same small programs again.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Before JAX is imported. The workers of one run, the commands that they start, and the next run share their programs.
keep_programs(ROOT / ".cache" / "programs")
# Most of a run is compilation, and the older code generator takes half the time for it; its programs are no slower. The
# commands that tests start inherit it. `XLA_FLAGS= make test` tests the programs as users get them.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

# The same examples in every run: a failure belongs to the change that made it.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# Must run before the first import of the packages: every shape in a signature is then checked at run time.
install_import_hook(["defocus.optics", "defocus.survey", "defocus.photo"], "beartype.beartype")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference data beside the checkout; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (../shared) is not here")
    return folder


# Files that use the same programs run in one process, one after the other: what the first traced and compiled, or made
# as a fixture, the others find. The two large families begin first, side by side; a worker that is left alone with a
# slow file at the end would cost minutes.
FAMILIES = {
    "psf": (
        "test_psf_camera.py",
        "test_gradients.py",
        "test_psf.py",
        "test_cli_blur.py",
        "test_alignment.py",
        "test_draw_psf.py",
        "test_photograph.py",
    ),
    "synth": (
        "test_resume.py",
        "test_torch_data.py",
        "test_ray.py",
        "test_ablation.py",
        "test_bad_input.py",
        "test_show.py",
    ),
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Families first, the other files in their own order; for `--dist loadgroup`, a file without a family is one."""
    names = [(family, file) for family, files in FAMILIES.items() for file in files]
    place = {file: (number, family) for number, (family, file) in enumerate(names)}
    items.sort(key=lambda item: place.get(item.path.name, (len(place), ""))[0])
    for item in items:
        item.add_marker(pytest.mark.xdist_group(place.get(item.path.name, (0, str(item.path)))[1]))
