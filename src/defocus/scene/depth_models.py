"""Depth from one photograph, by networks: Depth Pro (the paper's choice) and Depth Anything V2 for metric depth.

Both come from the transformers library. Their weights are never fetched here: they are read from the user's cache or
from a folder. Depth Pro (Bochkovskii et al., 2024) looks at a square of 4 × 384 pixels and gives the canonical inverse
depth C; with the focal length f in pixels of a picture W pixels wide, 1/z = C · W / f. Where the camera's focal length
is unknown, the network's own estimate of the field of view takes its place. Depth Anything V2 (Yang et al., 2024) gives
metres, up to a largest depth of 20 m (indoors) or 80 m (outdoors).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError, DepthError, MissingExtraError, first_line
from ..srgb import check_floats
from .depth_maps import DepthMap, complete_depth

FRAME_DIAGONAL_MM = math.hypot(36.0, 24.0)
INVERSE_RANGE = (1e-4, 1e4)  # 1/m: the depths that Depth Pro's authors allow, 0.1 mm to 10 km
MODELS = {
    "depth-pro": "apple/DepthPro-hf",
    "depth-anything-indoor": "depth-anything/Depth-Anything-V2-Metric-Indoor-Large-hf",
    "depth-anything-outdoor": "depth-anything/Depth-Anything-V2-Metric-Outdoor-Large-hf",
}
CLASSES = {"depth_pro": "DepthProForDepthEstimation", "depth_anything": "DepthAnythingForDepthEstimation"}  # by kind


@dataclass(frozen=True)
class DepthEstimate:
    """A depth map and how it was found."""

    depth: DepthMap
    focal_px: float | None  # that the depth holds for
    focal_from: str  # "given", "the network", or "not used"
    model: str


def focal_length_px(
    size: tuple[int, int],
    *,
    focal_mm: float | None = None,
    focal_35mm: float | None = None,
    pixel_um: float | None = None,
) -> float | None:
    """Focal length in pixels of a whole photograph from what EXIF tells; None if that is not enough.

    The equivalent for 36 × 24 mm film is compared by the diagonal, as cameras compute it.
    """
    if focal_35mm is not None:
        return focal_35mm / FRAME_DIAGONAL_MM * math.hypot(*size)
    if focal_mm is not None and pixel_um is not None:
        return focal_mm / (pixel_um * 1e-3)
    return None


class DepthNetwork:
    """A network that estimates depth, loaded once for many photographs.

    `weights` is a folder, or a name in the cache, of another checkpoint of the same kind. `device` is torch's; by
    default a GPU if there is one.
    """

    def __init__(
        self, model: str = "depth-pro", *, weights: str | Path | None = None, device: str | None = None
    ) -> None:
        check_model(model)
        self.source = MODELS[model] if weights is None else str(weights)
        self._kind = "depth_pro" if model == "depth-pro" else "depth_anything"
        self._torch, network = _load(self.source, self._kind)
        self._device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        self._network = network.to(self._device)

    def estimate(self, srgb: Float[np.ndarray, "height width 3"], focal_px: float | None = None) -> DepthEstimate:
        """Depth of a photograph given as display sRGB, 0..1, at its full resolution; `focal_px` is the focal length in
        pixels of this picture."""
        check_picture(srgb, focal_px)
        torch, network = self._torch, self._network
        pixels = torch.from_numpy(np.ascontiguousarray(srgb, dtype=np.float32)).permute(2, 0, 1)[None].to(self._device)
        with torch.inference_mode():
            if self._kind == "depth_pro":
                depth, focal, origin = _depth_pro(torch, network, pixels, focal_px, self.source)
            else:
                depth, focal, origin = depth_anything(torch, network, pixels), focal_px, "not used"
        height, width = srgb.shape[:2]
        intrinsics = None if focal is None else (focal, focal, (width - 1) / 2.0, (height - 1) / 2.0)
        depth_map = complete_depth(depth.float().cpu().numpy(), intrinsics=intrinsics)
        return DepthEstimate(depth_map, focal, origin, self.source)


def estimate_depth(
    srgb: Float[np.ndarray, "height width 3"],
    model: str = "depth-pro",
    *,
    weights: str | Path | None = None,
    focal_px: float | None = None,
    device: str | None = None,
) -> DepthEstimate:
    """Depth of one photograph by a network that is loaded for it: see `DepthNetwork`."""
    check_model(model)
    check_picture(srgb, focal_px)
    return DepthNetwork(model, weights=weights, device=device).estimate(srgb, focal_px)


def check_model(model: str) -> None:
    """Raise `DefocusError` for a model that is not known."""
    if model not in MODELS:
        raise DefocusError(f"depth model {model!r}; known are {', '.join(MODELS)}")


def check_picture(srgb: Float[np.ndarray, "height width 3"], focal_px: float | None) -> None:
    """Raise `DefocusError` for what is no picture of display values, or no focal length."""
    if focal_px is not None and not 0.0 < focal_px < math.inf:
        raise DefocusError(f"focal length {focal_px} px; expected a positive number")
    check_floats(srgb, "display values")
    if srgb.ndim != 3 or srgb.shape[2] != 3 or not np.all(np.isfinite(srgb)):
        raise DefocusError(f"a picture of shape {srgb.shape}, or values that are not finite; expected [h, w, 3]")


def _load(source: str, kind: str) -> tuple[Any, Any]:
    """torch, and the network with all of its weights."""

    def check(config: Any) -> None:
        if kind == "depth_anything" and config.depth_estimation_type != "metric":
            raise DepthError(f"{source} gives relative depth, no metres; use a checkpoint with Metric in its name")

    return load_network(source, kind, CLASSES[kind], check, published=MODELS.values())


def load_network(
    source: str,
    kind: str,
    class_name: str,
    check: Callable[[Any], None] | None = None,
    *,
    feature: str = "estimating depth",
    published: Collection[str] = (),
    failure: type[DefocusError] = DepthError,
) -> tuple[Any, Any]:
    """torch, and a network of the transformers library with all of its weights, from a folder or the cache.

    `kind` is what its configuration must say, which `check` may look at before the weights are read. The message for
    a missing network of `published` names says how to fetch it.
    """
    try:
        torch, transformers = import_module("torch"), import_module("transformers")
    except ModuleNotFoundError as error:
        raise MissingExtraError(feature, "depth") from error
    try:
        config = transformers.AutoConfig.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError) as error:
        raise failure(_how_to_get(source, error, published)) from error
    if config.model_type != kind:
        raise failure(f"{source} is a model of kind {config.model_type}, not {kind}; choose the model that it is")
    if check is not None:
        check(config)
    try:
        network, loading = getattr(transformers, class_name).from_pretrained(
            source, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise failure(_how_to_get(source, error, published)) from error
    except Exception as error:  # a damaged weights file raises errors of the format's own library
        raise failure(f"{source}: its weights cannot be read ({type(error).__name__}: {error})") from error
    if loading["missing_keys"]:  # the library would leave them random
        missing = sorted(loading["missing_keys"])
        raise failure(f"{source}: {len(missing)} of its weights are missing, the first is {missing[0]}")
    return torch, network.eval()


def _how_to_get(source: str, error: Exception, published: Collection[str]) -> str:
    if Path(source).is_dir():
        return f"{source}: no complete model is in this folder ({first_line(error)})"
    if source not in published:
        return f"{source}: neither a folder nor a model in the cache; `hf download {source}` puts a public one there"
    return (
        f"the weights of {source} are not in the cache; get them once with `hf download {source}` "
        "(the command comes with the extra [depth]), or give the folder that holds them"
    )


def _depth_pro(
    torch: Any, network: Any, pixels: Any, focal_px: float | None, source: str
) -> tuple[Any, float | None, str]:
    height, width = pixels.shape[-2:]
    side = round(network.config.patch_size / min(network.config.scaled_images_ratios))
    squared = torch.nn.functional.interpolate(pixels, (side, side), mode="bilinear", align_corners=False)
    output = network(pixel_values=(squared - 0.5) / 0.5)
    if focal_px is not None:
        focal, origin = focal_px, "given"
    elif output.field_of_view is not None:
        view = float(output.field_of_view.flatten()[0])
        if not 0.0 < view < 180.0:
            raise DepthError(f"{source}: the network takes the field of view for {view:.3g}°; give the focal length")
        focal, origin = 0.5 * width / math.tan(math.radians(view) / 2.0), "the network"
    else:
        raise DepthError(f"{source}: this checkpoint estimates no field of view; give the focal length in pixels")
    inverse = output.predicted_depth[None] * (width / focal)
    inverse = torch.nn.functional.interpolate(inverse, (height, width), mode="bilinear", align_corners=False)
    return 1.0 / inverse[0, 0].clamp(*INVERSE_RANGE), focal, origin


def depth_anything_size(size: tuple[int, int], target: int, multiple: int) -> tuple[int, int]:
    """Height and width that the network sees of a picture of `size` = (height, width).

    Of the two scales that make one side `target` pixels long, the one that changes the picture less; then whole
    patches.
    """
    scale = min((target / size[0], target / size[1]), key=lambda s: abs(1.0 - s))
    height, width = (max(1, round(scale * side / multiple)) * multiple for side in size)
    return height, width


def depth_anything(torch: Any, network: Any, pixels: Any) -> Any:
    """What Depth Anything says of display values [1, 3, rows, cols]: metres, or relative disparities; [rows, cols]."""
    height, width = pixels.shape[-2:]
    resolution = depth_anything_size(
        (height, width), network.config.backbone_config.image_size, network.config.patch_size
    )
    scaled = torch.nn.functional.interpolate(pixels, resolution, mode="bicubic", align_corners=False, antialias=True)
    mean, spread = (torch.tensor(v, device=pixels.device)[:, None, None] for v in IMAGENET)
    output = network(pixel_values=(scaled.clamp(0.0, 1.0) - mean) / spread)
    depth = output.predicted_depth[None]
    return torch.nn.functional.interpolate(depth, (height, width), mode="bilinear", align_corners=False)[0, 0]


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and spread of the pictures it was trained on
