"""Fixtures for the readers and writers of lens files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from defocus.errors import WavelengthError
from defocus.lens.formats import read_lens
from defocus.lens.prescription import Lens

SAMPLES = Path(__file__).parent / "samples"


class FirstOrder(NamedTuple):
    """Paraxial numbers at the primary wavelength, by matrices: independent of the code under test."""

    focal_length: float  # mm
    defocus: float  # mm from the image plane to the paraxial image
    magnification: float


def _index(medium: object, wavelength_nm: float) -> float:
    try:
        return medium.index(wavelength_nm)  # type: ignore[attr-defined]
    except WavelengthError:
        return medium.nd  # type: ignore[attr-defined]


def first_order(lens: Lens, wavelength_nm: float | None = None) -> FirstOrder:
    """Gaussian optics of a lens: the system matrix on (y, n u)."""
    wavelength = wavelength_nm or lens.wavelengths_nm[lens.primary_wavelength]
    n = n_object = _index(lens.object_medium, wavelength)
    system = np.eye(2)
    for s in lens.surfaces:
        n_next = _index(s.medium, wavelength)
        curvature = 1.0 / s.radius + 2.0 * dict(s.aspheric).get(2, 0.0)
        system = np.array([[1.0, 0.0], [-(n_next - n) * curvature, 1.0]]) @ system
        n = n_next
        if s is not lens.surfaces[-1]:
            system = np.array([[1.0, s.thickness / n], [0.0, 1.0]]) @ system
    if math.isinf(lens.object_distance):
        y, nu = system @ (1.0, 0.0)
        magnification = 0.0
    else:
        y, nu = system @ np.array([[1.0, lens.object_distance / n_object], [0.0, 1.0]]) @ (0.0, 1.0)
        magnification = 1.0 / nu
    power = -system[1, 0]
    image = -y * n / nu if nu else math.inf
    return FirstOrder(1.0 / power if power else math.inf, image - lens.surfaces[-1].thickness, magnification)


@pytest.fixture(scope="session")
def gaussian() -> Callable[[Lens], FirstOrder]:
    return first_order


@pytest.fixture(scope="session")
def samples() -> Path:
    """Small lens files, made up for these tests."""
    return SAMPLES


@pytest.fixture(scope="session")
def sample() -> Callable[[str], Lens]:
    """Read a sample by its file name."""
    return lambda name: read_lens(SAMPLES / name)
