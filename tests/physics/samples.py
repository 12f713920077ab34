"""Lenses to test with, each with its patent, and a few that a textbook would draw.

Radii, thicknesses, indices and aspheric coefficients are the patents' own. The patents print no clear apertures; those
below are round numbers, wide enough for the beams that the tests send.
"""

from __future__ import annotations

import math

from defocus.glass import AIR, Medium, constant_index, model_glass
from defocus.lens.prescription import Aperture, Lens, Surface

INF = math.inf


def glass(nd: float, vd: float | None = None) -> Medium:
    """Air for 1, else a glass with the given index and Abbe number."""
    if nd == 1.0:
        return AIR
    return constant_index(nd) if vd is None else model_glass(nd, vd)


def lens(name: str, rows: list[tuple], stop: int, stop_radius: float, image_radius: float = 10.0) -> Lens:
    """A lens from rows (radius, thickness, medium behind[, conic[, {power: coefficient}[, semi-diameter]]])."""
    surfaces = []
    for radius, thickness, medium, *rest in rows:
        conic, terms, semi = (*rest, *(0.0, {}, None)[len(rest) :])
        surfaces.append(
            Surface(
                radius=radius,
                thickness=thickness,
                medium=medium if isinstance(medium, Medium) else glass(medium),
                conic=conic,
                aspheric=tuple(sorted(terms.items())),
                semi_diameter=semi,
            )
        )
    return Lens(name, tuple(surfaces), stop, Aperture("stop_radius", stop_radius), image_radius=image_radius)


def double_gauss() -> Lens:
    """A 50 mm f/2 double Gauss: US 2,745,315, example 1."""
    crown, barium, flint = glass(1.623, 58.1), glass(1.6667, 48.4), glass(1.6254, 35.6)
    rows = [
        (34.9215, 3.33, crown),
        (105.8665, 0.305, 1.0),
        (16.9125, 5.795, barium),
        (INF, 1.445, flint),
        (11.7815, 5.22, 1.0),
        (INF, 5.22, 1.0),
        (-14.607, 1.495, flint),
        (INF, 5.41, barium),
        (-21.4235, 0.05, 1.0),
        (310.015, 3.135, crown),
        (-32.4, 34.3, 1.0),
    ]
    semi = (15.0, 14.0, 12.5, 12.0, 10.5, None, 10.5, 12.0, 13.5, 14.0, 14.0)
    return lens("double Gauss", [(*r, 0.0, {}, s) for r, s in zip(rows, semi, strict=True)], 5, 8.6, 21.63)


def phone() -> Lens:
    """A phone lens of four aspheric plastic elements: US 6,744,570, first example."""
    plastic = glass(1.53048, 55.72)
    rows = [
        (3.548, 1.161, glass(1.58913, 61.28), -0.224, {4: 2.5359e-3, 6: 4.2096e-4, 8: 1.2178e-5, 10: 8.8312e-6}, 1.7),
        (16.802, 0.593, 1.0, 15.0, {4: 6.0134e-3, 6: -1.2266e-3, 8: 5.8101e-4, 10: -1.1992e-4}, 1.3),
        (INF, 1.343, 1.0),
        (-3.817, 1.377, plastic, 1.0, {4: -2.3442e-2, 6: -7.8672e-3, 8: 7.5751e-3, 10: -3.5641e-4}, 1.4),
        (-1.576, 0.447, 1.0, -0.733, {4: -3.8537e-3, 6: 6.4572e-4, 8: -2.0007e-4}, 1.8),
        (-2.73, 1.686, glass(1.5834, 30.23), -0.98, {4: -2.0508e-2, 6: 5.8512e-3, 8: -4.3953e-5, 10: -1.12e-4}, 2.0),
        (-4.28, 0.1, 1.0, 0.0, {}, 2.6),
        (-5.779, 0.833, plastic, 0.0, {}, 2.7),
        (5.219, 0.5, 1.0, -3.456, {4: -1.4117e-2, 6: 6.5211e-4, 8: -1.1832e-5, 10: -5.6001e-7}, 3.4),
        (INF, 0.7, glass(1.5168, 64.2), 0.0, {}, 3.8),
        (INF, 0.54377, 1.0, 0.0, {}, 4.0),
    ]
    return lens("phone", rows, 2, 0.73, 4.0)


FRONT_TERMS = (
    1.4267934e-3, -1.6625706e-3, 7.1056683e-4, -9.1063817e-5, -6.7671475e-5, 3.1530346e-5, -2.7404199e-6,
    -1.2148981e-6, 2.9053673e-7, 6.3508375e-9, -7.9573382e-9, 4.5951622e-10, 9.3989975e-11, -9.7762088e-12,
    -4.3352953e-13, 7.1170331e-14, 2.5581917e-16, -1.6083703e-16,
)  # fmt: skip
REAR_TERMS = (
    1.4075342e-3, -1.5407051e-3, 7.2833847e-4, -1.3764849e-4, -3.4723387e-5, 2.1553742e-5, -2.4723865e-6,
    -6.0987942e-7, 1.7824931e-7, -3.5081942e-9, -3.6689473e-9, 3.806084e-10, 2.1235855e-11, -5.4237286e-12,
    1.6515932e-13, 2.1078707e-14, -1.6918406e-15, 3.4763829e-17,
)  # fmt: skip


def odd_asphere() -> Lens:
    """A 35 mm f/1.4 lens whose aspheres have all powers r³ to r²⁰: US 2014/0285903 A1, example 1."""
    front, rear = (dict(enumerate(terms, start=3)) for terms in (FRONT_TERMS, REAR_TERMS))
    lanthanum = glass(1.883, 40.8)
    rows = [
        (31.767, 4.7, glass(1.755, 52.3)),
        (108.05, 0.15, 1.0),
        (16.733, 5.01, glass(1.804, 46.6)),
        (25.973, 0.2, 1.0),
        (27.72, 1.35, glass(1.69895, 30.1)),
        (10.424, 6.27, 1.0),
        (37.345, 1.1, glass(1.60342, 38.0)),
        (25.375, 2.73, 1.0),
        (INF, 3.2, 1.0),
        (-94.514, 2.5, glass(1.5176, 63.5), -1.0, front, 8.5),
        (45.548, 0.45, 1.0, -1.0, rear, 8.5),
        (INF, 6.72, lanthanum),
        (-11.174, 1.2, glass(1.76182, 26.5)),
        (-124.5, 4.99, lanthanum),
        (-20.516, 21.98, 1.0),
    ]
    return lens("odd asphere", rows, 8, 8.3, 14.2)


def fisheye() -> Lens:
    """A 15 mm f/2.8 full-frame fisheye: JP S63-17421, example 3."""
    rows = [
        (78.06, 2.5, glass(1.60311, 60.7)),
        (15.9, 11.83, 1.0),
        (22.22, 2.5, glass(1.617, 62.8)),
        (13.27, 7.54, 1.0),
        (127.88, 5.34, glass(1.60311, 60.7)),
        (22.35, 1.85, 1.0),
        (32.04, 6.71, glass(1.84666, 23.9)),
        (-190.22, 3.84, 1.0),
        (INF, 3.53, 1.0),
        (-289.77, 2.72, glass(1.51112, 60.5)),
        (-29.1, 0.15, 1.0),
        (-100.42, 3.99, glass(1.84666, 23.9)),
        (29.39, 5.14, glass(1.48749, 70.2)),
        (-25.73, 0.15, 1.0),
        (43.88, 4.84, glass(1.48749, 70.2)),
        (-43.88, 39.673, 1.0),
    ]
    semi = (36.0, 15.85, 15.0, 12.5, 12.0, 10.5, 10.0, 9.0, None, 8.0, 8.5, 9.0, 9.5, 9.5, 11.5, 12.0)
    return lens("fisheye", [(*r, 0.0, {}, s) for r, s in zip(rows, semi, strict=True)], 8, 6.4, 21.63)


def squared_term() -> Lens:
    """Two plastic elements whose r² terms carry much of the power, with a curved stop; our own numbers."""
    rows = [
        (8.0, 1.0, glass(1.54, 56.0), 1.5, {2: 0.03, 4: -2e-3, 6: -1e-4}, 2.0),
        (-30.0, 0.5, 1.0, -4.0, {2: -0.02, 4: 1e-3}, 2.0),
        (-6.0, 0.6, glass(1.63, 24.0), 0.0, {2: 0.01, 4: 2e-3, 6: -3e-4}, 2.0),
        (25.0, 7.2, 1.0, 2.0, {2: 0.02, 4: 3e-3}, 2.2),
    ]
    return lens("squared term", rows, 1, 1.3, 2.5)


def all_samples() -> list[Lens]:
    return [double_gauss(), phone(), odd_asphere(), fisheye(), squared_term()]
