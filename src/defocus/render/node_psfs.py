"""The PSFs of a whole photograph: one for every layer, at nodes over the picture, as few as the lens's symmetry allows.

A lens is symmetric about its axis and the nodes are symmetric about the picture's middle, so the PSFs of the left half
are those of the right half mirrored, and likewise for top and bottom; mirroring moves whole pixels and loses nothing.
Turning a PSF to another azimuth would interpolate it and is not done. Blades break both symmetries; half a lens (dual
pixels) keeps that of top and bottom.

A PSF is computed in the smallest window that should hold it, from the layer's circle of confusion: work grows with the
window's third power. Where rays leave it and more than `SPILL` of the light falls outside, the window is doubled.

A photograph's pixels are many times larger than an Airy disc, and the PSF of a fast lens on them takes thousands of
samples across the pupil for fringes that no pixel shows. Unless asked for exact PSFs, diffraction is therefore widened
to a tenth of a pixel (`FRINGE_PX`; `psf.compute`). For a 50 mm f/2 lens on 960 × 640 pixels that changes PSFs by 0.03
to 0.06 in relative L1.

A lens may refuse a node: no light reaches it, or no smooth wavefront. Then the PSF of the nearest place that works, in
steps of 5 % towards the centre, stands in for it, and the report says so. If none works, that is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from ..errors import DefocusError, TraceError
from ..psf.compute import Side
from ..psf.spectrum import Bands
from .field import node_places

if TYPE_CHECKING:
    from .camera import Camera

WINDOWS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SPILL = 0.05  # of the light outside: from here on a larger window is tried
MOST_SPILL = 0.2  # from here on a PSF does not fit at all
ROOM_PX = 3.0  # around the circle of confusion, and a fifth of it: aberrations, diffraction
# Points per pixel and axis. From this blur radius on, fringes are so faint that so many points leave an error of about
# 0.01 in relative L1 even on pixels of 75 µm; smaller blurs take what they need.
LARGE_BLUR_PX = 2.0
SUPERSAMPLE = 9
FRINGE_PX = 1.0 / 12.0
RETREAT = 0.05

Place = tuple[float, float]
Node = tuple[int, bool, bool]  # number of its place, whether it is mirrored left to right and top to bottom


def window_for(coc_px: float) -> int:
    """Pixels across that should hold a PSF of this blur radius."""
    wanted = 2.0 * (1.2 * abs(coc_px) + ROOM_PX)
    return next((size for size in WINDOWS if size >= wanted), 32 * math.ceil(wanted / 32))


def node_fields(camera: Camera, size: tuple[int, int], nodes: tuple[int, int]) -> list[list[Place]]:
    """Field positions of the nodes of a photograph of `size` = (width, height), [row][column]."""
    step = camera.pixel_um * 1e-3 / camera.image_radius_mm
    across = (node_places(size[0], nodes[1]) - (size[0] - 1.0) / 2.0) * step
    up = ((size[1] - 1.0) / 2.0 - node_places(size[1], nodes[0])) * step
    corner = math.hypot(across[-1], up[0])
    if corner > 1.0 + 1e-6:
        covers = 2.0 * camera.image_radius_mm
        raise DefocusError(
            f"{camera.lens.name}: {size[0]}×{size[1]} pixels of {camera.pixel_um:.3g} µm have a diagonal of "
            f"{corner * covers:.3g} mm, its image circle one of {covers:.3g} mm: take smaller pixels, crop, or let the "
            "photograph fill the image circle"
        )
    scale = min(1.0, 1.0 / corner) if corner > 0.0 else 1.0  # rounding
    return [[(float(x * scale), float(y * scale)) for x in across] for y in up]


@dataclass
class _Request:
    """The PSF of one layer at one place, and what became of it."""

    place: Place
    tried: Place  # nearer to the centre where the place was refused
    depth_m: float
    coc_px: float
    window: int
    refused: str = ""
    psf: Float[np.ndarray, "bands size size"] | None = None
    area: float = math.nan  # of the whole pupil in directions of light: what illuminates the place
    light_mm2: float = math.nan  # of the incoming beam that the PSF comes from: with a side, of that half
    share: float = 1.0  # of the whole lens's light that comes through the half
    spill: float = 0.0


@dataclass(frozen=True)
class NodePsfs:
    """PSFs of the layers at the nodes; `at` is what `render_photograph` calls."""

    kernel_px: int
    bands: Bands
    computed: int  # those that were tried again count again
    worst_spill: float
    refused: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    nodes: list[list[Node]]
    psfs: dict[tuple[int, int], Float[np.ndarray, "bands size size"]]  # of a place and a layer, in their own windows
    source: list[int]  # for each layer the used layer whose PSF it has
    light_mm2: list[list[float]]  # that each node gets from the layer nearest to the focus, [row][column]

    def at(self, row: int, column: int) -> Float[np.ndarray, "layers bands size size"]:
        """The PSFs of all layers at a node."""
        place, across, down = self.nodes[row][column]
        made = np.zeros((len(self.source), len(self.bands.names), self.kernel_px, self.kernel_px), np.float32)
        for layer, source in enumerate(self.source):
            psf = self.psfs[place, source]
            first = self.kernel_px // 2 - psf.shape[-1] // 2
            made[layer, :, first : first + psf.shape[-1], first : first + psf.shape[-1]] = psf
        return mirrored(made, across, down)


def mirrored(psf: Float[np.ndarray, "*any size size"], across: bool, down: bool) -> Float[np.ndarray, "*any size size"]:
    """Mirrored about pixel size // 2, left to right and top to bottom; an even size has one row more on one side."""
    axes = tuple(axis for axis, wanted in ((-1, across), (-2, down)) if wanted)
    return np.roll(np.flip(psf, axes), 1 - psf.shape[-1] % 2, axes) if axes else psf


def find_node_psfs(
    camera: Camera,
    fields: list[list[Place]],
    coc_px: Float[np.ndarray, "layers"],
    depth_m: Float[np.ndarray, "layers"],
    used: Bool[np.ndarray, "layers"],
    *,
    bands: Bands,
    most_px: int,
    side: Side | None = None,
    relative_illumination: bool = False,
    exact: bool = False,
    progress: Callable[[float], None] | None = None,
) -> NodePsfs:
    """Compute every PSF that the photograph needs. With `relative_illumination` they sum to it, otherwise to 1.

    A half of the lens has its share of the light, compared with a half on the axis: both views are then as bright there
    as the whole lens's, and off the axis, where one half is cut more than the other, their mean is.
    """
    places, nodes = _different(fields, across=camera.iris is None and side is None, down=camera.iris is None)
    layers = [int(i) for i in np.flatnonzero(used)]

    def request(place: Place, layer: int) -> _Request:
        coc = float(coc_px[layer])
        return _Request(place, place, float(depth_m[layer]), coc, min(window_for(coc), most_px))

    wanted = {(p, k): request(place, k) for k in layers for p, place in enumerate(places)}
    # The axis, for the light that the others are compared with.
    axis = {k: request((0.0, 0.0), k) for k in layers} if relative_illumination else {}
    options: dict[str, Any] = {"relative_illumination": False, "fringe_px": None if exact else FRINGE_PX, "side": side}
    every = [*wanted.values(), *axis.values()]
    computed, open_ones = 0, every
    while open_ones:
        again: list[_Request] = []
        for part, window, fine in _batches(open_ones, exact):
            batch = camera.psfs(
                [r.depth_m for r in part], [r.tried for r in part], window, bands, supersample=fine, **options
            )
            computed += len(part)
            for r, psf, report in zip(part, batch.psf, batch.reports, strict=True):
                if not _settled(camera, r, psf, report, most_px):
                    again.append(r)
            if progress is not None:
                progress(sum(r.psf is not None for r in every) / len(every))
        open_ones = again
    if relative_illumination and side is not None:
        for part, window, fine in _batches(every, exact):
            whole = camera.psfs(
                [r.depth_m for r in part], [r.tried for r in part], window, bands, supersample=fine,
                **(options | {"side": None}),
            )  # fmt: skip
            for r, report in zip(part, whole.reports, strict=True):
                r.share = r.light_mm2 / report["light_mm2"]
    if relative_illumination:
        for (_, k), r in wanted.items():
            r.psf = _psf(r) * np.float32(r.area * r.share / (axis[k].area * axis[k].share))
    spill = max(r.spill for r in wanted.values())
    sharpest = min(layers, key=lambda k: abs(float(coc_px[k])))
    return NodePsfs(
        max(32, *(_psf(r).shape[-1] for r in wanted.values())),
        bands,
        computed,
        spill,
        _refusals(wanted.values()),
        _notes(wanted.values(), spill),
        nodes,
        {key: _psf(r) for key, r in wanted.items()},
        [layers[int(np.argmin(np.abs(np.array(layers) - i)))] for i in range(len(used))],
        [[wanted[place, sharpest].light_mm2 for place, _, _ in row] for row in nodes],
    )


def _psf(request: _Request) -> Float[np.ndarray, "bands size size"]:
    assert request.psf is not None
    return request.psf


def _settled(
    camera: Camera, r: _Request, psf: Float[np.ndarray, "bands size size"], report: dict[str, Any], most_px: int
) -> bool:
    """Take the PSF in, or change the request to what is to be tried next."""
    if report["status"] != "ok" and r.psf is not None:  # only the larger window was too much
        r.window = r.psf.shape[-1]
        return True
    if report["status"] != "ok":
        r.refused = r.refused or report["status"]
        radius = math.hypot(*r.tried)
        if radius == 0.0:
            raise TraceError(
                f"{camera.lens.name}, depth {r.depth_m:.4g} m, even in the middle of the picture: {report['status']}"
            )
        smaller = max(radius - RETREAT, 0.0) / radius
        r.tried = r.tried[0] * smaller, r.tried[1] * smaller
        return False
    r.spill = report["energy_outside"]
    larger = [size for size in WINDOWS if r.window < size <= most_px]
    if r.spill <= MOST_SPILL:
        r.psf, r.area, r.light_mm2 = psf, report["pupil_area"], report["light_mm2"]
    # Rays as well: coarse samples of a blur's fringes may miss some of its light, which is no reason to look for it.
    if r.spill > SPILL and report["blur_mm"] > r.window / 2.0 * camera.pixel_um * 1e-3 and larger:
        r.window = next((size for size in larger if size >= 2 * r.window), larger[-1])
        return False
    if r.psf is None:
        raise TraceError(
            f"{camera.lens.name}, field ({r.tried[0]:.2f}, {r.tried[1]:.2f}), depth {r.depth_m:.4g} m: {r.spill:.0%} "
            f"of the light falls outside {r.window} pixels, the largest kernel allowed: stop the lens down, focus "
            "elsewhere, render a smaller picture, or allow larger kernels"
        )
    return True


def _different(fields: list[list[Place]], *, across: bool, down: bool) -> tuple[list[Place], list[list[Node]]]:
    """The places that are no mirror images of each other, and for each node which one it is and how it is mirrored."""
    numbers: dict[Place, int] = {}
    nodes: list[list[Node]] = []
    for row in fields:
        nodes.append([])
        for x, y in row:
            flip_x, flip_y = across and x < 0.0, down and y < 0.0
            # Rounded: the two sides of a picture may differ in the last bit.
            place = (round(-x if flip_x else x, 9) + 0.0, round(-y if flip_y else y, 9) + 0.0)
            nodes[-1].append((numbers.setdefault(place, len(numbers)), flip_x, flip_y))
    return list(numbers), nodes


def _batches(requests: list[_Request], exact: bool) -> Iterator[tuple[list[_Request], int, int | None]]:
    """Requests of one window and one supersampling, no more at once than progress can be shown for."""
    at_once = 32 if jax.default_backend() == "cpu" else 1024
    groups: dict[tuple[int, int], list[_Request]] = {}
    for r in requests:
        fine = SUPERSAMPLE if abs(r.coc_px) >= LARGE_BLUR_PX and not exact else 0
        groups.setdefault((r.window, fine), []).append(r)
    for (window, fine), group in sorted(groups.items()):
        for start in range(0, len(group), at_once):
            yield group[start : start + at_once], window, fine or None


def _refusals(requests: Iterable[_Request]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "field": [round(v, 4) for v in r.place],
            "depth_m": r.depth_m,
            "why": r.refused,
            "taken_from": [round(v, 4) for v in r.tried],
        }
        for r in requests
        if r.refused
    )


def _notes(requests: Collection[_Request], spill: float) -> tuple[str, ...]:
    notes = []
    refused = [r for r in requests if r.refused]
    if refused:
        away = max(math.hypot(*r.place) - math.hypot(*r.tried) for r in refused)
        notes.append(
            f"{len(refused)} of {len(requests)} PSFs were refused ({refused[0].refused}); each took the PSF of the "
            f"nearest place that works, at most {away:.2f} of the image radius nearer to the centre"
        )
    if spill > SPILL:
        notes.append(f"up to {spill:.1%} of a PSF's light falls outside its window; the rest was scaled to 1")
    return tuple(notes)
