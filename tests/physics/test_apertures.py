"""The clear-aperture solver: what it promises, checked with rays that it did not trace."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus.errors import TraceError
from defocus.lens import Lens, Surface, list_lenses, load_lens
from defocus.optics.apertures import solve_clear_apertures
from defocus.optics.batch import over_lenses
from defocus.optics.pupil import chief_ray, launch, pupil_half_widths
from defocus.optics.system import Bucket, bucket_of, pack, pack_one
from defocus.optics.trace import trace

# No glass ends inside the beams of these, so that the edge fraction is what the solver was asked for.
UNLIMITED = (
    "fujifilm-fujinon-sw-65-f5.6",
    "kodak-aero-ektar-152-f3.5",
    "nikon-nikkor-21-f4",
    "pentax-67-100-f4-macro",
    "phone-us20140118844",
    "ricoh-gr-18-f2.8",
    "schneider-super-angulon-90-f8",
    "zeiss-biogon-19-f4.5",
    "zeiss-sonnar-180-f2.8",
)
LENSES, BUCKET = 100, Bucket(64, 10, 10)  # one compiled shape for all batches
DIRECTIONS, STEP = 12, 0.03
_ANGLES = jnp.linspace(-jnp.pi / 2.0, jnp.pi / 2.0, DIRECTIONS)
_WALK = jnp.concatenate([jnp.arange(0.0, 1.2, STEP), jnp.linspace(1.25, 2.5, 12)])  # pupil half widths


@dataclass
class Beam:
    """Rays of one field, [directions, steps] from the chief ray outwards."""

    at_stop: np.ndarray  # distance from the stop's centre over its radius
    alive: np.ndarray
    passes: np.ndarray

    @property
    def belongs(self) -> np.ndarray:
        """Rays that live and hang together with the chief ray inside the stop."""
        return np.cumprod(self.at_stop <= 1.0, axis=-1).astype(bool) & self.alive

    @property
    def filled(self) -> float:
        """Radius, over the stop's, within which no ray of the beam is blocked."""
        blocked = self.belongs & ~self.passes
        return float(self.at_stop[blocked].min()) if blocked.any() else 1.0


@jax.jit
def _beams(systems: Any, heights: Any) -> tuple[Any, Any, Any]:
    return over_lenses(lambda s, fields: over_lenses(lambda height: _beam(s, height), fields), systems, heights)


def _beam(system: Any, height: Any) -> tuple[Any, Any, Any]:
    chief = chief_ray(system, height, "image_height")
    half = pupil_half_widths(system, chief)
    x, y = ((h * d)[:, None] * _WALK for h, d in zip(half, (jnp.cos(_ANGLES), jnp.sin(_ANGLES)), strict=True))
    traced = trace(system, launch(chief, x.ravel(), y.ravel()))
    at_stop = jnp.hypot(*traced.stop_position) / system.semi_diameter[system.stop]
    return tuple(jnp.reshape(a, x.shape) for a in (at_stop, traced.alive, traced.passes))  # type: ignore[return-value]


def beams(lenses: list[Lens]) -> list[tuple[Beam, Beam]]:
    """The axial beam and that of the field's edge, for each lens."""
    padded = lenses + [lenses[-1]] * (LENSES - len(lenses))
    heights = jnp.array([[0.0, lens.image_radius] for lens in padded])
    at_stop, alive, passes = (np.asarray(a) for a in _beams(pack(padded, bucket=BUCKET), heights))
    pairs = [[Beam(at_stop[i, j], alive[i, j], passes[i, j]) for j in (0, 1)] for i in range(len(lenses))]
    return [(axis, edge) for axis, edge in pairs]


@functools.cache
def solved(name: str, edge_fraction: float) -> Lens:
    return solve_clear_apertures(load_lens(name), edge_fraction=edge_fraction)


def radii(lens: Lens) -> np.ndarray:
    return np.array([s.semi_diameter for s in lens.surfaces])


@pytest.fixture(scope="module")
def library() -> dict[str, Lens]:
    """Every built-in lens, in each of its states."""
    lenses = {entry.name: load_lens(entry.name) for entry in list_lenses()}
    states = {f"{name}@{s}": lens.in_state(s) for name, lens in lenses.items() for s in lens.state_names}
    return {name: lens for name, lens in lenses.items() if not lens.states} | states


@pytest.fixture(scope="module")
def library_beams(library: dict[str, Lens]) -> dict[str, tuple[Beam, Beam]]:
    return dict(zip(library, beams(list(library.values())), strict=True))


def test_axial_beam_passes_entirely(library_beams: dict[str, tuple[Beam, Beam]]) -> None:
    clipped = {name: axis.filled for name, (axis, _) in library_beams.items() if axis.filled < 1.0 - 1e-9}
    assert not clipped
    assert all(axis.belongs.sum() > DIRECTIONS / STEP / 2 for axis, _ in library_beams.values())


def test_no_ray_returns_from_outside_the_axial_beam(library_beams: dict[str, tuple[Beam, Beam]]) -> None:
    """Apertures that are too large let rays through that aberrations bend back into the stop."""
    assert not [name for name, (axis, _) in library_beams.items() if (axis.passes & ~axis.belongs).any()]


def test_edge_of_the_field_is_lit(library: dict[str, Lens], library_beams: dict[str, tuple[Beam, Beam]]) -> None:
    """Vignetting as lenses have it: a quarter of the pupil at least, and never more than the beam on the axis."""
    weight = np.asarray(_WALK) * (np.asarray(_WALK) < 1.2)
    for name, (axis, edge) in library_beams.items():
        light = (edge.passes * weight).sum() / (axis.passes * weight).sum()
        fraction = float(re.search(r"fills ([\d.]+)", " ".join(library[name].notes))[1])  # type: ignore[index]
        assert 0.25 <= light <= 1.05, f"{name}: {light:.3f} of the axial light, edge fraction {fraction}"


def sag(surface: Surface, r: np.ndarray) -> np.ndarray:
    root = 1.0 - (1.0 + surface.conic) * (surface.curvature * r) ** 2
    with np.errstate(invalid="ignore"):
        z = surface.curvature * r**2 / (1.0 + np.sqrt(root))
    return z + sum((a * r**p for p, a in surface.aspheric), np.zeros_like(r))


def test_no_surfaces_cross_inside_the_clear_apertures(library: dict[str, Lens]) -> None:
    for name, lens in library.items():
        media = [lens.object_medium, *(s.medium for s in lens.surfaces)]
        for i, (front, back) in enumerate(zip(lens.surfaces[:-1], lens.surfaces[1:], strict=True)):
            assert front.semi_diameter is not None
            assert back.semi_diameter is not None
            r = np.linspace(0.0, min(front.semi_diameter, back.semi_diameter), 200)
            gap = front.thickness + sag(back, r) - sag(front, r)
            # The stop and other surfaces that refract nothing are no bodies; they may stand inside a dome.
            bodies = lens.stop not in (i, i + 1) and media[i].nd != media[i + 1].nd != media[i + 2].nd
            if bodies and front.thickness > 0:
                assert np.all(gap > -2e-3), f"{name}: surfaces {i} and {i + 1} cross by {-gap.min():.4f} mm"


def test_edge_fraction_is_honoured() -> None:
    cases = [(name, fraction) for name in UNLIMITED for fraction in (0.5, 0.8)]
    for (name, fraction), (axis, edge) in zip(cases, beams([solved(*case) for case in cases]), strict=True):
        assert axis.filled == 1.0
        assert 0.98 * fraction <= edge.filled <= fraction + STEP + 0.02, f"{name}: {edge.filled:.3f} of {fraction}"


@pytest.mark.parametrize("name", UNLIMITED)
def test_radii_grow_with_the_edge_fraction(name: str) -> None:
    small, middle, large = (radii(solved(name, f)) for f in (0.5, 0.8, 1.0))
    assert np.all(small <= middle)
    assert np.all(middle <= large)
    assert np.any(small < 0.99 * large)


@pytest.mark.parametrize("name", ["zeiss-tessar-50-f3.5", "phone-us9316811", "canon-ef-15-f2.8-fisheye"])
def test_solving_again_changes_nothing(name: str) -> None:
    once = solved(name, 0.6)
    assert radii(solve_clear_apertures(once, edge_fraction=0.6)) == pytest.approx(radii(once), rel=1e-12)


def test_only_semi_diameters_change() -> None:
    lens = load_lens("minolta-35-70-f4@tele")
    again = solve_clear_apertures(lens)
    stripped = [replace(x, surfaces=tuple(replace(s, semi_diameter=None) for s in x.surfaces)) for x in (lens, again)]
    assert stripped[0] == stripped[1]
    assert again.surfaces[lens.stop].semi_diameter == pytest.approx(lens.aperture.value)


def test_margin_widens_the_axial_beam_alone() -> None:
    lens = load_lens("zeiss-sonnar-180-f2.8")
    tight, wide = (radii(solve_clear_apertures(lens, edge_fraction=0.01, margin=m)) for m in (1.0, 1.05))
    system = pack_one(lens)
    first = float(lens.aperture.value) / abs(float(_axial_heights(system)[lens.stop]))
    assert tight[0] == pytest.approx(first, rel=0.02)  # paraxially
    assert wide[0] == pytest.approx(1.05 * tight[0], rel=1e-6)
    assert wide[lens.stop] == tight[lens.stop]


def _axial_heights(system: Any) -> np.ndarray:
    """Heights of a paraxial ray that enters parallel to the axis at height 1, y–nu in plain numpy."""
    y, nu, heights = 1.0, 0.0, []
    for c, t, n, behind in zip(system.curvature, system.thickness, system.index, system.index[1:], strict=False):
        heights.append(y)
        nu -= y * float((behind - n) * c)
        y += nu * float(t / behind)
    return np.array(heights)


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.01, math.nan])
def test_edge_fraction_out_of_range(fraction: float) -> None:
    with pytest.raises(ValueError, match="edge_fraction"):
        solve_clear_apertures(load_lens("zeiss-tessar-50-f3.5"), edge_fraction=fraction)


def test_image_radius_out_of_reach() -> None:
    lens = replace(load_lens("zeiss-tessar-50-f3.5"), image_radius=500.0)
    with pytest.raises(TraceError, match=r"image radius of 500 mm is too large"):
        solve_clear_apertures(lens)


@pytest.mark.shared
def test_agrees_with_transcribed_apertures(shared: Any) -> None:
    """Over many lenses, ours are about as large as those that people read off the drawings."""
    from defocus.lens.formats import read_lens

    sources = [read_lens(p) for p in sorted((shared / "lenses" / "interchangeable").glob("*.json"))[::12]]
    ratios = []
    for source in [s for s in sources if bucket_of(s).surfaces == 16 and bucket_of(s).even == bucket_of(s).odd == 0]:
        ours = solve_clear_apertures(source)
        ratios += [a / b for i, (a, b) in enumerate(zip(radii(ours), radii(source), strict=True)) if i != source.stop]
    assert len(ratios) > 80
    assert 0.85 < np.median(ratios) < 1.1
