"""Derivatives of merit functions against finite differences, forwards and backwards, with rays that fail among them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from defocus import Camera
from defocus.errors import DefocusError
from defocus.lens import load_lens
from defocus.lens.prescription import Lens
from defocus.optics.focus import rms_spot
from defocus.optics.paraxial import first_order
from defocus.optics.pupil import chief_ray, launch
from defocus.optics.rim import Rim, find_rim
from defocus.optics.system import System, pack
from defocus.optics.trace import Rays, trace
from defocus.optics.wavefront import AMPLITUDE_DEGREE, DEGREE, TABLE
from defocus.psf import stored_gradient
from defocus.psf.poses import focused_sensor
from defocus.psf.pupil_function import PupilFunction, sample_pupil
from defocus.psf.stored_gradient import StoredGradient
from defocus.stored_program import QUICK

from .harness import PLAIN, SMALL, trace_items
from .samples import double_gauss, odd_asphere, phone

NAMES = ("curvature", "conic", "even", "odd", "thickness", "index")
PLANE = 0.05  # mm behind the image plane


def merit(parameters: dict[str, jax.Array], system: System, rays: Rays) -> jax.Array:
    """RMS spot on a fixed plane, of fixed rays."""
    changed = eqx.tree_at(lambda s: [getattr(s, n) for n in NAMES], system, [parameters[n] for n in NAMES])
    return rms_spot(trace(changed, rays), PLANE)


# A few hundred small calls: programs that compile twice as fast.
value = jax.jit(merit, compiler_options=QUICK)
reverse = jax.jit(jax.grad(merit), compiler_options=QUICK)
forward = jax.jit(
    lambda p, s, r, tangent: jax.jvp(lambda q: merit(q, s, r), (p,), (tangent,))[1], compiler_options=QUICK
)
focal_length = jax.jit(lambda c, s: first_order(eqx.tree_at(lambda t: t.curvature, s, c)).focal_length)
focal_gradient = jax.jit(jax.grad(focal_length))


def parameters_of(system: System) -> dict[str, jax.Array]:
    return {name: getattr(system, name) for name in NAMES}


def one_system(one: Lens) -> System:
    return pack([one], bucket=SMALL)[0]


def skew_beam(radius: float, slope: float, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Rays of a distant point over a disc on the plane z, wide enough that the outermost fail."""
    angle = np.linspace(0.0, 2 * np.pi, 9, endpoint=False)
    rings = np.concatenate([[0.0], *[np.full(9, r) for r in (0.35, 0.7, 0.95, 1.6, 3.0)]])
    spokes = np.concatenate([[0.0], *[angle + 0.2 * k for k in range(5)]])
    x, y = radius * rings * np.cos(spokes), radius * rings * np.sin(spokes)
    direction = np.array([0.3 * slope, slope, np.sqrt(1 - 1.09 * slope**2)])
    return np.stack([x, y, np.full(x.size, z)]), np.repeat(direction[:, None], x.size, axis=1)


# lens, radius of the entrance pupil (mm), sine of the field angle, where the pupil lies
CASES = {
    "double Gauss": (double_gauss(), 12.0, 0.12, 20.0),
    "phone": (phone(), 0.9, 0.2, 1.0),
    "odd asphere": (odd_asphere(), 12.0, 0.1, 18.0),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):  # type: ignore[no-untyped-def]
    one, radius, slope, z = CASES[request.param]
    position, direction = skew_beam(radius, slope, z)
    position = position - direction * (z + 5.0) / direction[2]
    rays = Rays(jnp.asarray(position), jnp.asarray(direction), jnp.zeros(position.shape[1]))
    return one, one_system(one), rays


def steps(one: Lens, system: System) -> dict[str, np.ndarray]:
    """Step of each parameter: a sag of about ten nanometres at the rim of the widest beam."""
    radius = {"double Gauss": 14.0, "phone": 2.5, "odd asphere": 14.0}[one.name]
    shape = {name: np.asarray(getattr(system, name)).shape for name in NAMES}
    sag = 1e-5
    even, odd = (2 * np.arange(1, 11), 2 * np.arange(1, 11) + 1)
    return {
        "curvature": np.full(shape["curvature"], 2 * sag / radius**2),
        "conic": 0.1 * sag / (np.maximum(np.abs(np.asarray(system.curvature)), 1e-9) ** 3 * radius**4 / 8),
        "even": np.broadcast_to(sag / radius**even, shape["even"]),
        "odd": np.broadcast_to(sag / radius**odd, shape["odd"]),
        "thickness": np.full(shape["thickness"], 10 * sag),
        "index": np.full(shape["index"], 0.1 * sag),
    }


def test_gradient_of_the_spot(case) -> None:  # type: ignore[no-untyped-def]
    """Every curvature, conic, even and odd term, thickness and index against a five-point difference."""
    one, system, rays = case
    parameters = parameters_of(system)
    gradient = reverse(parameters, system, rays)
    traced = trace_items(
        [(one, 587.5618)],
        np.asarray(rays.position)[None],
        np.asarray(rays.direction)[None],
        np.asarray(rays.path)[None],
    )
    assert traced.passes.sum() > 15
    assert (~traced.alive).sum() > 2, "some rays should miss or be reflected, or the test is too kind"
    count = len(one.surfaces)
    checked = 0
    for name, size in steps(one, system).items():
        got = np.asarray(gradient[name])
        assert np.isfinite(got).all(), name
        largest = np.abs(got * size).max()
        for where in np.ndindex(got.shape):
            if where[0] >= count + (name == "index"):
                assert got[where] == 0.0 or name == "index", (name, where)  # padding
                continue
            if name == "conic" and float(system.curvature[where[0]]) == 0.0:
                continue
            if name in ("even", "odd") and where[1] not in (0, 1, 3, 8):
                continue

            def moved(by: float, name: str = name, where: tuple[int, ...] = where) -> float:
                return float(value(parameters | {name: parameters[name].at[where].add(by)}, system, rays))

            h = float(size[where])
            difference = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
            assert got[where] == pytest.approx(difference, rel=1e-5, abs=1e-6 * largest / h), (name, where)
            checked += 1
    assert checked > 80


def test_both_modes_agree(case) -> None:  # type: ignore[no-untyped-def]
    """A directional derivative forwards is the gradient's projection."""
    one, system, rays = case
    parameters = parameters_of(system)
    random = np.random.default_rng(5)
    tangent = {name: jnp.asarray(random.normal(size=size.shape) * size) for name, size in steps(one, system).items()}
    gradient = reverse(parameters, system, rays)
    projected = sum(float(jnp.sum(gradient[name] * tangent[name])) for name in NAMES)
    assert float(forward(parameters, system, rays, tangent)) == pytest.approx(projected, rel=1e-10)


def test_gradient_when_no_ray_passes(case) -> None:  # type: ignore[no-untyped-def]
    """All rays beside the lens: the merit and its gradient are zero, not nan."""
    _, system, rays = case
    beside = Rays(rays.position + jnp.array([0.0, 400.0, 0.0])[:, None], rays.direction, rays.path)
    parameters = parameters_of(system)
    assert float(value(parameters, system, beside)) == 0.0
    assert all(np.isfinite(np.asarray(g)).all() for g in reverse(parameters, system, beside).values())


def test_gradient_of_hopeless_rays(case) -> None:  # type: ignore[no-untyped-def]
    """Rays far outside, steep, tangential, even backwards: nothing that is not a number comes out."""
    _, system, rays = case
    random = np.random.default_rng(11)
    count = rays.path.shape[0]
    position = random.normal(size=(3, count)) * 100.0
    direction = random.normal(size=(3, count))
    direction[2, ::5] = 0.0
    direction[:, 1] = (0.0, 0.0, -1.0)
    position[:, 2], direction[:, 2] = 0.0, (0.0, 0.0, 1.0)
    direction /= np.linalg.norm(direction, axis=0)
    wild = Rays(jnp.asarray(position), jnp.asarray(direction), rays.path)
    parameters = parameters_of(system)
    assert np.isfinite(float(value(parameters, system, wild)))
    for name, got in reverse(parameters, system, wild).items():
        assert np.isfinite(np.asarray(got)).all(), name


def test_gradient_of_the_focal_length(case) -> None:  # type: ignore[no-untyped-def]
    one, system, _ = case
    got = np.asarray(focal_gradient(system.curvature, system))
    for i in range(len(one.surfaces)):
        h = 1e-6

        def moved(by: float, i: int = i) -> float:
            return float(focal_length(system.curvature.at[i].add(by), system))

        difference = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        assert got[i] == pytest.approx(difference, rel=1e-7, abs=1e-7 * np.abs(got).max())
    assert not got[len(one.surfaces) :].any()


def test_a_descent_step_improves_the_spot(case) -> None:  # type: ignore[no-untyped-def]
    """What the gradient is for."""
    _, system, rays = case
    parameters = parameters_of(system)
    gradient = reverse(parameters, system, rays)["curvature"]
    before = float(value(parameters, system, rays))
    step = 1e-3 * before / float(jnp.sum(gradient**2))
    after = float(value(parameters | {"curvature": parameters["curvature"] - step * gradient}, system, rays))
    assert after == pytest.approx(before * (1 - 1e-3), rel=1e-4)


def test_gradient_of_the_chief_ray() -> None:
    """At a fixed image height the chief ray's angle depends on every curvature, and its height on none."""
    system = pack([double_gauss()], bucket=PLAIN)[0]

    @partial(jax.jit, compiler_options=QUICK)
    def both(curvature: jax.Array, tangent: jax.Array):  # type: ignore[no-untyped-def]
        def chief(c: jax.Array) -> jax.Array:
            found = chief_ray(eqx.tree_at(lambda s: s.curvature, system, c), jnp.asarray(15.0), "image_height")
            return jnp.stack([found.image_height, found.angle, found.direction[1], found.position[1]])

        return jax.jvp(chief, (curvature,), (tangent,))

    for surface in (0, 2, 8, 10):
        unit = jnp.zeros_like(system.curvature).at[surface].set(1.0)
        _, derivative = both(system.curvature, unit)
        h = 1e-6
        ahead, behind = (both(system.curvature + s * h * unit, unit)[0] for s in (1.0, -1.0))
        difference = np.asarray((ahead - behind) / (2 * h))
        assert np.asarray(derivative) == pytest.approx(difference, rel=1e-5, abs=1e-4), surface
    first = both.__wrapped__  # compiler's options are for the outermost
    second = jax.jit(lambda c: jax.jvp(lambda c: first(c, unit)[1], (c,), (unit,))[1], compiler_options=QUICK)
    ahead, behind = (both(system.curvature + s * h * unit, unit)[1] for s in (1.0, -1.0))
    difference = np.asarray((ahead - behind) / (2 * h))
    assert np.asarray(second(system.curvature)) == pytest.approx(difference, rel=1e-5, abs=1e-3)


# One lens that its stop alone narrows; others whose light a second surface cuts, of the last two by a hair's breadth
# before or behind the first along many directions.
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("nikon-fisheye-10.5-f2.8", 0.95),
        ("canon-ef-70-200-f2.8", 0.95),
        ("nikon-noct-58-f0.95", 1.0),
        ("canon-ef-8-15-f4-fisheye", 1.0),
    ],
)
def test_rim_and_its_derivatives(name: str, field: float) -> None:
    """Radii, and their derivatives by the size of all clear apertures, against bisections of which rays pass."""
    camera = Camera(load_lens(name))
    system = jax.tree.map(jnp.asarray, camera.optics.system)
    chief = chief_ray(system, jnp.asarray(field * camera.image_radius_mm), "image_height")

    def sized(scale: Float[Array, ""]) -> System:
        semi = jnp.where(jnp.isfinite(system.semi_diameter), system.semi_diameter, 1e9)  # of the padding
        return eqx.tree_at(lambda s: s.semi_diameter, system, semi * scale)

    def radii(scale: Float[Array, ""]) -> tuple[Float[Array, " n"], Rim]:
        rim = find_rim(sized(scale), chief)
        return rim.radius, rim

    def bisected(scale: Float[Array, ""], rim: Rim) -> Float[Array, " n"]:
        def halve(_: int, ends: tuple[Float[Array, " n"], Float[Array, " n"]]) -> tuple[Float[Array, " n"], ...]:
            low, high = ends
            middle = (low + high) / 2.0
            rays = launch(chief, middle * jnp.sin(rim.angle), rim.centre + middle * jnp.cos(rim.angle), 0.0)
            passes = trace(sized(scale), rays).passes
            return jnp.where(passes, middle, low), jnp.where(passes, high, middle)

        return jax.lax.fori_loop(0, 50, halve, (0.97 * rim.radius, 1.03 * rim.radius))[0]

    both = jax.jit(lambda s: jax.jvp(radii, (s,), (1.0,), has_aux=True), compiler_options=QUICK)
    radius, slope, rim = both(1.0)
    truth = jax.jit(bisected, compiler_options=QUICK)
    assert np.asarray(radius) == pytest.approx(np.asarray(truth(1.0, rim)), rel=1e-6)
    step = 1e-7
    difference = (truth(1.0 + step, rim) - truth(1.0 - step, rim)) / (2.0 * step)
    assert np.asarray(slope) == pytest.approx(np.asarray(difference), rel=1e-4, abs=1e-4 * float(radius.max()))


def test_derivatives_of_the_focus() -> None:
    """The plane of least blur by a curvature and by the distance, twice: the rim of the beam moves with both."""
    system = jax.tree.map(jnp.asarray, Camera(load_lens("canon-rf-85-f1.2")).optics.system)
    at = (float(system.curvature[0]), 2000.0)

    def sensor(curvature: Float[Array, ""], focus_mm: Float[Array, ""]) -> Float[Array, ""]:
        changed = eqx.tree_at(lambda s: s.curvature, system, system.curvature.at[0].set(curvature))
        return focused_sensor(changed, first_order(changed), focus_mm)

    first = jax.grad(sensor, argnums=(0, 1))
    value, slopes = (jax.jit(f, compiler_options=QUICK) for f in (sensor, first))
    second = jax.jit(jax.jacfwd(first, argnums=(0, 1)), compiler_options=QUICK)(*at)
    for k, reach in enumerate((1e-7, 0.1)):
        step = reach * np.eye(2)[k]
        difference = float(value(*(at + step)) - value(*(at - step))) / (2.0 * reach)
        assert float(slopes(*at)[k]) == pytest.approx(difference, rel=1e-6)
        ahead, behind = (np.array(slopes(*(at + s * step))) for s in (1.0, -1.0))
        assert [float(row[k]) for row in second] == pytest.approx((ahead - behind) / (2.0 * reach), rel=1e-4)


def test_a_pupil_sampled_some_rows_at_a_time_has_the_same_gradient() -> None:
    flower = 0.1 * (1.0 + 0.05 * np.cos(3.0 * np.linspace(-np.pi, np.pi, TABLE + 1)))
    phase, amplitude = (0.3 ** np.add.outer(np.arange(n + 1), np.arange(n + 1)) for n in (DEGREE, AMPLITUDE_DEGREE))
    pair, number = jnp.array([0.02, -0.01]), jnp.array(0.0)
    meridian = np.array([np.cos(0.4), np.sin(0.4)])
    numbers = np.array([0.11, 0.12]), phase, amplitude, flower, pair, meridian, 5e-4, pair, number, number
    pupil = PupilFunction(pair, *map(jnp.asarray, numbers))
    weight = np.random.default_rng(0).normal(size=(2, 64, 64))

    def slope(rows: int | None) -> PupilFunction:
        def value(pupil: PupilFunction) -> jax.Array:
            field, energy, total = sample_pupil(pupil, 64, jnp.float64, rows=rows)
            return jnp.sum(field.real * weight[0] + field.imag * weight[1]) + energy + total

        return jax.jit(jax.grad(value), compiler_options=QUICK)(pupil)

    for whole, parts in zip(jax.tree.leaves(slope(None)), jax.tree.leaves(slope(8)), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_psfs_of_many_depths_by_vmap_are_those_of_a_loop() -> None:
    camera = Camera(load_lens("zeiss-tessar-50-f3.5"), focus_m=2.0)
    depths = jnp.array([2.5, 3.0, 4.0])

    def psf(depth: Float[Array, ""]) -> Float[Array, "size size"]:
        return camera.psf(depth, (0.3, 0.2), size=16, bands="d", samples=256, supersample=3).array[0]

    several = jax.jit(jax.vmap(psf), compiler_options=QUICK)(depths)
    for depth, got in zip(depths, several, strict=True):
        alone = camera.psf(float(depth), (0.3, 0.2), size=16, bands="d", samples=256, supersample=3, double=True)
        assert float(np.abs(np.asarray(got) - alone.array[0]).sum()) < 1e-6
    with pytest.raises(DefocusError, match="give a size"):
        jax.vmap(lambda depth: camera.psf(depth).array)(depths)


def test_a_stored_gradient_is_not_traced_again_and_has_every_derivative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = []

    def waves(lens: dict[str, jax.Array], depth: jax.Array, *, power: int) -> tuple[jax.Array, dict[str, jax.Array]]:
        traces.append(power)
        field = jnp.sin(lens["curvature"] * depth) ** power
        return field, {"sum": jnp.sum(field * lens["number"]), "depth": jnp.max(depth)}

    curvature, depth, number = np.linspace(0.2, 1.0, 4), np.linspace(0.7, 0.9, 4), np.arange(4)

    def loss(curvature: jax.Array, depth: jax.Array, *, plain: bool = False) -> jax.Array:
        function = (lambda *a: waves(*a, power=3)) if plain else StoredGradient(waves, power=3)
        field, report = function({"curvature": curvature, "number": number}, depth)
        return jnp.sum(field**2) + report["sum"]

    def jitted(function: Any) -> Any:
        return jax.jit(jax.grad(function))

    folder = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        first = jax.grad(loss, argnums=(0, 1))(curvature, depth)
        assert len(list(tmp_path.glob("jit_stored_*-cache"))) == 2  # there and back
        traces.clear()
        again = jax.grad(loss, argnums=(0, 1))(curvature, depth)
        assert not traces
        for one, other in zip(first, again, strict=True):
            np.testing.assert_array_equal(one, other)
        for derivative in (jax.grad, jax.jacfwd, jax.jacrev, jax.hessian, jitted):
            value, expected = (derivative(partial(loss, plain=plain))(curvature, depth) for plain in (False, True))
            np.testing.assert_allclose(value, expected, rtol=1e-12, err_msg=str(derivative))
        monkeypatch.setattr(stored_gradient, "MANY", 1)
        before, often = len(list(tmp_path.glob("jit_stored_*-cache"))), StoredGradient(waves, power=2)
        lens = {"curvature": curvature, "number": number}
        soon, fast = (jax.grad(lambda depth: often(lens, depth)[0].sum())(depth) for _ in "12")
        np.testing.assert_allclose(soon, fast, rtol=1e-12)
        assert len(list(tmp_path.glob("jit_stored_*-cache"))) == before + 4
    finally:
        jax.config.update("jax_compilation_cache_dir", folder)
