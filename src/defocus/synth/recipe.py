"""A recipe: every number that one pair is made of, as plain JSON. With the source, the lens and the same version of
the program it makes the same bytes again, alone or among others, by whichever worker.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..files.pair_folders import is_role


def pair_id(split: str, number: int) -> str:
    """Name of a candidate, and of the pair that it becomes."""
    return f"{split}-{number:06d}"


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

    __pydantic_config__ = ConfigDict(allow_inf_nan=False)  # of `record_fault`
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
    noise: tuple[float, float]  # shot: variance for each unit of light; read: standard deviation
    sharpness: tuple[float, ...] = ()
    single_m: float | None = None  # the one depth that is rendered, where the plan asks for one
    stack_m: tuple[float, ...] = ()  # focus distances of the focal stack, where the plan asks for one

    @property
    def placement(self) -> Placement:
        """Where the patch lies in its photograph."""
        return Placement(self.centre, self.rotation_rad, self.scale, self.flip, self.exposure)

    @property
    def rendered_m(self) -> tuple[float, float]:
        """Nearest and farthest depth that is rendered."""
        return self.depth_m if self.single_m is None else (self.single_m, self.single_m)

    def to_json(self) -> dict[str, Any]:
        """As plain values; a pair without a focal stack says nothing of it."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return own if self.stack_m else {name: value for name, value in own.items() if name != "stack_m"}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Recipe:
        """From the record of a pair, which may hold more."""
        names = {f.name for f in fields(cls)}
        own: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items() if k in names}
        return cls(**own)


def _require_inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"{path!r} is not a path within a data set")
    return path


def _require_role(role: str) -> str:
    if not is_role(role):
        raise ValueError(f"{role!r} is no picture of a pair")
    return role


_RoleName = Annotated[str, AfterValidator(_require_role)]


class _PictureFacts(TypedDict):
    path: Annotated[str, AfterValidator(_require_inside)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]
    member: NotRequired[str]


class _PairPictures(TypedDict):
    blurred: _PictureFacts
    sharp: _PictureFacts


class _PsfFacts(TypedDict):
    psf: NotRequired[dict[str, Any]]


@cache
def _record_checks() -> tuple[tuple[str, TypeAdapter[Any]], ...]:
    own = ("", TypeAdapter(Recipe)), ("", TypeAdapter(_PsfFacts))
    return *own, ("files", TypeAdapter(_PairPictures)), ("files", TypeAdapter(dict[_RoleName, _PictureFacts]))


def record_fault(record: dict[str, Any]) -> str:
    """What is wrong with the record of a pair: the first key that is missing or holds something else; "" if nothing."""
    for part, check in _record_checks():
        try:
            check.validate_python(record.get(part) if part else record)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(str(step) for step in ([part] if part else []) + list(first["loc"]))
            return f"its record is damaged: {place}: {first['msg']}"
    return ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate. `record` is the recipe and what was made of it: layers, PSFs, files."""

    id: str
    status: str  # "drawn", "done", "rejected" or "failed"
    reason: str = ""
    record: dict[str, Any] | None = None
