"""Depth of restored pictures against that of the sharp one, by Depth Anything V2.

Its relative models give disparity up to scale and shift, in units of their own. As in the paper, what the network says
of the sharp picture is the truth, and the error is the root mean square difference of disparities: as they are, and
after the scale and shift that make the squared difference least (Ranftl et al., 2022).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import DefocusError, DepthError
from ...scene.depth_models import depth_anything, load_network

SIZES = ("Small", "Base", "Large")
MODELS = {size.lower(): f"depth-anything/Depth-Anything-V2-{size}-hf" for size in SIZES}


class DisparityEstimator:
    """A relative Depth Anything V2, of the cache (`small`, `base`, `large`, or a name) or of a folder."""

    def __init__(self, source: str = "large", device: str | None = None) -> None:
        self.source = MODELS.get(source, source)

        def check(config: Any) -> None:
            if config.depth_estimation_type != "relative":
                raise DepthError(f"{self.source} gives metres; use a relative model (without Metric in its name)")

        self._torch, network = load_network(
            self.source, "depth_anything", "DepthAnythingForDepthEstimation", check, published=MODELS.values()
        )
        self.device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        self._network = network.to(self.device)

    def __call__(self, display: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w"]:
        """Disparity of a picture of display values 0..1, in the network's own units."""
        torch = self._torch
        pixels = torch.from_numpy(np.ascontiguousarray(display.transpose(2, 0, 1), np.float32))[None].to(self.device)
        with torch.inference_mode():
            return depth_anything(torch, self._network, pixels).float().cpu().numpy()


def disparity_rmse(disparity: Float[np.ndarray, "h w"], truth: Float[np.ndarray, "_ _"], *, aligned: bool) -> float:
    """Root mean square error; `aligned`: after the best scale and shift of `disparity`."""
    if disparity.shape != truth.shape:
        raise DefocusError(f"disparities of shapes {disparity.shape} and {truth.shape}; expected the same")
    a, b = np.asarray(disparity, np.float64), np.asarray(truth, np.float64)
    if aligned:
        centred = a - a.mean()
        energy = float(np.square(centred).mean())
        scale = 0.0 if energy == 0.0 else float((centred * (b - b.mean())).mean()) / energy
        a = scale * centred + b.mean()
    return float(np.sqrt(np.square(a - b).mean()))
