"""The pupil function on a grid of direction cosines, ready to be summed.

The grid is aligned with the photograph: the wavefront's meridian is turned to the field's azimuth. Phase and amplitude
come from tensor Chebyshev coefficients by two small matrix products each; the mask from the traced rim, with weights
of the cells that it cuts, never hard edges.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..optics.wavefront import AMPLITUDE_DEGREE, DEGREE, TABLE, Wavefront
from ..optics.zernike import basis, chebyshev, chebyshev_nodes, to_chebyshev

BORDER = 1.006  # of the rectangle beyond the rim, whose waves need cells outside: 1.5 of them where 500 are across

# atan(t) / t as a polynomial in t² for t from 0 to 1, highest power first: a least-squares fit, off by 7e-9.
ARC_TANGENT = (
    0.00239814, -0.01415235, 0.03934541, -0.07194385, 0.10477539, -0.14154806, 0.19984885, -0.33332524, 0.99999987,
)  # fmt: skip


class PupilFunction(eqx.Module):
    """A wavefront turned to the photograph's frame, as coefficients on the rectangle that holds its pupil."""

    centre: Float[Array, "*batch 2"]  # direction cosines x, y
    half: Float[Array, "*batch 2"]
    phase: Float[Array, "*batch orders orders"]  # Chebyshev coefficients of W, waves
    amplitude: Float[Array, "*batch amplitude_orders amplitude_orders"]
    rim: Float[Array, "*batch table"]
    pupil_centre: Float[Array, "*batch 2"]  # of the rim's polar coordinates
    meridian: Float[Array, "*batch 2"]  # unit vector of the field's azimuth
    wavelength: Float[Array, "*batch"]  # mm
    bend: Float[Array, "*batch 2"]  # 1/mm; mean direction over R
    side: Float[Array, "*batch"]  # 0: the whole pupil; 1 or −1: the right or left half of the lens
    split: Float[Array, "*batch"]  # direction cosine x that parts the halves


def pupil_shapes(*batch: int) -> PupilFunction:
    """The shapes of a batch of pupils."""

    def example() -> PupilFunction:
        number, pair, rim = (jnp.zeros((*batch, *shape)) for shape in ((), (2,), (TABLE + 1,)))
        phase, amplitude = (jnp.zeros((*batch, n + 1, n + 1)) for n in (DEGREE, AMPLITUDE_DEGREE))
        return PupilFunction(pair, pair, phase, amplitude, rim, pair, pair, number, pair, number, number)

    return jax.eval_shape(example)


def turn(wavefront: Wavefront, azimuth: Float[Array, ""], side: Float[Array, ""] | float = 0.0) -> PupilFunction:
    """The wavefront for an image point at `azimuth` (radians from +x towards +y, in the photograph).

    This is the one place where the lens's frame becomes the photograph's. The optical image stands on its head; the
    photograph shows it upright, turned by 180°. A lens looks the same after any turn about its axis, so turning the
    image point's meridian to where the point appears in the photograph is all that is needed.

    `side` 1 keeps the light of the lens's right half, −1 of its left, as the photographer behind the camera sees it:
    the two views of a dual-pixel sensor, whose microlenses part the light about the chief ray.
    """
    meridian = jnp.stack([jnp.cos(azimuth), jnp.sin(azimuth)])
    pupil_centre = _to_photograph(wavefront.centre[0], wavefront.centre[1], meridian)
    x, y = _rim_points(wavefront.rim, pupil_centre, meridian)
    low, high = jnp.stack([jnp.min(x), jnp.min(y)]), jnp.stack([jnp.max(x), jnp.max(y)])
    centre, half = (low + high) / 2.0, (high - low) / 2.0 * BORDER

    def change(coefficients: Float[Array, " modes"], degree: int) -> Float[Array, "orders orders"]:
        u, v = chebyshev_nodes(degree)
        sx, sy = centre[0] + half[0] * u, centre[1] + half[1] * v
        across, along = to_meridian(sx, sy, meridian)
        b = basis(
            (across - wavefront.centre[0]) / wavefront.radius,
            (along - wavefront.centre[1]) / wavefront.radius,
            degree,
        )
        return to_chebyshev(b @ coefficients, degree)

    return PupilFunction(
        centre=centre,
        half=half,
        phase=change(wavefront.phase, DEGREE),
        amplitude=change(wavefront.amplitude, AMPLITUDE_DEGREE),
        rim=wavefront.rim,
        pupil_centre=pupil_centre,
        meridian=meridian,
        wavelength=wavefront.wavelength,
        bend=pupil_centre * wavefront.bend,
        side=jnp.asarray(side, float),
        split=wavefront.chief * meridian[0],
    )


def rim_points(pupil: PupilFunction) -> Float[Array, "2 table"]:
    """Direction cosines of the rim's points, once around and back to the first."""
    return _rim_points(pupil.rim, pupil.pupil_centre, pupil.meridian)


def _rim_points(
    rim: Float[Array, " table"], centre: Float[Array, "2"], meridian: Float[Array, "2"]
) -> Float[Array, "2 table"]:
    psi = jnp.linspace(-jnp.pi, jnp.pi, TABLE + 1)
    return _to_photograph(rim * jnp.sin(psi), rim * jnp.cos(psi), meridian) + centre[:, None]


def _to_photograph(
    across: Float[Array, "*#n"], along: Float[Array, "*#n"], meridian: Float[Array, "2"]
) -> Float[Array, "2 *_"]:
    """(x, y) of components across and along the meridian; across points to the right when the meridian points up."""
    return jnp.stack([along * meridian[0] + across * meridian[1], along * meridian[1] - across * meridian[0]])


def to_meridian(
    x: Float[Array, "*#n"], y: Float[Array, "*#n"], meridian: Float[Array, "2"]
) -> tuple[Float[Array, "*#n"], Float[Array, "*#n"]]:
    """Components across and along the meridian."""
    return x * meridian[1] - y * meridian[0], x * meridian[0] + y * meridian[1]


def grid_axis(samples: int) -> Float[Array, " samples"]:
    """Cell centres over [−1, 1]."""
    return (jnp.arange(samples) + 0.5) / samples * 2.0 - 1.0


def sample_pupil(
    pupil: PupilFunction, samples: int, dtype: jnp.dtype = jnp.float32, *, rows: int | None = None
) -> tuple[Complex[Array, "samples samples"], Float[Array, ""], Float[Array, ""]]:
    """A(s) exp(2πi W(s) / λ) on samples × samples cells, rows along +y, zero outside the pupil; Σ A² and Σ A over it.

    A cell on the rim counts in Σ A² as it does in the sum of waves, not by its square as its amplitude would have it.
    With a number of `rows` (a divisor of the samples), a gradient samples so many of them again at a time on its way
    back, which stay in the cache; else it keeps 45 arrays of samples × samples numbers.
    """
    columns = grid_axis(samples).astype(dtype)

    def part(own: Float[Array, " rows"]) -> tuple[Complex[Array, "rows samples"], Float[Array, ""], Float[Array, ""]]:
        wave, amplitude, rim = _on_rows(pupil, own, columns, unit_normals=rows is None)
        angle = 2.0 * jnp.pi * (wave - jnp.round(wave))
        field = amplitude * _wave_weight(pupil, rim, columns, samples)
        energy, total = jnp.sum(amplitude * field, dtype=jnp.float64), jnp.sum(field, dtype=jnp.float64)
        cosine, sine = _cosine_and_sine(angle)
        return jax.lax.complex(field * cosine, field * sine), energy, total

    if rows is None:
        return part(columns)
    parts = jax.lax.map(jax.checkpoint(part, prevent_cse=False), columns.reshape(-1, rows))
    return parts[0].reshape(samples, samples), jnp.sum(parts[1]), jnp.sum(parts[2])


@jax.custom_jvp
def _cosine_and_sine(angle: Float[Array, "*any"]) -> tuple[Float[Array, "*any"], Float[Array, "*any"]]:
    return jnp.cos(angle), jnp.sin(angle)


@_cosine_and_sine.defjvp
def _cosine_and_sine_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    """Each is the other's derivative; the barrier keeps the compiler from computing them wherever they are used."""
    cosine, sine = jax.lax.optimization_barrier(_cosine_and_sine(*primals))  # type: ignore[no-untyped-call]
    return (cosine, sine), (-sine * tangents[0], cosine * tangents[0])


def pupil_mask(
    pupil: PupilFunction, samples: int, dtype: jnp.dtype = jnp.float32
) -> tuple[Float[Array, "samples samples"], Float[Array, "samples samples"], Float[Array, "samples samples"]]:
    """W in waves, A, and the part of each cell inside the pupil; rows along +y."""
    g = grid_axis(samples).astype(dtype)
    wave, amplitude, rim = _on_rows(pupil, g, g)
    return wave, amplitude, inside_part(pupil, rim, g, samples)


def _on_rows(
    pupil: PupilFunction,
    rows: Float[Array, " rows"],
    columns: Float[Array, " samples"],
    *,
    unit_normals: bool = True,
) -> tuple[Float[Array, "rows samples"], Float[Array, "rows samples"], RimDistance]:
    """W in waves, A, and the rim, of cells around some of the `rows`."""
    wave = on_grid(pupil.phase, rows, columns, DEGREE)
    amplitude = on_grid(pupil.amplitude, rows, columns, AMPLITUDE_DEGREE)
    return wave, amplitude, rim_of(pupil, rows, columns, unit_normals=unit_normals)


def on_grid(
    coefficients: Float[Array, "orders orders"],
    rows: Float[Array, " rows"],
    columns: Float[Array, " columns"],
    degree: int,
) -> Float[Array, "rows columns"]:
    """A polynomial on cells around `rows` (along +y) and `columns`, in their precision."""
    t_y, t_x = chebyshev(rows, degree), chebyshev(columns, degree)
    c = coefficients.astype(rows.dtype)
    # Low-precision matrix units would cost waves of phase here.
    return jnp.matmul(jnp.matmul(t_y, c, precision="highest"), t_x.T, precision="highest")


class RimDistance(eqx.Module):
    """How far the cells of a grid lie inside the rim."""

    inside: Float[Array, "rows columns"]  # direction cosines, along the normal; negative outside
    normal_x: Float[Array, "rows columns"]  # of the rim, where it is nearest
    normal_y: Float[Array, "rows columns"]


def rim_of(
    pupil: PupilFunction, rows: Float[Array, " rows"], columns: Float[Array, " columns"], *, unit_normals: bool = True
) -> RimDistance:
    """The rim as cells around `rows` (along +y) and `columns` see it; both in halves of the pupil's rectangle.

    Without `unit_normals` distances and normals are both as much too long, which is all the same to `inside_part` and
    spares its gradient half of the time.
    """
    dtype = rows.dtype
    half = pupil.half.astype(dtype)
    offset = (pupil.centre - pupil.pupil_centre).astype(dtype)
    meridian = pupil.meridian.astype(dtype)
    x = (offset[0] + half[0] * columns)[None, :]
    y = (offset[1] + half[1] * rows)[:, None]
    across, along = to_meridian(x, y, meridian)
    rho = jnp.sqrt(across**2 + along**2)
    place = (_angle(across, along) + jnp.pi) * (TABLE / (2.0 * jnp.pi))
    lower = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, TABLE - 1)
    table = pupil.rim.astype(dtype)
    inner, outer = table[lower], table[lower + 1]
    rim = inner + (outer - inner) * (place - lower)
    # The rim's normal, in polar components: (1, −ρ'/ρ) over its length.
    tilt = (outer - inner) * (TABLE / (2.0 * jnp.pi)) / jnp.maximum(rim, 1e-12)
    length = jnp.sqrt(1.0 + tilt**2) if unit_normals else 1.0
    unit = 1.0 / jnp.maximum(rho, 1e-12)
    radial_x, radial_y = x * unit, y * unit
    perp_x, perp_y = _to_photograph(along * unit, -across * unit, meridian)  # towards growing ψ
    return RimDistance((rim - rho) / length, (radial_x - tilt * perp_x) / length, (radial_y - tilt * perp_y) / length)


def _angle(y: Float[Array, "*#n"], x: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """The angle of (x, y) from +x, in radians; in single precision to 3e-7 in a twentieth of the compiler's time."""
    if y.dtype != jnp.float32:
        return jnp.arctan2(y, x)
    width, height = jnp.abs(x), jnp.abs(y)
    slope = jnp.minimum(width, height) / jnp.maximum(jnp.maximum(width, height), 1e-30)
    angle = jnp.full_like(slope, ARC_TANGENT[0])
    for term in ARC_TANGENT[1:]:
        angle = angle * slope**2 + term
    angle *= slope
    angle = jnp.where(height > width, jnp.pi / 2.0 - angle, angle)
    angle = jnp.where(x < 0.0, jnp.pi - angle, angle)
    return jnp.where(y < 0.0, -angle, angle)


def inside_part(
    pupil: PupilFunction, rim: RimDistance, columns: Float[Array, " columns"], samples: int
) -> Float[Array, "rows columns"]:
    """The part of each cell that lies inside the rim, from the signed distance to it; `samples` across the pupil."""
    distance, half = _in_cells(pupil, rim, columns, samples)
    return _covered(distance) * half


def _wave_weight(
    pupil: PupilFunction, rim: RimDistance, columns: Float[Array, " columns"], samples: int
) -> Float[Array, "rows columns"]:
    """What each cell counts in a sum of waves, where all of it shines from its middle.

    The parts inside are the pupil blurred by a cell: waves from the rim get weaker with the distance from where its
    rays land, by sinc. Less a 24th of their second difference they have the pupil's second moments; a cell within the
    rim then counts by up to 1/24 too much, one beyond it by as much less than nothing. Where the lens is parted, along
    a line of cells, the parts themselves are nearer to the truth: waves from there reach beyond the replicas.
    """
    distance, half = _in_cells(pupil, rim, columns, samples)
    covered = _covered(distance)
    change = _covered(distance + 1.0) - 2.0 * covered + _covered(distance - 1.0)
    return (covered - change / 24.0) * half


def _in_cells(
    pupil: PupilFunction, rim: RimDistance, columns: Float[Array, " columns"], samples: int
) -> tuple[Float[Array, "rows columns"], Float[Array, "*columns"]]:
    """How many cells each one lies inside the rim, and its part in the half of the lens whose light it is."""
    dtype = columns.dtype
    half = pupil.half.astype(dtype)
    cell = (jnp.abs(rim.normal_x) * half[0] + jnp.abs(rim.normal_y) * half[1]) * (2.0 / samples)
    side = pupil.side.astype(dtype)
    from_split = (pupil.centre[0] - pupil.split).astype(dtype) + half[0] * columns
    part = _covered(side * from_split * (samples / 2.0) / half[0])
    return rim.inside / cell, jnp.where(side == 0.0, 1.0, part)


def _covered(distance: Float[Array, "*any"]) -> Float[Array, "*any"]:
    return jnp.clip(0.5 + distance, 0.0, 1.0)
