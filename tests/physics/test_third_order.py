"""Third-order aberrations against real rays, against Seidel's sums, and against closed forms of thin lenses.

Signs: the marginal ray enters at +y, the field's image lies at +y. TSC is then the height of the marginal ray on the
paraxial image plane, negative for an undercorrected lens; CC is the distance of the mean of the two meridional rim rays
from the chief ray, positive away from the axis; TAC is half the difference between the meridional and the sagittal rim
ray's own transverse aberration.
"""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus.lens.prescription import D_LINE_NM, Lens
from defocus.optics.aberrations import third_order
from defocus.optics.paraxial import FirstOrder
from defocus.optics.system import pack, refractive_indices

from . import oracle
from .harness import SMALL, first_order_batch
from .samples import INF, double_gauss, fisheye, lens, phone, squared_term

third_orders = jax.jit(jax.vmap(third_order))
FIELD = 0.2  # radians; its tangent scales the third-order terms, nothing else


def sums(lenses: list[Lens], half_field: float = FIELD) -> list[np.ndarray]:
    """TSC, CC, TAC by surface: [3, surfaces] for each of up to eight lenses."""
    filled = [*lenses, *[lenses[-1]] * (8 - len(lenses))]
    batch = third_orders(pack(filled, bucket=SMALL), jnp.full(8, half_field))
    stacked = np.stack([np.asarray(batch.tsc), np.asarray(batch.cc), np.asarray(batch.tac)], axis=1)
    for one, padded in zip(lenses, stacked, strict=False):
        assert not padded[:, len(one.surfaces) :].any()  # padding adds nothing
    return [padded[:, : len(one.surfaces)] for one, padded in zip(lenses, stacked, strict=False)]


def first(one: Lens) -> FirstOrder:
    data = first_order_batch(pack([one] * 8, bucket=SMALL))
    return FirstOrder(**{name: getattr(data, name)[0] for name in FirstOrder.__dataclass_fields__})


def seidel(one: Lens, half_field: float = FIELD) -> np.ndarray:
    """The same from Seidel's coefficients as Welford writes them, S_I = −A² y Δ(u/n), in plain numpy.

    TSC = S_I / (2 n' u'), CC = 3 S_II / (2 n' u'), TAC = S_III / (2 n' u').
    """
    index = refractive_indices(one, D_LINE_NM)
    data = first(one)
    y, u = float(data.entrance_pupil_radius), 0.0
    y_bar, u_bar = -float(data.entrance_pupil) * math.tan(half_field), math.tan(half_field)
    rows = []
    for i, s in enumerate(one.surfaces):
        n, n_behind = index[i], index[i + 1]
        terms = dict(s.aspheric)
        c = s.curvature + 2 * terms.get(2, 0.0)
        a, a_bar = n * (u + y * c), n * (u_bar + y_bar * c)
        u_next = (n * u - y * c * (n_behind - n)) / n_behind
        u_bar_next = (n * u_bar - y_bar * c * (n_behind - n)) / n_behind
        jump = y * (u_next / n_behind - u / n)
        fourth = terms.get(4, 0.0) + (1 + s.conic) * s.curvature**3 / 8 - c**3 / 8
        bump = 8 * fourth * (n_behind - n)
        rows.append(
            (
                -(a**2) * jump + bump * y**4,
                -a * a_bar * jump + bump * y**3 * y_bar,
                -(a_bar**2) * jump + bump * y**2 * y_bar**2,
            )
        )
        y, y_bar = y + u_next * s.thickness, y_bar + u_bar_next * s.thickness
        u, u_bar = u_next, u_bar_next
    return np.array(rows).T * np.array([[1], [3], [1]]) / (2 * index[-1] * u)


def real(one: Lens, half_field: float = FIELD) -> np.ndarray:
    """TSC, CC and TAC from real rays as aperture and field shrink together, the fifth order extrapolated away."""
    data = first(one)
    shift = float(data.back_focal_distance - data.image_plane)
    focal = float(data.focal_length * data.object_index / data.image_index)
    rim, pupil = float(data.entrance_pupil_radius), float(data.entrance_pupil)

    def at(scale: float) -> np.ndarray:
        slope = scale * math.tan(half_field)
        # axial rim ray; chief, upper and lower rim, sagittal rim of the field
        x = scale * rim * np.array([0.0, 0.0, 0.0, 0.0, 1.0])
        y = scale * rim * np.array([1.0, 0.0, 1.0, -1.0, 0.0])
        tangent = slope * np.array([0.0, 1.0, 1.0, 1.0, 1.0])
        position = np.stack([x, y, np.full(5, pupil)]).astype(oracle.LONG)
        direction = np.stack([0 * tangent, tangent, np.ones(5)]).astype(oracle.LONG)
        direction /= np.sqrt(np.sum(direction**2, axis=0))
        out = oracle.trace(one, D_LINE_NM, position, direction, np.zeros(5))
        assert out.alive.all()
        landed = out.at_plane(shift)
        axial, chief, upper, lower, _ = landed[1] - oracle.LONG(focal) * tangent
        meridional, sagittal = (upper - lower) / 2, landed[0, 4]
        return np.array([axial, (upper + lower) / 2 - chief, (meridional - sagittal) / 2]) / scale**3

    coarse, middle, fine = at(0.04), at(0.02), at(0.01)
    once = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    return np.asarray((16 * once[1] - once[0]) / 15, float)


def bent_doublet(stop: int, front: float = 0.0, behind: float = 0.0) -> Lens:
    """Four surfaces of four kinds (conic, r⁴, sphere, r² and r⁴), a stop wherever it is wanted."""
    rows = [
        (40.0, 5.0, 1.6, -0.8),
        (-70.0, 4.0, 1.0, 0.0, {4: 3e-6}),
        (-35.0, 2.0, 1.7),
        (200.0, 60.0, 1.0, 1.5, {2: 1e-3, 4: -2e-6, 6: 1e-9}),
    ]
    if front:
        rows, stop = [(INF, front, 1.0), *rows], 0
    if behind:
        rows[-1] = (200.0, behind, 1.0, 1.5, {2: 1e-3, 4: -2e-6, 6: 1e-9})
        rows, stop = [*rows, (INF, 60.0 - behind, 1.0)], 4
    return lens("bent doublet", rows, stop, 6.0)


CASES = {
    "double Gauss": double_gauss(),
    "phone": phone(),
    "fisheye": fisheye(),
    "r² terms and a curved stop": squared_term(),
    "stop on a conic": bent_doublet(0),
    "stop inside, on an asphere": bent_doublet(1),
    "stop in front": bent_doublet(0, front=12.0),
    "stop behind": bent_doublet(0, behind=8.0),
}


@pytest.fixture(scope="module")
def computed() -> dict[str, np.ndarray]:
    return dict(zip(CASES, sums(list(CASES.values())), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_sums_against_real_rays(name: str, computed: dict[str, np.ndarray]) -> None:
    total, measured = computed[name].sum(axis=1), real(CASES[name])
    # Where surfaces cancel, the tolerance is a part of what they cancel.
    scale = np.maximum(np.abs(total), 1e-3 * np.abs(computed[name]).sum(axis=1))
    assert (np.abs(total - measured) < 1e-7 * scale).all(), (total, measured)


@pytest.mark.parametrize("name", CASES)
def test_every_surface_against_seidel(name: str, computed: dict[str, np.ndarray]) -> None:
    expected = seidel(CASES[name])
    largest = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(computed[name] - expected) < 1e-10 * largest).all()


def test_every_surface_against_real_rays(computed: dict[str, np.ndarray]) -> None:
    """The first k surfaces are a lens of their own: its real rays give the partial sums, hence each surface.

    A contribution is n'u' at the image times an invariant of the surface, so partial sums scale by that ratio.
    """
    for name in ("stop on a conic", "stop inside, on an asphere"):
        whole = CASES[name]
        index = refractive_indices(whole, D_LINE_NM)
        marginal = marginal_slopes(whole)
        for k in range(2, len(whole.surfaces) + 1):
            part = replace(whole, surfaces=whole.surfaces[:k])
            ratio = index[k] * marginal[k - 1] / (index[-1] * marginal[-1])
            partial = computed[name][:, :k].sum(axis=1) / ratio
            assert real(part) == pytest.approx(partial, rel=1e-6), (name, k)


def marginal_slopes(one: Lens) -> list[float]:
    """Slope of the marginal ray behind each surface."""
    index = refractive_indices(one, D_LINE_NM)
    y, u = float(first(one).entrance_pupil_radius), 0.0
    slopes = []
    for i, s in enumerate(one.surfaces):
        c = s.curvature + 2 * dict(s.aspheric).get(2, 0.0)
        u = (index[i] * u - y * c * (index[i + 1] - index[i])) / index[i + 1]
        y += u * s.thickness
        slopes.append(u)
    return slopes


@pytest.mark.parametrize("shape", [-2.0, -1.0, 0.0, 0.7, 1.0, 2.0])
def test_thin_lens_spherical_aberration(shape: float) -> None:
    """1/l_h − 1/l_p of a thin lens bent by its shape factor q, object at infinity (Jenkins and White, chapter 9)."""
    n, f, rim = 1.5, 100.0, 5.0
    c1 = (shape + 1) / (2 * f * (n - 1))
    c2 = (shape - 1) / (2 * f * (n - 1))
    radii = [1 / c if c else INF for c in (c1, c2)]
    thin = lens("thin", [(radii[0], 0.0, n), (radii[1], f, 1.0)], 0, rim)
    p = -1.0
    bracket = (n + 2) / (n - 1) * shape**2 + 4 * (n + 1) * p * shape + (3 * n + 2) * (n - 1) * p**2 + n**3 / (n - 1)
    difference = rim**2 / (8 * f**3) / (n * (n - 1)) * bracket
    longitudinal = -(f**2) * difference  # marginal focus minus paraxial focus
    tsc = sums([thin])[0].sum(axis=1)[0]
    assert tsc == pytest.approx(longitudinal * rim / f, rel=1e-12)
    assert tsc < 0  # every single positive lens is undercorrected


@pytest.mark.parametrize("shape", [-1.0, 0.0, 1.0])
def test_thin_lens_astigmatism_does_not_depend_on_its_shape(shape: float) -> None:
    """With the stop at the lens S_III = H² φ, whatever the bending."""
    n, f, rim, field = 1.5, 100.0, 5.0, FIELD
    c1, c2 = (shape + 1) / (2 * f * (n - 1)), (shape - 1) / (2 * f * (n - 1))
    thin = lens("thin", [(1 / c1 if c1 else INF, 0.0, n), (1 / c2 if c2 else INF, f, 1.0)], 0, rim)
    invariant = rim * math.tan(field)
    tac = sums([thin])[0].sum(axis=1)[2]
    assert tac == pytest.approx(invariant**2 / f / (2 * -rim / f), rel=1e-12)
    # Half the distance between the focal lines times the marginal slope: y'² / (2 f) · rim / f, y' the image height.
    assert tac == pytest.approx(-((f * math.tan(field)) ** 2) / (2 * f) * rim / f, rel=1e-12)


def test_cartesian_surface_has_no_spherical_aberration() -> None:
    """A plano-convex lens, flat side to infinity, whose rear surface is the hyperboloid κ = −n²."""
    n = 1.6
    perfect = lens("plano-hyperbolic", [(INF, 5.0, n), (-30.0, 50.0, 1.0, -(n**2))], 0, 10.0)
    sphere = lens("plano-convex", [(INF, 5.0, n), (-30.0, 50.0, 1.0)], 0, 10.0)
    (with_conic, without) = sums([perfect, sphere])
    assert abs(with_conic.sum(axis=1)[0]) < 1e-14
    assert without.sum(axis=1)[0] < -0.1
    # With the stop far from it, the conic acts on coma and astigmatism too: both still agree with real rays.
    shifted = replace(perfect, surfaces=(replace(perfect.surfaces[0], thickness=25.0), perfect.surfaces[1]))
    assert sums([shifted])[0].sum(axis=1)[1:] == pytest.approx(real(shifted)[1:], rel=1e-5)


def test_an_r2_term_is_a_curvature() -> None:
    """A plane with r² and r⁴ terms of a sphere's own expansion has the sphere's aberrations."""
    c = 1 / 40.0
    ball = lens("sphere", [(40.0, 5.0, 1.6), (-90.0, 60.0, 1.0)], 0, 8.0)
    series = lens("series", [(INF, 5.0, 1.6, 0.0, {2: c / 2, 4: c**3 / 8}), (-90.0, 60.0, 1.0)], 0, 8.0)
    split = lens("split", [(80.0, 5.0, 1.6, 0.0, {2: c / 4, 4: 7 * c**3 / 64}), (-90.0, 60.0, 1.0)], 0, 8.0)
    expected, *others = sums([ball, series, split])
    for other in others:
        assert other == pytest.approx(expected, rel=1e-12)


def test_scaling_with_aperture_and_field() -> None:
    """TSC ∝ a³, CC ∝ a² tan w, TAC ∝ a tan² w."""
    base = CASES["stop inside, on an asphere"]
    half = replace(base, aperture=replace(base.aperture, value=base.aperture.value / 2))
    full, halved = sums([base, half])
    assert halved / full == pytest.approx(np.array([[1 / 8], [1 / 4], [1 / 2]]) * np.ones_like(full), rel=1e-12)
    wider = sums([base], math.atan(2 * math.tan(FIELD)))[0]
    assert wider / full == pytest.approx(np.array([[1.0], [2.0], [4.0]]) * np.ones_like(full), rel=1e-12)


def test_stop_shift() -> None:
    """Moving the stop of a lens by L changes CC/3 by q TSC and TAC by 2 q CC/3 + q² TSC, q = L tan w / aperture."""
    glass, rim = [(80.0, 3.0, 1.5), (-60.0, 70.0, 1.0)], 5.0
    here = lens("stop at the lens", [(INF, 0.0, 1.0), *glass], 0, rim)
    away = lens("stop in front", [(INF, 20.0, 1.0), *glass], 0, rim)
    (tsc, cc, tac), (tsc_away, cc_away, tac_away) = (values.sum(axis=1) for values in sums([here, away]))
    q = 20.0 * math.tan(FIELD) / rim
    assert tsc_away == pytest.approx(tsc, rel=1e-12)
    assert cc_away == pytest.approx(cc + 3 * q * tsc, rel=1e-12)
    assert tac_away == pytest.approx(tac + 2 * q * cc / 3 + q**2 * tsc, rel=1e-12)
    for one in (here, away):
        assert np.array_equal(np.sign(sums([one])[0].sum(axis=1)), np.sign(real(one)))
