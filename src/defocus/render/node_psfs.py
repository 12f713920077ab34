"""The PSFs of a whole photograph: one for every layer, at nodes over the picture, as few as the lens's symmetry allows.

A lens is symmetric about its axis and the nodes are symmetric about the picture's middle, so the PSFs of the left half
are those of the right half mirrored, and likewise for top and bottom; mirroring moves whole pixels and loses nothing.
Turning a PSF to another azimuth would interpolate it and is not done. Blades break both symmetries; half a lens (dual
pixels) keeps that of top and bottom.

A lens may refuse a node: no light reaches it, or no smooth wavefront. Then the PSF of the nearest place that works, in
steps of 5 % towards the centre, stands in for it, and the report says so. If none works, that is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from ..errors import DefocusError, TraceError
from ..psf.bands import Bands
from ..psf.engine import FittedPsf, PsfOptions
from ..psf.method import Method
from ..psf.window import SPILL
from .composite import embedded
from .full_field import node_places

if TYPE_CHECKING:
    from ..camera import Camera

RETREAT = 0.05
AT_ONCE = 1024  # PSFs

Place = tuple[float, float]
Node = tuple[int, bool, bool]  # number of its place, whether it is mirrored left to right and top to bottom


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


@dataclass(frozen=True)
class _NodeRequest:
    """The PSF of one layer at one place, and the place that stands in for it."""

    place: Place
    tried: Place  # nearer to the centre where the place was refused
    layer: int
    refusal: str = ""

    def nearer(self, reason: str) -> _NodeRequest:
        """The same request a step towards the centre."""
        radius = math.hypot(*self.tried)
        smaller = max(radius - RETREAT, 0.0) / radius
        return replace(self, tried=(self.tried[0] * smaller, self.tried[1] * smaller), refusal=self.refusal or reason)


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
    light_mm2: list[list[float | None]]  # at each node, of the layer nearest to the focus; None: the method's unknown

    def at(self, row: int, column: int) -> list[Float[np.ndarray, "bands _ _"]]:
        """The PSF of each layer at a node, in odd windows: an even one has no mirror image about its point."""
        place, across, down = self.nodes[row][column]
        axes = tuple(axis for axis, flip in ((-1, across), (-2, down)) if flip)
        psfs = (self.psfs[place, source] for source in self.source)
        return [np.flip(embedded([psf], psf.shape[-1] | 1)[0], axes) for psf in psfs]


def find_node_psfs(
    camera: Camera,
    fields: list[list[Place]],
    depth_m: Float[np.ndarray, "layers"],
    used: Bool[np.ndarray, "layers"],
    *,
    bands: Bands,
    most_px: int,
    options: PsfOptions,
    method: Method = "wave",
    relative_illumination: bool = False,
    progress: Callable[[float], None] | None = None,
) -> NodePsfs:
    """Every PSF that the photograph needs. With `relative_illumination` they sum to it, otherwise to 1.

    A half of the lens has its share of the light, compared with a half on the axis: both views are then as bright there
    as the whole lens's, and off the axis, where one half is cut more than the other, their mean is.
    """
    places, nodes = _different(fields, across=camera.iris is None and options.side is None, down=camera.iris is None)
    layers = [int(i) for i in np.flatnonzero(used)]
    waiting = {(p, k): _NodeRequest(place, place, k) for p, place in enumerate(places) for k in layers}
    if relative_illumination:  # the axis (place −1), for the light that the others are compared with
        waiting |= {(-1, k): _NodeRequest((0.0, 0.0), (0.0, 0.0), k) for k in layers}
    total, computed, done = len(waiting), 0, 0.0

    def advance(more: float) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(min(done / total, 1.0))

    settled: dict[tuple[int, int], tuple[_NodeRequest, FittedPsf, float]] = {}
    while waiting:
        keys = list(waiting)[:AT_ONCE]
        batch = [waiting.pop(key) for key in keys]
        depths, at = [float(depth_m[r.layer]) for r in batch], [r.tried for r in batch]
        traced = camera.trace(depths, at, bands, method, depth_series=options.coarse)
        blur = camera.circle_of_confusion_px(np.array(depths))
        fitted = traced.fitted_psfs(blur, most_px, options, progress=advance)
        light = _light(traced, options) if relative_illumination else np.ones(len(batch))
        computed += len(batch)
        for key, request, psf, share in zip(keys, batch, fitted, light, strict=True):
            if psf.array is not None:
                settled[key] = request, psf, float(share)
            elif "energy_outside" in psf.report or math.hypot(*request.tried) == 0.0:
                _refuse(camera, request, psf, float(depth_m[request.layer]))
            else:
                waiting[key] = request.nearer(psf.report["status"])
    psfs = {key: _array(psf) for key, (_, psf, _) in settled.items()}
    if relative_illumination:
        psfs = {(p, k): psf * np.float32(settled[p, k][2] / settled[-1, k][2]) for (p, k), psf in psfs.items()}
    own = [(request, psf) for (p, _), (request, psf, _) in settled.items() if p >= 0]
    spill = max(psf.report["energy_outside"] for _, psf in own)
    sharpest = min(layers, key=lambda k: abs(camera.circle_of_confusion_px(float(depth_m[k]))))
    return NodePsfs(
        max(32, *(psf.size for _, psf in own)),
        bands,
        computed,
        spill,
        _refusals([request for request, _ in own], depth_m),
        _notes([request for request, _ in own], spill),
        nodes,
        psfs,
        [layers[int(np.argmin(np.abs(np.array(layers) - i)))] for i in range(len(used))],
        [[settled[place, sharpest][1].report.get("light_mm2") for place, _, _ in row] for row in nodes],
    )


def _array(psf: FittedPsf) -> Float[np.ndarray, "bands size size"]:
    assert psf.array is not None
    return psf.array


def _light(traced: Any, options: PsfOptions) -> Float[np.ndarray, " requests"]:
    """What illuminates each place, up to a factor: the pupil's area, and of half a lens its share of the light."""
    areas = traced.pupil_areas()
    return areas if options.side is None else areas * traced.light(options.side) / traced.light()


def _refuse(camera: Camera, request: _NodeRequest, psf: FittedPsf, depth_m: float) -> None:
    if "energy_outside" not in psf.report:
        raise TraceError(
            f"{camera.lens.name}, depth {depth_m:.4g} m, even in the middle of the picture: {psf.report['status']}"
        )
    x, y = request.tried
    raise TraceError(
        f"{camera.lens.name}, field ({x:.2f}, {y:.2f}), depth {depth_m:.4g} m: {psf.report['energy_outside']:.0%} of "
        f"the light falls outside {psf.size} pixels, the largest kernel allowed: stop the lens down, focus elsewhere, "
        "render a smaller picture, or allow larger kernels"
    )


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


def _refusals(requests: Collection[_NodeRequest], depth_m: Float[np.ndarray, "layers"]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "field": [round(v, 4) for v in r.place],
            "depth_m": float(depth_m[r.layer]),
            "why": r.refusal,
            "taken_from": [round(v, 4) for v in r.tried],
        }
        for r in requests
        if r.refusal
    )


def _notes(requests: Collection[_NodeRequest], spill: float) -> tuple[str, ...]:
    notes = []
    refused = [r for r in requests if r.refusal]
    if refused:
        away = max(math.hypot(*r.place) - math.hypot(*r.tried) for r in refused)
        notes.append(
            f"{len(refused)} of {len(requests)} PSFs were refused ({refused[0].refusal}); each took the PSF of the "
            f"nearest place that works, at most {away:.2f} of the image radius nearer to the centre"
        )
    if spill > SPILL:
        notes.append(f"up to {spill:.1%} of a PSF's light falls outside its window; the rest was scaled to 1")
    return tuple(notes)
