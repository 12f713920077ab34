"""Defocus as a transform of tensors, for training loops of one's own.

A setting is a lens with a stop, a focus distance and a place in the field. Its PSFs are computed by the engine of
photographs once, at rungs of equal blur (as far as pictures have needed them), and kept: what each picture costs is its
compositing (`render.composite`), from near to far, hidden parts filled in. A pixel between rungs belongs to both in
proportion. That is `Camera.photograph(..., patch=field, sensor=False)`, but for layers that stand at rungs instead of
at the mean blur of their pixels. PSFs change fastest near the focus: rungs stand a quarter of a pixel of blur radius
apart up to 4 px, and half a pixel beyond. What a lens changes in a portrait of at most 2 px of blur then differs by 0.8
%, which is as much as the camera's own layers, a pixel apart, are off (rungs half a pixel apart: 2.4 %).

Tensors go to JAX and back by DLPack, without a copy where both see one device. Nothing is differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DefocusError
from ._torch import Tensor, nn, torch

if TYPE_CHECKING:
    import jax

    from ..camera import Camera
    from ..lens import Lens
    from ..psf.bands import BandsLike

FINE_PX, FINE_RUNGS, COARSE_PX = 0.25, 16, 0.5  # blur radius between rungs, on each side of the focus and beyond
BUCKET = 8  # numbers of rungs are rounded up to a multiple, so that few programs are compiled

Number = float | Sequence[float]  # fixed, or drawn between two


@dataclass(frozen=True)
class DefocusSetting:
    """How a picture is taken: lens, f-number, focus distance in metres, field of the image radius."""

    lens: str
    f_number: float
    focus_m: float
    field: tuple[float, float]


class LensDefocus(nn.Module):
    """Blurs pictures of linear light [n, 3, rows, columns] with their depth in metres [n, rows, columns].

    `lens` is a built-in name, a file, a `Lens`, or several of them; `f_number` and `focus_m` are fixed or drawn between
    two numbers, evenly in their logarithm (without an f-number: wide open; a lens that does not open as far as the
    range is drawn from where it does); `field` is a place (right and up, of the image radius), or the radius of a
    disc in which places are drawn. Each picture takes one of `settings` settings, which are drawn with `seed` and
    keep their PSFs. `pixels` = (width, height) are those that fill the lens's image circle: without them, and
    without `pixel_um`, those of the pictures; parts of larger pictures want the larger one's.
    `bands` as for photographs; blur that needs kernels of more than `most_kernel_px` is refused.

    `last` tells the setting of each picture of the last call. The transform belongs into the process that trains, on
    batches: JAX does not survive the fork of a data loader's workers.
    """

    def __init__(
        self,
        lens: str | Lens | Sequence[str | Lens],
        *,
        focus_m: Number = 2.0,
        f_number: Number | None = None,
        field: float | Sequence[float] = (0.0, 0.0),
        settings: int = 8,
        pixels: tuple[int, int] | None = None,
        pixel_um: float | None = None,
        bands: BandsLike = "rgb",
        most_kernel_px: int = 128,
        seed: int = 0,
    ) -> None:
        super().__init__()
        from ..lens import Lens, load_lens
        from ..psf.bands import picture_bands

        if not isinstance(settings, int | np.integer) or settings < 1:
            raise DefocusError(f"settings {settings!r}; expected a whole number of one or more")
        if not isinstance(seed, int | np.integer) or seed < 0:
            raise DefocusError(f"seed {seed!r}; expected a whole number of zero or more")
        if pixels is not None and pixel_um is not None:
            raise DefocusError("pixels and pixel_um both decide the pixel pitch: give one of them")
        several = [lens] if isinstance(lens, str | Lens) else list(lens or ())
        if not several:
            raise DefocusError("no lens to blur with")
        self.lenses = [one if isinstance(one, Lens) else load_lens(one) for one in several]
        self.bands, self.most_kernel_px = picture_bands(bands), most_kernel_px
        self.pixels, self.pixel_um = pixels, pixel_um
        self.last: list[dict[str, Any]] = []
        self._draws = np.random.default_rng(seed)
        self._f_numbers, self._focus_m = _range("f_number", f_number), _range("focus_m", focus_m)
        self._field, self._count = _place(field), settings
        self._ladders: list[BlurLadder] = []

    def forward(self, images: Tensor, depth_m: Tensor) -> Tensor:
        """The pictures, each through one of the settings; on the device and of the type that they came in."""
        if images.ndim != 4 or images.shape[1] != 3 or not images.is_floating_point():
            raise DefocusError(
                f"pictures of {images.dtype} {list(images.shape)}; expected floats [n, 3, rows, columns]"
            )
        if depth_m.shape != (images.shape[0], *images.shape[2:]):
            raise DefocusError(
                f"depth of {list(depth_m.shape)} for pictures of {list(images.shape)}; expected [n, rows, columns]"
            )
        if not len(images):
            return images
        if not bool((depth_m > 0.0).all()):
            raise DefocusError("depths that are not positive; expected metres, inf for the sky: fill holes first")
        if not self._ladders:
            size = (images.shape[3], images.shape[2])
            self._ladders = [self._drawn(size) for _ in range(self._count)]
        numbers = self._draws.integers(len(self._ladders), size=len(images))
        ladders = [self._ladders[int(number)] for number in numbers]
        self.last = [asdict(ladder.setting) for ladder in ladders]
        with torch.no_grad():
            light = images.detach().float().permute(0, 2, 3, 1)
            depth = depth_m.detach().float()
            results = [
                as_tensor(ladder.blurred(_array(one), _array(far)), images.device)
                for ladder, one, far in zip(ladders, light, depth, strict=True)
            ]
            return torch.stack(results).permute(0, 3, 1, 2).to(images.dtype).contiguous()

    def _drawn(self, size: tuple[int, int]) -> BlurLadder:
        """A setting by the next random numbers, which are as many for each."""
        from ..camera import Camera

        lens = self.lenses[int(self._draws.integers(len(self.lenses)))]
        shares = self._draws.random(4)
        f_numbers = self._f_numbers
        if f_numbers is not None and f_numbers[0] < f_numbers[1]:
            widest = float(Camera(lens).f_number)
            f_numbers = min(max(f_numbers[0], widest), f_numbers[1]), f_numbers[1]
        f_number, focus_m = _between(f_numbers, shares[0]), _between(self._focus_m, shares[1])
        if isinstance(self._field, tuple):
            field = self._field
        else:
            radius, angle = self._field * math.sqrt(shares[2]), 2.0 * math.pi * shares[3]
            field = (radius * math.cos(angle), radius * math.sin(angle))
        pixels = None if self.pixel_um is not None else self.pixels or size
        camera = Camera(lens, focus_m=focus_m, f_number=f_number, pixels=pixels, pixel_um=self.pixel_um)
        setting = DefocusSetting(lens.name, float(camera.f_number), float(camera.focus_m), field)
        return BlurLadder(camera, setting, self.bands, self.most_kernel_px)


class BlurLadder:
    """PSFs of a setting at rungs of signed blur radius (`blur_of`), computed as they are needed.

    The farthest rung is infinity's, whatever its blur.
    """

    def __init__(self, camera: Camera, setting: DefocusSetting, bands: Any, most_kernel_px: int) -> None:
        self.camera, self.setting, self.bands, self.most_px = camera, setting, bands, most_kernel_px
        # The circle of confusion is linear in the inverse depth.
        self.far_px = float(camera.circle_of_confusion_px(math.inf))
        self.slope = float(camera.circle_of_confusion_px(1.0)) - self.far_px
        self.psfs: dict[int, np.ndarray] = {}

    def blurred(self, light: jax.Array, depth_m: jax.Array) -> jax.Array:
        """One picture [rows, columns, 3] with its depth, through the setting."""
        import jax.numpy as jnp

        from ..render.composite import embedded, render_layers
        from ..scene.layers import Layers

        coc = self.far_px + self.slope / depth_m
        low, high = float(coc.min()), float(coc.max())
        self.camera.require_imaged(np.asarray(depth_m.min())[None])
        rungs = list(range(math.ceil(place_of(high) - 1e-3), math.floor(place_of(low) + 1e-3) - 1, -1))
        self._compute(rungs)
        padding = -len(rungs) % BUCKET
        windows = [self.psfs[rung] for rung in rungs]
        kernel = max(psf.shape[-1] for psf in windows)
        psfs = embedded([*windows, *[windows[-1]] * padding], kernel)
        blur = np.array([self._coc(rung) for rung in rungs])
        index = np.arange(len(rungs), dtype=float)
        position = jnp.interp(coc, jnp.asarray(blur[::-1]), jnp.asarray(index[::-1])).astype(jnp.float32)
        every = np.concatenate([blur, np.full(padding, blur[-1])]).astype(np.float32)
        used = np.arange(len(every)) < len(rungs)
        depths = np.array([self._depth(rung) for rung in rungs] + [self._depth(rungs[-1])] * padding, np.float32)
        coc_px, depth, is_used = jnp.asarray(every), jnp.asarray(depths), jnp.asarray(used)
        layers = Layers(coc_px, depth, is_used, position, jnp.float32(COARSE_PX))
        return render_layers(light, coc.astype(jnp.float32), layers, jnp.asarray(psfs))

    def _coc(self, rung: int) -> float:
        """Blur radius of a rung; beyond infinity there is none."""
        return min(blur_of(rung), self.far_px)

    def _depth(self, rung: int) -> float:
        gap = self._coc(rung) - self.far_px
        return math.inf if gap == 0.0 else self.slope / gap

    def _compute(self, rungs: Sequence[int]) -> None:
        from ..render.node_psfs import find_node_psfs
        from ..render.photograph import PhotographOptions

        missing = [rung for rung in rungs if rung not in self.psfs]
        if not missing:
            return
        depths = np.array([self._depth(rung) for rung in missing])
        options = PhotographOptions().psf_options
        every = np.ones(len(missing), bool)
        fields = [[self.setting.field]]
        arguments: dict[str, Any] = {"bands": self.bands, "most_px": self.most_px, "options": options}
        at_nodes = find_node_psfs(self.camera, fields, depths, every, **arguments)
        self.psfs |= dict(zip(missing, at_nodes.at(0, 0), strict=True))


def blur_of(rung: int) -> float:
    """Signed blur radius of a rung in pixels; 0 is the focus."""
    beyond = max(abs(rung) - FINE_RUNGS, 0)
    return math.copysign(FINE_PX * (abs(rung) - beyond) + COARSE_PX * beyond, rung)


def place_of(blur_px: float) -> float:
    """Where between the rungs a blur radius stands."""
    beyond = max(abs(blur_px) - FINE_PX * FINE_RUNGS, 0.0)
    return math.copysign((abs(blur_px) - beyond) / FINE_PX + beyond / COARSE_PX, blur_px)


def _range(name: str, value: Number | None) -> tuple[float, float] | None:
    if value is None:
        return None
    numbers = _numbers(value)
    if len(numbers) not in (1, 2) or not 0.0 < numbers[0] <= numbers[-1] or len({*map(math.isinf, numbers)}) > 1:
        raise DefocusError(f"{name} {value!r}; expected a positive number, or two, the smaller first")
    return numbers[0], numbers[-1]


def _place(field: float | Sequence[float]) -> float | tuple[float, float]:
    """A place in the field, or the radius of a disc of places."""
    numbers = _numbers(field)
    if len(numbers) == 1 and 0.0 <= numbers[0] <= 1.0:
        return numbers[0]
    if len(numbers) == 2 and math.hypot(*numbers) <= 1.0:
        return numbers[0], numbers[1]
    raise DefocusError(f"field {field!r}; expected a place (right, up) in the image circle of radius 1, or a radius")


def _numbers(value: Any) -> tuple[float, ...]:
    """One number or several; none for anything else."""
    try:
        return tuple(float(number) for number in (value if isinstance(value, tuple | list) else (value,)))
    except (TypeError, ValueError):
        return ()


def _between(limits: tuple[float, float] | None, share: float) -> Any:
    """A number between two, evenly in its logarithm; None without limits."""
    if limits is None or limits[0] == limits[1]:
        return None if limits is None else limits[0]
    return limits[0] * (limits[1] / limits[0]) ** share


def _array(tensor: Tensor) -> jax.Array:
    """A tensor for JAX, on the device where both see it, else from the host."""
    import jax
    import jax.numpy as jnp

    if tensor.is_cuda and jax.default_backend() == "gpu":
        return jnp.from_dlpack(tensor.contiguous())
    return jnp.asarray(tensor.cpu().contiguous().numpy())


def as_tensor(array: jax.Array, device: Any) -> Tensor:
    """An array of JAX as a tensor on a device, in PyTorch's own memory."""
    if array.devices().pop().platform != "gpu" or torch.device(device).type != "cuda":
        return torch.from_numpy(np.array(array)).to(device)
    tensor = torch.from_dlpack(array).to(device, copy=True)
    # JAX may write anew where the array was as soon as it is gone, and knows nothing of PyTorch's stream: the array
    # stays until its copy is made, however far the host is ahead of the device.
    copy = torch.cuda.Event()
    copy.record()
    _copies[:] = [(one, event) for one, event in _copies if not event.query()] + [(array, copy)]
    return tensor


_copies: list[tuple[Any, Any]] = []  # arrays of JAX whose copy PyTorch has not made yet, with its event
