"""A second ray trace, written from the physics alone, to judge the product by.

Nothing here comes from `defocus.optics`, and the methods differ on purpose:

* A surface is only its sag z = s(r). Where a ray meets it is found by looking: g(t) = z(t) − s(r(t)) is sampled along
  the stretch of the ray that can meet the surface, the change of sign is bracketed, and the bracket is cut down until
  nothing is left of it. There is no start value, no derivative and no choice between the roots of a quadratic.
* The slope ds/dr is the complex-step derivative Im s(r + ih) / h of the same sag.
* Snell's law is the conservation of the tangential wave vector: k = n d, k' = k_t + N √(n'² − k_t²).
* Sums run in extended precision (80 bits on x86), so that the optical path is good to 1e-15 mm.

A polynomial that goes on beyond its clear aperture may meet a ray more than once. Light meets the glass that is there:
of the meetings at which the ray enters the surface from its front side, those inside the clear aperture come first,
and of these the first behind the ray's present point; if the ray already stands behind the surface (a negative
thickness, as with a stop inside the front element), the last one before its present point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from defocus.lens.prescription import Lens
from defocus.optics.system import refractive_indices

LONG = np.longdouble
ROUNDS = 13  # each narrows the bracket 16 times
STEEPEST = 12.0  # dz/dr, 85°: no surface is looked at beyond


@dataclass
class Outcome:
    """Rays on the last surface, in the frame of the image plane's vertex; dead rays hold nan."""

    position: np.ndarray  # [3, rays], mm
    direction: np.ndarray  # [3, rays]
    path: np.ndarray  # [rays], mm
    alive: np.ndarray  # [rays]
    died_at: np.ndarray  # [rays], surface number, −1: it lives
    clip: np.ndarray  # [rays], largest r²/semi_diameter² − 1
    points: np.ndarray  # [surfaces, 3, rays], in each surface's frame
    limits: np.ndarray  # [surfaces], mm, radius up to which each surface was looked at

    def at_plane(self, z: float = 0.0) -> np.ndarray:
        """x and y (mm) on the plane z."""
        return self.position[:2] + (z - self.position[2]) / self.direction[2] * self.direction[:2]


def sag(c: float, conic: float, terms: tuple[tuple[int, float], ...], r: np.ndarray) -> np.ndarray:
    """z(r) in mm; nan where the conic has ended."""
    long = r.dtype.type
    argument = 1 - (1 + long(conic)) * long(c) ** 2 * r * r
    if not np.iscomplexobj(r):
        argument = np.where(argument >= 0, argument, np.nan)
    z = LONG(c) * r * r / (1 + np.sqrt(argument))
    monomial, reached = np.ones_like(r), 0
    for power, coefficient in terms:
        for _ in range(power - reached):
            monomial = monomial * r
        reached = power
        z = z + LONG(coefficient) * monomial
    return z


def slope(c: float, conic: float, terms: tuple[tuple[int, float], ...], r: np.ndarray) -> np.ndarray:
    """dz/dr by the complex step: no difference is formed, so nothing cancels."""
    h = LONG(1e-25)
    return sag(c, conic, terms, r + 1j * h).imag / h


def domain(
    c: float, conic: float, terms: tuple[tuple[int, float], ...], semi_diameter: float | None, farthest: float
) -> float:
    """Radius up to which the surface is looked at: three clear apertures, the conic's end, or where it is too steep."""
    limit = farthest if semi_diameter is None else 3.0 * semi_diameter
    if (1 + conic) * c * c > 0:
        limit = min(limit, (1 - 1e-12) / (np.sqrt(1 + conic) * abs(c)))
    if terms:
        radii = np.linspace(0.0, limit, 1000)
        steep = np.abs(np.gradient(sag(c, conic, terms, radii), radii)) > STEEPEST
        if steep.any():
            limit = float(radii[np.argmax(steep)])
    return limit


def meet(
    c: float,
    conic: float,
    terms: tuple[tuple[int, float], ...],
    limit: float,
    aperture: float,
    p: np.ndarray,
    d: np.ndarray,
) -> np.ndarray:
    """Distance along each ray to the surface, best within the radius `aperture`, else within `limit`; nan: none."""
    height = sag(c, conic, terms, np.linspace(0.0, limit, 800))
    margin = 1e-9 + 0.01 * (np.max(height) - np.min(height))
    x, y, z, l, m, n = (np.asarray(v, float) for v in (*p, *d))
    everything = np.array([[-np.inf], [np.inf]])
    with np.errstate(all="ignore"):
        # Where the ray is within the surface's depth, and within the cylinder r = limit.
        slab = np.sort(np.stack([(np.min(height) - margin - z) / n, (np.max(height) + margin - z) / n]), axis=0)
        slab = np.where(np.abs(n) > 1e-9, slab, everything)
        a, b, q = l * l + m * m, x * l + y * m, x * x + y * y - limit * limit
        root = np.sqrt(b * b - a * q)
        cylinder = np.where(a > 1e-24, np.stack([(-b - root) / a, (-b + root) / a]), everything)
        cylinder = np.where((a <= 1e-24) & (q > 0), np.nan, cylinder)
        start, end = np.maximum(slab[0], cylinder[0]), np.minimum(slab[1], cylinder[1])
        possible = (start < end) & np.isfinite(start) & np.isfinite(end)
        start, end = np.where(possible, start, 0.0), np.where(possible, end, 0.0)

        count = 241 if terms else 33
        t = start + (end - start) * np.linspace(0.0, 1.0, count)[:, None]
        g = _miss(c, conic, terms, np.asarray(p, float), np.asarray(d, float), t)
        rising = (g[:-1] <= 0) & (g[1:] > 0) & possible
        here = _miss(c, conic, terms, np.asarray(p, float), np.asarray(d, float), np.zeros((1, t.shape[1])))[0]
    x, y = p[0] + t[:-1] * d[0], p[1] + t[:-1] * d[1]
    on_glass = rising & (x * x + y * y < aperture**2)
    rising = np.where(on_glass.any(0), on_glass, rising)
    forwards, backwards = rising & (t[1:] >= -1e-9), rising & (t[:-1] <= 1e-9)
    first = np.where(forwards.any(0), np.argmax(forwards, 0), -1)
    last = np.where(backwards.any(0), count - 2 - np.argmax(backwards[::-1], 0), -1)
    behind = np.isfinite(here) & (here > 1e-9)
    chosen = np.where(behind, np.where(last >= 0, last, first), np.where(first >= 0, first, last))
    index, column = np.maximum(chosen, 0), np.arange(t.shape[1])
    low, high = t[index, column].astype(LONG), t[index + 1, column].astype(LONG)
    parts = np.linspace(0.0, 1.0, 17)[1:-1, None].astype(LONG)
    for _ in range(ROUNDS):
        inside = low + (high - low) * parts
        behind_at = _miss(c, conic, terms, p, d, inside) > 0
        step = (high - low) / 16
        low = low + step * np.where(behind_at.any(0), np.argmax(behind_at, 0), 15)
        high = low + step
    return np.where(chosen >= 0, (low + high) / 2, np.nan)


def _miss(c, conic, terms, p, d, t):  # type: ignore[no-untyped-def]
    x, y, z = (p[i] + t * d[i] for i in range(3))
    return z - sag(c, conic, terms, np.sqrt(x * x + y * y))


def refract(d: np.ndarray, normal: np.ndarray, n: np.ndarray, n_behind: np.ndarray) -> np.ndarray:
    """Snell's law for wave vectors; nan where the wave behind would be evanescent or the surface is met from behind."""
    k = n.astype(LONG) * d
    along = np.sum(k * normal, axis=0)
    tangential = k - along * normal
    square = n_behind.astype(LONG) ** 2 - np.sum(tangential**2, axis=0)
    ok = (square > 0) & (along > 0)
    behind = tangential + normal * np.sqrt(np.where(ok, square, np.nan))
    return behind / np.sqrt(np.sum(behind**2, axis=0))


def trace(
    lens: Lens, wavelength_nm: float | np.ndarray, position: np.ndarray, direction: np.ndarray, path: np.ndarray
) -> Outcome:
    """Trace rays [3, rays], given in the first vertex's frame, through the lens; one wavelength (nm) or one per ray."""
    p, d, total = (np.asarray(v).astype(LONG) for v in (position, direction, path))
    rays = p.shape[1]
    wavelengths = np.broadcast_to(wavelength_nm, rays)
    index = np.empty((len(lens.surfaces) + 1, rays))
    for w in np.unique(wavelengths):
        index[:, wavelengths == w] = refractive_indices(lens, float(w))[:, None]
    died_at = np.full(rays, -1)
    clip = np.full(rays, -1.0)
    points = np.full((len(lens.surfaces), 3, rays), np.nan)
    limits = np.empty(len(lens.surfaces))
    farthest = 3.0 * max((s.semi_diameter or 50.0) for s in lens.surfaces)
    for i, s in enumerate(lens.surfaces):
        limits[i] = domain(s.curvature, s.conic, s.aspheric, s.semi_diameter, farthest)
        live = died_at < 0
        t = np.full(rays, np.nan, LONG)
        if live.any():
            glass = limits[i] if s.semi_diameter is None else s.semi_diameter
            t[live] = meet(s.curvature, s.conic, s.aspheric, limits[i], glass, p[:, live], d[:, live])
        at = p + t * d
        with np.errstate(all="ignore"):
            r = np.sqrt(at[0] ** 2 + at[1] ** 2)
            dz = np.where(r > 0, slope(s.curvature, s.conic, s.aspheric, r), 0) / np.where(r > 0, r, 1)
            normal = np.stack([-dz * at[0], -dz * at[1], np.ones_like(dz)])
            normal = normal / np.sqrt(np.sum(normal**2, axis=0))
            bent = refract(d, normal, index[i], index[i + 1])
        died_at = np.where(live & ~np.isfinite(bent[2]), i, died_at)
        points[i] = at
        semi = lens.aperture.value if i == lens.stop else s.semi_diameter
        if semi is not None:
            clip = np.fmax(clip, np.asarray(r, float) ** 2 / semi**2 - 1.0)
        total = total + index[i].astype(LONG) * t
        p, d = at - np.array([[0], [0], [s.thickness]], LONG), bent
    alive = died_at < 0
    return Outcome(p, d, total, alive, died_at, np.where(alive, clip, np.inf), points, limits)
