"""A recipe: every number that one pair is made of, as plain JSON. With the source, the lens and the same version of
the program it makes the same bytes again, alone or among others, by whichever worker.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple


class Placement(NamedTuple):
    """Where a patch lies in its photograph, as it is drawn and recorded."""

    centre: tuple[float, float]  # x to the right, y down
    rotation_rad: float
    scale: float
    flip: bool
    exposure: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """One pair. Lengths in pixels of the reduced photograph unless the name says otherwise."""

    id: str  # "train-000123"
    split: str
    index: int  # of the candidate within its split
    seed: int  # of the noise
    # the patch
    source: str
    source_sha256: str  # of the photograph's and its depth's bytes; of a scene, of its name and size
    centre: tuple[float, float]  # x to the right, y down, of the patch's middle; whole pixel numbers are middles
    rotation_rad: float
    scale: float  # above 1 the patch shows less, larger
    flip: bool
    exposure: float
    patch_px: int
    # the camera
    lens: str
    lens_sha256: str  # of the prescription
    state: str
    field: tuple[float, float]  # as a fraction of the image radius
    focus_m: float
    pixel_um: float
    f_number: float
    # what follows
    depth_m: tuple[float, float]  # nearest and farthest of the patch
    coc_px: tuple[float, float]  # signed blur radii, smallest and largest
    layers: int  # room for so many
    # the sensor
    saturation: float
    noise: tuple[float, float]  # shot, read variance
    sharpness: tuple[float, ...] = ()

    @property
    def placement(self) -> Placement:
        """Where the patch lies in its photograph."""
        return Placement(self.centre, self.rotation_rad, self.scale, self.flip, self.exposure)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Recipe:
        """From the record of a pair, which may hold more."""
        names = {f.name for f in fields(cls)}
        own: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k in names}
        return cls(**own)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate. `record` is the recipe and what was made of it: layers, PSFs, files."""

    id: str
    status: str  # "drawn", "done", "rejected" or "failed"
    reason: str = ""
    record: dict[str, Any] | None = None
