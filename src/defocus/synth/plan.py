"""The plan of a data set: everything that decides what is in it, checked before any work.

A plan is a TOML file. Whatever it leaves out has the paper's setting. Two runs of equal plans make the same bytes, so
a plan knows nothing of workers, engines or folders to write to.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import PlanError
from ..files.settings import read_toml, validated
from .places import without_places

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(_Part):
    """Where sharp photographs come from: procedural scenes, or a folder of photographs with their depth."""

    kind: Literal["scenes", "raw", "rgb"] = "scenes"
    folder: Path | None = None
    depth: str = "{stem}.npz"  # next to the photograph, or a path with {stem} and {folder}
    depth_scale_m: float | None = Field(None, gt=0)  # metres of one unit, for depth as whole numbers (PNG)
    resize_depth: bool = True
    count: int = Field(24, ge=1, le=100_000)  # scenes
    names: tuple[str, ...] = ()  # scenes: which ones; empty: all

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind != "scenes" and self.folder is None:
            raise ValueError(f'kind = "{self.kind}" needs a folder')
        if self.kind == "scenes" and self.folder is not None:
            raise ValueError('kind = "scenes" takes no folder; did you mean kind = "raw" or "rgb"?')
        try:
            self.depth.format(stem="", folder="")
        except (LookupError, ValueError, AttributeError) as error:
            raise ValueError(f"depth = {self.depth!r}; expected a path with {{stem}} and {{folder}} alone") from error
        return self


class Lenses(_Part):
    """Which lenses, and the paper's filter over all of them."""

    builtin: bool = True
    folders: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()  # patterns such as "phone-*"; empty: all
    survey: bool = True
    states: Literal["first", "all"] = "first"
    max_f_number: float = Field(8.0, gt=0)
    max_na: float = Field(0.6, gt=0, le=1)
    max_phase_range_waves: float = Field(10.0, gt=0)
    max_axial_rms: float = Field(0.01, gt=0)


class Split(_Part):
    """How many pairs, whether they are augmented, and of which images and lenses: by fraction, or by name."""

    pairs: int = Field(ge=0, le=10_000_000)
    augment: bool = False
    image_fraction: float = Field(ge=0, le=1)
    lens_fraction: float = Field(ge=0, le=1)
    images: tuple[str, ...] = ()  # patterns; if any split has them, every split with pairs must
    lenses: tuple[str, ...] = ()


class Patch(_Part):
    size: int = Field(384, ge=32, le=2048, multiple_of=2)
    kernel: int = Field(128, ge=32, le=512, multiple_of=32)
    photograph: tuple[int, int] = (1680, 1120)  # width and height that a photograph is reduced to; decides the pixels

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if not 1 <= self.photograph[1] <= self.photograph[0] <= 20_000:
            raise ValueError(f"photograph = {list(self.photograph)}; expected width and height in pixels, not upright")
        return self


class Augment(_Part):
    """Drawn for each pair: angles evenly, scale and exposure evenly in their logarithm."""

    rotation_deg: float = Field(180.0, ge=0, le=180)  # up to so much, both ways
    scale: tuple[float, float] = (0.7, 1.4)
    exposure: tuple[float, float] = (0.7, 1.4)
    flip: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for name in ("scale", "exposure"):
            low, high = getattr(self, name)
            if not 0.1 <= low <= high <= 10.0:
                raise ValueError(f"{name} = [{low}, {high}]; expected two numbers from 0.1 to 10, the smaller first")
        return self


class Focus(_Part):
    """Focus distances in the patch's own depths: most at its ends, the others at what stands between."""

    nearest_m: float = Field(0.2, gt=0)
    farthest_m: float = Field(250.0, gt=0)
    ends: float = Field(0.6, ge=0.5, le=1)  # least part of the draws at the two ends; less could not balance the rest
    cluster: float = Field(0.01, ge=0.01, lt=1)  # in 1 / (d - nearest + 1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.nearest_m < self.farthest_m:
            raise ValueError(f"nearest_m = {self.nearest_m} is not less than farthest_m = {self.farthest_m}")
        return self


class Depth(_Part):
    nearest_m: float = Field(0.1, gt=0)
    farthest_m: float = Field(250.0, gt=0)
    mode: Literal["layers", "single"] = "layers"  # "single": one depth for the whole patch (the paper's ablation)
    step_px: float = Field(1.0, gt=0.1, le=8)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.nearest_m < self.farthest_m:
            raise ValueError(f"nearest_m = {self.nearest_m} is not less than farthest_m = {self.farthest_m}")
        return self


class Limits(_Part):
    """Of the lens filter for each patch, at the worst focus distance that may be drawn."""

    coc_px: float | None = Field(None, gt=0)  # a quarter of the kernel
    samples: float = Field(1536, gt=0)


class Blur(_Part):
    """A wanted distribution of the largest blur radius of a pair; without levels, whatever lenses and focus give."""

    levels_px: tuple[float, ...] = ()  # upper ends, ascending: [2, 8, 32] are 0 to 2, 2 to 8, 8 to 32
    weights: tuple[float, ...] = ()
    proposals: int = Field(64, ge=2, le=4096)
    counts: Literal["rendered", "patch"] = "rendered"  # "patch": all of its depths, even where one is rendered

    @model_validator(mode="after")
    def _matching(self) -> Self:
        if len(self.levels_px) != len(self.weights):
            raise ValueError(f"{len(self.levels_px)} levels_px and {len(self.weights)} weights; expected as many")
        if list(self.levels_px) != sorted(set(self.levels_px)) or any(x <= 0 for x in self.levels_px):
            raise ValueError(f"levels_px = {list(self.levels_px)}; expected ascending positive numbers")
        if self.weights and not (min(self.weights) >= 0 and sum(self.weights) > 0):
            raise ValueError(f"weights = {list(self.weights)}; expected none below 0 and some above")
        return self


class Psf(_Part):
    kind: Literal["lens", "gaussian", "disk"] = "lens"  # "gaussian": of half the blur radius (the paper's ablation)
    bands: Literal["d", "rgb"] = "d"
    field_radius: float = Field(0.7, ge=0, le=1)
    exact: bool = True  # false: diffraction widened to a twelfth of a pixel, several times faster


class Sensor(_Part):
    isp: bool = True  # false: blurred as sRGB, without sensor and noise (the paper's ablation)
    noise: float = Field(1e-5, ge=0, le=1)  # reference of both betas; 0: none
    saturation: float = Field(4.0, ge=0)  # greatest power
    dual_pixel: bool = False  # also what the left and the right half of each pixel see


class Select(_Part):
    surplus: float = Field(0.5, ge=0, le=10)  # candidates beyond the wanted pairs; the sharpest are kept
    sharpness: bool = True


class Output(_Part):
    layout: Literal["dpdd", "pairs", "webdataset"] = "dpdd"
    bits: Literal[8, 16] = 8
    pairs_per_shard: int = Field(128, ge=1, le=512)  # made together, in memory
    licence: str = ""


class Plan(_Part):
    """All of a data set. `paper` are its numbers wherever a field has a default."""

    name: str = "defocus pairs"
    seed: int = Field(0, ge=0, lt=2**31)
    sources: tuple[Source, ...] = (Source(),)
    lenses: Lenses = Lenses()
    train: Split = Split(pairs=40_000, augment=True, image_fraction=0.7, lens_fraction=0.6)
    validation: Split = Split(pairs=1_000, image_fraction=0.15, lens_fraction=0.2)
    test: Split = Split(pairs=1_000, image_fraction=0.15, lens_fraction=0.2)
    patch: Patch = Patch()
    augment: Augment = Augment()
    focus: Focus = Focus()
    depth: Depth = Depth()
    limits: Limits = Limits()
    blur: Blur = Blur()
    psf: Psf = Psf()
    sensor: Sensor = Sensor()
    select: Select = Select()
    output: Output = Output()

    @model_validator(mode="before")
    @classmethod
    def _complete_splits(cls, given: Any) -> Any:
        """A split that names some of its fields keeps the defaults of the others."""
        if not isinstance(given, dict):
            return given
        made = dict(given)
        for name in SPLITS:
            if isinstance(made.get(name), dict):
                made[name] = cls.model_fields[name].default.model_dump() | made[name]
        return made

    @model_validator(mode="after")
    def _splits_agree(self) -> Self:
        wanted = {name: self.split(name) for name in SPLITS if self.split(name).pairs}
        if not wanted:
            raise ValueError("no split has any pairs")
        for what, part in (("images", "image_fraction"), ("lenses", "lens_fraction")):
            named = [name for name, split in wanted.items() if getattr(split, what)]
            if named and len(named) != len(wanted):
                missing = ", ".join(n for n in wanted if n not in named)
                raise ValueError(f"{what} are named for {', '.join(named)} but not for {missing}: name them for all")
            total = sum(getattr(split, part) for split in wanted.values())
            if not named and not 0.0 < total <= 1.0 + 1e-9:
                raise ValueError(f"the {part}s of {', '.join(wanted)} sum to {total:g}; expected at most 1")
        return self

    def split(self, name: SplitName) -> Split:
        return getattr(self, name)

    @property
    def splits(self) -> tuple[SplitName, ...]:
        """Those that have pairs."""
        return tuple(name for name in SPLITS if self.split(name).pairs)

    def candidates(self, name: SplitName) -> int:
        """How many patches of a split are drawn before the sharpest are chosen."""
        return round(self.split(name).pairs * (1.0 + self.select.surplus))

    @property
    def coc_limit_px(self) -> float:
        """The paper's: a quarter of the kernel."""
        return self.limits.coc_px if self.limits.coc_px is not None else self.patch.kernel / 4.0

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    @property
    def fingerprint(self) -> str:
        """Of everything that decides the pairs; of folders the last names, wherever they lie."""
        return hashlib.sha256(json.dumps(without_places(self.as_json()), sort_keys=True).encode()).hexdigest()


def load_plan(path: str | Path) -> Plan:
    """Read and check a plan; folders in it are relative to the file. Raises `PlanError` that names the key."""
    path = Path(path)
    given = read_toml(path, PlanError)
    plan = make_plan(given, file=path)
    return _anchored(plan, path.resolve().parent)


def make_plan(given: dict[str, Any], *, file: str | Path | None = None) -> Plan:
    """A plan from what a TOML file holds."""
    return validated(Plan, given, PlanError, file)


def completed(old: dict[str, Any]) -> dict[str, Any]:
    """A plan of an earlier version as JSON: what it could not say yet has its default, which changes nothing."""

    def filled(defaults: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        both = {k: (v, given[k]) for k, v in defaults.items() if isinstance(v, dict) and isinstance(given.get(k), dict)}
        return defaults | given | {key: filled(*parts) for key, parts in both.items()}

    return filled(make_plan({}).as_json(), old)


def _anchored(plan: Plan, folder: Path) -> Plan:
    """Relative folders become absolute."""

    def whole(path: Path) -> Path:
        return path if path.is_absolute() else folder / path

    sources = tuple(s if s.folder is None else s.model_copy(update={"folder": whole(s.folder)}) for s in plan.sources)
    lenses = plan.lenses.model_copy(update={"folders": tuple(whole(p) for p in plan.lenses.folders)})
    return plan.model_copy(update={"sources": sources, "lenses": lenses})
