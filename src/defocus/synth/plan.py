"""The plan of a data set: everything that decides what is in it, checked before any work.

A plan is a TOML file. Whatever number it leaves out is the paper's; PSFs, compositing and response are ours unless it
asks for the paper's (`plans/paper.toml` does). Two runs of equal plans make the same bytes, so a plan knows nothing of
workers, engines or folders to write to.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..errors import PhotoError, PlanError
from ..files.pair_folders import PLANES, stack_role
from ..files.settings import read_toml, validated
from .places import without_places

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
LARGEST_STACK = 64  # pictures


class PlanPart(BaseModel):
    """Settings that cannot be changed, and know what they are called."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PhotoSource(PlanPart):
    """Where sharp photographs come from: procedural scenes, a folder of photographs with their depth, or scenes that
    are composed of photographs without depth."""

    kind: Literal["scenes", "raw", "rgb", "composed"] = "scenes"
    folder: Path | None = None
    depth: str = "{stem}.npz"  # next to the photograph, or a path with {stem} and {folder}
    depth_scale_m: float | None = Field(None, gt=0)  # metres of one unit, for depth as whole numbers (PNG)
    resize_depth: bool = True
    split_folder: Path | None = None  # pictures of the same names in DPDD's train_c, val_c and test_c: their splits
    count: int = Field(24, ge=1, le=100_000)  # scenes, and scenes composed of photographs
    names: tuple[str, ...] = ()  # scenes: which ones; empty: all
    prefilter_px: float = Field(0.0, ge=0, le=2)  # composed: σ of a Gaussian, for photographs that were sharpened

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind != "scenes" and self.folder is None:
            raise ValueError(f'kind = "{self.kind}" needs a folder')
        if self.kind == "scenes" and (self.folder is not None or self.split_folder is not None):
            raise ValueError('kind = "scenes" takes no folder; did you mean kind = "raw", "rgb" or "composed"?')
        if self.prefilter_px and self.kind != "composed":
            raise ValueError(f'prefilter_px is for kind = "composed", not for kind = "{self.kind}"')
        try:
            fields = [field[1:] for field in Formatter().parse(self.depth) if field[1] is not None]
        except ValueError:
            fields = [("?", "", None)]
        if any(field not in (("stem", "", None), ("folder", "", None)) for field in fields):
            raise ValueError(f"depth = {self.depth!r}; expected a path with {{stem}} and {{folder}} alone")
        return self


class Lenses(PlanPart):
    """Which lenses, and the paper's filter over all of them."""

    builtin: bool = True
    folders: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()  # patterns such as "phone-*"; empty: all
    survey: bool = True
    families: bool = False  # lenses of one patent, or of one maker with equal numbers, go into the same split
    states: Literal["first", "all"] = "first"
    max_f_number: float = Field(8.0, gt=0)
    max_na: float = Field(0.6, gt=0, le=1)
    max_phase_range_waves: float = Field(10.0, gt=0)
    max_axial_rms: float = Field(0.01, gt=0)


class Split(PlanPart):
    """How many pairs, whether they are augmented, and of which images and lenses: by fraction, or by name."""

    pairs: int = Field(ge=0, le=10_000_000)
    augment: bool = False
    image_fraction: float = Field(ge=0, le=1)
    lens_fraction: float = Field(ge=0, le=1)
    images: tuple[str, ...] = ()  # patterns; if any split has them, every split with pairs must
    lenses: tuple[str, ...] = ()


class Patch(PlanPart):
    """Pixels of patches, kernels and the photographs that patches are cut from."""

    size: int = Field(384, ge=32, le=2048, multiple_of=2)
    kernel: int = Field(128, ge=32, le=512, multiple_of=32)
    photograph: tuple[int, int] = (1680, 1120)  # width and height that a photograph is reduced to; decides the pixels

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if not 1 <= self.photograph[1] <= self.photograph[0] <= 20_000:
            raise ValueError(f"photograph = {list(self.photograph)}; expected width and height in pixels, not upright")
        return self


class Augment(PlanPart):
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


class DistanceRange(PlanPart):
    """Distances from the lens, in metres."""

    nearest_m: float = Field(gt=0)
    farthest_m: float = Field(250.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.nearest_m < self.farthest_m:
            raise ValueError(f"nearest_m = {self.nearest_m} is not less than farthest_m = {self.farthest_m}")
        return self


class Focus(DistanceRange):
    """Focus distances in the patch's own depths: most at its ends, the others at what stands between."""

    nearest_m: float = Field(0.2, gt=0)
    ends: float = Field(0.6, ge=0.5, le=1)  # least part of the draws at the two ends; less could not balance the rest
    cluster: float = Field(0.01, ge=0.01, lt=1)  # in 1 / (d - nearest + 1)


class DepthLayers(DistanceRange):
    """Depths that count, and the layers of equal blur that they are divided into."""

    nearest_m: float = Field(0.1, gt=0)
    mode: Literal["layers", "single"] = "layers"  # "single": that of a random pixel for the whole patch (its ablation)
    step_px: float = Field(1.0, gt=0.1, le=8)
    compositing: Literal["near-to-far", "far-to-near"] = "near-to-far"  # "far-to-near": the paper's rule


class Limits(PlanPart):
    """Of the lens filter for each patch, at the worst focus distance that may be drawn."""

    coc_px: float | None = Field(None, gt=0)  # a quarter of the kernel
    samples: float = Field(1536, gt=0)


class Blur(PlanPart):
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


class PsfModel(PlanPart):
    """How each depth is blurred."""

    kind: Literal["lens", "paper", "gaussian", "disk"] = "lens"  # "gaussian": of half the blur radius (its ablation)
    bands: Literal["d", "rgb"] = "d"
    field_radius: float = Field(0.7, ge=0, le=1)
    exact: bool = True  # false: rays for large blurs, else diffraction of a twelfth of a pixel; faster

    @model_validator(mode="after")
    def _known_to_the_paper(self) -> Self:
        if self.kind == "paper" and not self.exact:
            raise ValueError('exact = false is for kind = "lens"; the paper\'s PSFs have their own samples')
        return self


class Sensor(PlanPart):
    """The sensor, its noise and the highlights behind its white."""

    isp: bool = True  # false: blurred as sRGB, without sensor and noise (the paper's ablation)
    noise: float = Field(1e-5, ge=0, le=1)  # reference of β₁ and of β₂ (a standard deviation); 0: none
    saturation: float = Field(4.0, ge=0, lt=1e4)  # greatest power
    # From light to display values: srgb, contrast:1.3, gamma:2.2, or a file, whose curve becomes part of the plan.
    response: str | tuple[tuple[float, float], ...] = "srgb"
    dual_pixel: bool = False  # also what the left and the right half of each pixel see
    # The pitch, or so many pixels across the image circle; without either the reduced photograph fills the circle.
    pixel_um: float | None = Field(None, gt=0, le=1000)
    circle_px: float | None = Field(None, ge=32, le=100_000)

    @field_validator("response", mode="before")
    @classmethod
    def _with_curve(cls, response: Any) -> Any:
        """A file's curve as points, so that a plan says by itself what it makes."""
        if response == "srgb" or not isinstance(response, str):
            return response
        from ..photo.response import parse_response  # slow to import

        try:
            curve = parse_response(response)
        except PhotoError as error:
            raise ValueError(str(error)) from None
        points = [(float(f"{x:.9g}"), float(f"{y:.9g}")) for x, y in zip(curve.x, curve.y, strict=True)]
        return response if curve.kind != "table" else points

    @model_validator(mode="after")
    def _one_pitch(self) -> Self:
        if self.pixel_um is not None and self.circle_px is not None:
            raise ValueError("pixel_um and circle_px both decide the pixel pitch: give one of them")
        return self

    def pixels_across(self, image_radius_mm: Any, diagonal_px: float) -> Any:
        """How many pixels are as long as the diameter of a lens's image circle."""
        if self.pixel_um is not None:
            return 2e3 * image_radius_mm / self.pixel_um
        return diagonal_px if self.circle_px is None else self.circle_px


class Select(PlanPart):
    """How many candidates are drawn, and which become pairs."""

    surplus: float = Field(0.5, ge=0, le=10)  # candidates beyond the wanted pairs; the sharpest are kept
    sharpness: bool = True


class Labels(PlanPart):
    """What is stored of each pair beside its pictures, registered with them pixel by pixel.

    The target is the all-in-focus picture: the same patch past the lens, without blur, mosaic and noise.
    """

    depth: bool = False  # metres
    blur_radius: bool = False  # signed radius of the circle of confusion in pixels, positive beyond the focus
    # The blurred picture as the lens draws it; by how many pixels, to the right and down, it shows the target aside.
    distortion: bool = False
    # Further blurred pictures of the same patch: so many, at focus distances even in 1/d over its depths, or at these.
    focal_stack: int = Field(0, ge=0, le=LARGEST_STACK)
    focal_stack_m: tuple[float, ...] = Field((), max_length=LARGEST_STACK)

    @model_validator(mode="before")
    @classmethod
    def _one_target(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and "all_in_focus" in settings:
            raise ValueError("all_in_focus is no label: every pair has it, as its target")
        return settings

    @model_validator(mode="after")
    def _one_stack(self) -> Self:
        if self.focal_stack and self.focal_stack_m:
            raise ValueError("focal_stack and focal_stack_m both decide the focal stack: give one of them")
        if 1 in (self.focal_stack, len(self.focal_stack_m)):
            raise ValueError("a focal stack of 1 picture; expected 2 or more")
        if list(self.focal_stack_m) != sorted(set(self.focal_stack_m)):
            raise ValueError(f"focal_stack_m = {list(self.focal_stack_m)}; expected ascending distances in metres")
        return self

    @property
    def roles(self) -> tuple[str, ...]:
        """What the records call the files of the labels."""
        planes = [name for name in PLANES if getattr(self, "distortion" if name.startswith("shift") else name)]
        return (*planes, *map(stack_role, range(self.focal_stack or len(self.focal_stack_m))))


class Output(PlanPart):
    """The files of the data set."""

    layout: Literal["dpdd", "pairs", "webdataset"] = "dpdd"
    bits: Literal[8, 16] = 8
    pairs_per_shard: int = Field(128, ge=1, le=512)  # made together, in memory
    licence: str = ""


class Plan(PlanPart):
    """All of a data set; whatever has a default has the paper's number."""

    name: str = "defocus pairs"
    seed: int = Field(0, ge=0, lt=2**31)
    sources: tuple[PhotoSource, ...] = (PhotoSource(),)
    lenses: Lenses = Lenses()
    train: Split = Split(pairs=40_000, augment=True, image_fraction=0.7, lens_fraction=0.6)
    validation: Split = Split(pairs=1_000, image_fraction=0.15, lens_fraction=0.2)
    test: Split = Split(pairs=1_000, image_fraction=0.15, lens_fraction=0.2)
    patch: Patch = Patch()
    augment: Augment = Augment()
    focus: Focus = Focus()
    depth: DepthLayers = DepthLayers()
    limits: Limits = Limits()
    blur: Blur = Blur()
    psf: PsfModel = PsfModel()
    sensor: Sensor = Sensor()
    select: Select = Select()
    labels: Labels = Labels()
    output: Output = Output()

    @model_validator(mode="before")
    @classmethod
    def _complete_splits(cls, settings: Any) -> Any:
        """A split that names some of its fields keeps the defaults of the others."""
        if not isinstance(settings, dict):
            return settings
        partial = {name: settings[name] for name in SPLITS if isinstance(settings.get(name), dict)}
        return settings | {name: cls.model_fields[name].default.model_dump() | own for name, own in partial.items()}

    @model_validator(mode="after")
    def _splits_agree(self) -> Self:
        splits = {name: self.split(name) for name in self.splits}
        if not splits:
            raise ValueError("no split has any pairs")
        for what, part in (("images", "image_fraction"), ("lenses", "lens_fraction")):
            named = [name for name, split in splits.items() if getattr(split, what)]
            if named and len(named) != len(splits):
                missing = ", ".join(n for n in splits if n not in named)
                raise ValueError(f"{what} are named for {', '.join(named)} but not for {missing}: name them for all")
            total = sum(getattr(split, part) for split in splits.values())
            if not named and not 0.0 < total <= 1.0 + 1e-9:
                raise ValueError(f"the {part}s of {', '.join(splits)} sum to {total:g}; expected at most 1")
        return self

    @model_validator(mode="after")
    def _stack_in_reach(self) -> Self:
        focus = self.focus
        for distance in self.labels.focal_stack_m:
            if not focus.nearest_m <= distance <= focus.farthest_m:
                raise ValueError(
                    f"labels.focal_stack_m: {distance:g} m; focus distances lie from focus.nearest_m = "
                    f"{focus.nearest_m:g} to focus.farthest_m = {focus.farthest_m:g}"
                )
        return self

    @model_validator(mode="after")
    def _hidden_parts(self) -> Self:
        if self.depth.compositing == "far-to-near" and any(source.kind == "composed" for source in self.sources):
            raise ValueError('depth.compositing = "far-to-near" fills in what scenes of kind = "composed" have')
        return self

    def __repr__(self) -> str:
        pairs = ", ".join(f"{self.split(name).pairs} {name}" for name in self.splits)
        return f"Plan({self.name!r}, seed {self.seed}: {pairs} pairs)"

    def split(self, name: SplitName) -> Split:
        """Settings of one split."""
        return getattr(self, name)

    @property
    def splits(self) -> tuple[SplitName, ...]:
        """Names of the splits that have pairs."""
        return tuple(name for name in SPLITS if self.split(name).pairs)

    def candidates(self, name: SplitName) -> int:
        """How many patches of a split are drawn before the sharpest are chosen."""
        return round(self.split(name).pairs * (1.0 + self.select.surplus))

    @property
    def coc_limit_px(self) -> float:
        """Largest blur radius that a lens may have; by default the paper's, a quarter of the kernel."""
        return self.limits.coc_px if self.limits.coc_px is not None else self.patch.kernel / 4.0

    def as_json(self) -> dict[str, Any]:
        """The whole plan as plain values; what it does not use is left out where older versions did not know of it, so
        that its fingerprint stays."""
        exclude: dict[str, Any] = {} if self.labels.distortion else {"labels": {"distortion"}}
        plain = self.model_dump(mode="json", exclude=exclude if self.labels.roles else {"labels"})
        if not self.lenses.families:
            del plain["lenses"]["families"]
        for source in plain["sources"]:
            if source["kind"] != "composed":
                del source["prefilter_px"]
        return plain

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides the pairs; of folders the last names count, wherever they lie."""
        return hashlib.sha256(json.dumps(without_places(self.as_json()), sort_keys=True).encode()).hexdigest()


PlanLike = Plan | Mapping[str, Any] | str | Path  # a plan, its settings, or its file


def load_plan(path: str | Path) -> Plan:
    """Read and check a plan; folders in it are relative to the file. Raises `PlanError` that names the key."""
    path = Path(path)
    settings, folder = read_toml(path, PlanError), path.resolve().parent
    curve = settings["sensor"].get("response") if isinstance(settings.get("sensor"), dict) else None
    if isinstance(curve, str) and (folder / curve).is_file():
        settings["sensor"]["response"] = str(folder / curve)
    plan = make_plan(settings, file=path)

    def placed(source: PhotoSource) -> PhotoSource:
        own = {name: getattr(source, name) for name in ("folder", "split_folder")}
        return source.model_copy(update={name: folder / place for name, place in own.items() if place})

    sources = tuple(map(placed, plan.sources))
    lenses = plan.lenses.model_copy(update={"folders": tuple(folder / own for own in plan.lenses.folders)})
    return plan.model_copy(update={"sources": sources, "lenses": lenses})


def make_plan(settings: Mapping[str, Any], *, file: str | Path | None = None) -> Plan:
    """A plan from what a TOML file holds. Raises `PlanError` that names the key."""
    return validated(Plan, dict(settings), PlanError, file)


def as_plan(plan: PlanLike) -> Plan:
    """A plan from a plan, its settings, or its file."""
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, str | Path):
        return load_plan(plan)
    if isinstance(plan, Mapping):
        return make_plan(plan)
    raise PlanError(f"a plan of type {type(plan).__name__}; expected a Plan, a dict of settings or a plan file")


def plan_template(name: str) -> str:
    """A commented plan to begin with; `name` is the file that it is written to."""
    return _plan_file("template.toml").replace("plan.toml", name)


def paper_template(name: str, dpdd: Path | None = None) -> str:
    """The plan of the paper's data set, of DPDD's RAW files in `dpdd`; `name` is the file that it is written to.

    Raises `PlanError` where DPDD's own splits cannot be told: neither by its folders nor by its pictures.
    """
    text = _plan_file("paper.toml").replace("plan.toml", name)
    if dpdd is None:
        return text
    if not dpdd.is_dir():
        raise PlanError(f"{dpdd} is not a folder")
    source = f"folder = {json.dumps(dpdd.absolute().as_posix())}"
    raws = [path.relative_to(dpdd) for path in dpdd.rglob("*") if path.suffix.lower() == ".cr2"]
    if not raws:
        raise PlanError(f"{dpdd} has no RAW files (.CR2): DPDD offers them beside its pictures")
    if not any(part.startswith("train_c") for path in raws for part in path.parts):
        pictures = next((path.parent for path in sorted(dpdd.rglob("train_c")) if path.is_dir()), None)
        if pictures is None:
            raise PlanError(
                f"{dpdd} has neither RAW files in folders train_c, val_c and test_c nor DPDD's pictures, whose folders "
                "tell which scene is in which split: put the pictures (dd_dp_dataset_png) beside them"
            )
        source += f"\nsplit_folder = {json.dumps(pictures.absolute().as_posix())}"
    return text.replace('folder = "DPDD"', source)


def demo_plan() -> Plan:
    """The plan of `defocus demo`: a small data set that shows what there is."""
    return make_plan(tomllib.loads(_plan_file("demo.toml")))


def _plan_file(name: str) -> str:
    return resources.files(__package__).joinpath("plans", name).read_text(encoding="utf-8")


def completed(old: dict[str, Any]) -> dict[str, Any]:
    """A plan of an earlier version as JSON: what it could not say yet has its default, which changes nothing."""

    def filled(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        both = {k: (v, own[k]) for k, v in defaults.items() if isinstance(v, dict) and isinstance(own.get(k), dict)}
        return defaults | own | {key: filled(*parts) for key, parts in both.items()}

    return filled(make_plan({}).as_json(), old)
