"""The settings of a training: everything that decides what the network learns, checked before any work.

A TOML file, or the name of one of the recipes beside this module; a file may build on a recipe (`recipe = "nafnet"`)
and change some of it. `TrainConfig.decisive` is what two runs must share to give the same weights: the number of
loader workers, for example, is no part of it.
"""

from __future__ import annotations

import math
import tomllib
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ..errors import ConfigError
from ..files.settings import nearest_name, read_toml, validated
from ..synth.plan import SplitName

RECIPES = files("defocus.restore").joinpath("recipes")
LogKind = Literal["csv", "tensorboard"]


def _resolved(folder: str) -> str:
    """One name for each folder, however it was called, so that a training knows its data again."""
    return folder if "://" in folder else str(Path(folder).resolve())


def _ascending(numbers: tuple[float, ...]) -> tuple[float, ...]:
    if any(a >= b for a, b in pairwise(numbers)):
        raise ValueError(f"{list(numbers)}; expected ascending numbers")
    return numbers


Folders = tuple[Annotated[str, AfterValidator(_resolved)], ...]  # folders, or addresses that fsspec knows
Positive = Annotated[float, Field(gt=0)]
Part = Annotated[float, Field(ge=0, lt=1)]  # of all steps, and the like
Milestone = Annotated[float, Field(gt=0, lt=1)]
Quality = Annotated[float, Field(ge=1, le=100)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class Model(_Table):
    """Which network: a name and a size that `build_model` knows, and numbers that differ from that size's."""

    name: str
    size: str = "paper"
    overrides: dict[str, Any] = {}
    start: Annotated[Path, AfterValidator(Path.resolve)] | None = None  # a file of weights to begin with


class LossTerms(_Table):
    """A loss that `build_loss` knows; without a name, the network's own."""

    name: str = ""
    options: dict[str, Any] = {}


class Data(_Table):
    """Where pairs come from: folders (any layout that `defocus synth` writes, shards, DPDD), a plan that is carried out
    while the network learns, or a bank of PSFs and photographs (`synth.bank`), the folder's, on the device."""

    kind: Literal["pairs", "synthesis", "bank"] = "pairs"
    folders: Folders = ()
    weights: tuple[Positive, ...] = ()  # share of each folder in the batches; empty: as many as it has pairs
    split: SplitName = "train"
    plan: Annotated[Path, AfterValidator(Path.resolve)] | None = None
    length: int = Field(10_000, ge=1)  # synthesis: pairs of an epoch, in each of which others are made
    kept: int = Field(16, ge=1)  # synthesis: photographs that each worker holds
    workers: int = Field(4, ge=0)
    prefetch: int = Field(4, ge=1)  # batches that each worker makes ahead
    cache: Literal["no", "memory", "device"] = "no"  # decoded pairs kept in memory, or on the GPU and cut there

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.weights and len(self.weights) != len(self.folders):
            raise ValueError(f"{len(self.weights)} weights for {len(self.folders)} folders; expected as many")
        if self.kind == "synthesis" and self.cache != "no":
            raise ValueError('kind = "synthesis" makes other pairs in each epoch: expected cache = "no"')
        if self.kind == "synthesis" and self.folders:
            raise ValueError('kind = "synthesis" takes a plan, no folders (nor --data): expected kind = "pairs"')
        if self.kind == "bank" and (len(self.folders) > 1 or self.cache == "memory"):
            raise ValueError('kind = "bank" takes one folder, and is on the device: expected cache = "no" or "device"')
        if self.kind != "synthesis" and self.plan is not None:
            raise ValueError('plan is for kind = "synthesis"')
        return self


class Degradation(_Table):
    """What is added to inputs on their way into the network: parts of all pairs, and how strong."""

    sharp: Part = 0.0  # inputs that are the target itself
    noise: Part = 0.0  # inputs with the noise of a camera more
    jpeg: Part = 0.0  # inputs that went through JPEG
    jpeg_quality: Annotated[tuple[Quality, Quality], AfterValidator(_ascending)] = (50.0, 97.0)

    @property
    def active(self) -> bool:
        """Whether anything is added."""
        return max(self.sharp, self.noise, self.jpeg) > 0.0


class Optimizer(_Table):
    kind: Literal["adam", "adamw"] = "adamw"
    rate: float = Field(1e-3, gt=0)
    betas: tuple[Part, Part] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0)


class Schedule(_Table):
    """The learning rate r over T steps, as a function of the step alone: see `TrainConfig.rate_at`.

    Cosine: r from the first step; from step cT on  floor + (r − floor)·(1 + cos π(t − cT)/(T − cT))/2.
    Steps: r·factor of the last milestone that has passed.
    Both rise evenly from 0 over the first part `warmup` of the steps. torch's schedulers are chains whose next rate
    follows from the last one: after a change of `steps` a resumed training would leave the curve.
    """

    kind: Literal["cosine", "steps", "constant"] = "cosine"
    warmup: Part = 0.0  # part of the steps over which the rate rises
    constant: Part = 0.0  # cosine: part of the steps before it begins
    floor: float = Field(0.0, ge=0)  # cosine: rate at its end
    milestones: Annotated[tuple[Milestone, ...], AfterValidator(_ascending)] = ()  # steps: parts of all steps
    factors: tuple[Positive, ...] = ()  # steps: of the first rate, from each milestone on
    reload_best: bool = False  # steps: go back to the best weights so far at each milestone

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.milestones) != len(self.factors):
            raise ValueError(f"{len(self.milestones)} milestones and {len(self.factors)} factors; expected as many")
        if (self.kind == "steps") != bool(self.milestones):
            raise ValueError(f'kind = "{self.kind}" with {len(self.milestones)} milestones; "steps" needs them')
        return self


class TrainStage(_Table):
    """Progressive learning: crops and batches of other sizes from this part of the steps on."""

    start: Part
    crop: int = Field(ge=8)
    batch: int = Field(ge=1)
    accumulate: int | None = Field(None, ge=1)

    @property
    def parts(self) -> int:
        """Parts that a process takes its share of a batch in."""
        return self.accumulate or 1


class Lesson(_Table):
    """Curriculum: from this part of the steps on, pairs of so much blur (their largest radius, in pixels)."""

    start: Part
    blur_px: Annotated[tuple[Annotated[float, Field(ge=0)], float], AfterValidator(_ascending)]


class ComputeSettings(_Table):
    precision: Literal["no", "bf16", "fp16"] = "no"
    compile: bool = False
    # What torch.compile aims at: "reduce-overhead" records CUDA graphs, for networks of many small kernels; "blocks"
    # compiles each kind of block once, which is ready sooner.
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "blocks"] = "default"
    record: bool = False  # on a GPU, all of a step as one CUDA graph
    channels_last: bool = False


class Validation(_Table):
    every: int = Field(1000, ge=0)  # steps; 0: never
    folders: Folders = ()  # those of the data unless given
    split: SplitName = "validation"
    pairs: int = Field(0, ge=0)  # at most so many, evenly spread; 0: all (of a plan: 64)
    batch: int = Field(1, ge=1)  # pictures of one size at once
    images: int = Field(4, ge=0)  # shown as input, output and target


class Save(_Table):
    every: int = Field(1000, ge=1)
    keep: int = Field(2, ge=1)  # states; the best one besides


class LogSettings(_Table):
    kinds: tuple[LogKind, ...] = ("csv",)
    every: int = Field(50, ge=1)


class TrainConfig(_Table):
    """All settings of a training."""

    name: str = ""
    seed: int = Field(0, ge=0, lt=2**31)
    steps: int = Field(ge=1, le=10**9)
    batch: int = Field(8, ge=1)  # pairs of one step, over all processes
    accumulate: int = Field(1, ge=1)  # parts that each process takes its share in, one after the other
    crop: int = Field(256, ge=8)
    augment: Literal["no", "flips", "turns"] = "turns"  # "turns": flips and quarter turns
    clip_norm: float = Field(0.0, ge=0)  # of the gradients; 0: as it comes
    ema: Part = 0.0  # decay of the moving average of the weights; 0: none
    model: Model
    loss: LossTerms = LossTerms()
    data: Data = Data()
    degrade: Degradation = Degradation()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    progressive: tuple[TrainStage, ...] = ()
    curriculum: tuple[Lesson, ...] = ()
    compute: ComputeSettings = ComputeSettings()
    validation: Validation = Validation()
    save: Save = Save()
    logs: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, parts in (("progressive", self.progressive), ("curriculum", self.curriculum)):
            starts = [part.start for part in parts]
            if starts and (starts[0] != 0.0 or starts != sorted(set(starts))):
                raise ValueError(f"{name}: starts {starts}; expected 0 first, then ascending")
        if self.curriculum and self.data.kind != "synthesis":
            raise ValueError('curriculum is for data.kind = "synthesis": pairs of a folder have the blur they have')
        if self.schedule.reload_best and not self.validation.every:
            raise ValueError("schedule.reload_best needs validation.every: without it no weights are the best")
        for stage in self.stages:
            if stage.batch % stage.parts:
                raise ValueError(f"a batch of {stage.batch} pairs cannot be taken in {stage.parts} equal parts")
        return self

    @cached_property
    def stages(self) -> tuple[TrainStage, ...]:
        """Stages of progressive learning; without it one for all steps."""
        if not self.progressive:
            return (TrainStage(start=0.0, crop=self.crop, batch=self.batch, accumulate=self.accumulate),)
        return tuple(s.model_copy(update={"accumulate": s.accumulate or self.accumulate}) for s in self.progressive)

    @cached_property
    def stage_starts(self) -> list[int]:
        """First step of each stage."""
        return [round(stage.start * self.steps) for stage in self.stages]

    def stage_at(self, step: int) -> TrainStage:
        """The sizes of batch and crops of a step."""
        return self.stages[bisect_right(self.stage_starts, step) - 1]

    def pairs_before(self, step: int) -> int:
        """Number of pairs of all steps before this one."""
        spans = zip(self.stages, self.stage_starts, [*self.stage_starts[1:], step], strict=True)
        return sum(stage.batch * max(0, min(end, step) - first) for stage, first, end in spans)

    def rate_at(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        schedule, rate = self.schedule, self.optimizer.rate
        if schedule.kind == "cosine":
            begin = schedule.constant * self.steps
            part = max(0.0, step - begin) / (self.steps - begin)
            rate = schedule.floor + (rate - schedule.floor) * 0.5 * (1.0 + math.cos(math.pi * part))
        elif schedule.kind == "steps":
            rate *= (1.0, *schedule.factors)[bisect_right(self.milestone_steps, step)]
        rise = round(schedule.warmup * self.steps)
        return rate * min(1.0, (step + 1) / rise) if rise else rate

    @property
    def milestone_steps(self) -> list[int]:
        """First step of each factor of the learning rate."""
        return [round(part * self.steps) for part in self.schedule.milestones]

    @classmethod
    def from_toml(cls, source: str | Path, changes: Sequence[str] = ()) -> TrainConfig:
        """Settings of a file or of a recipe's name; `changes` such as "steps=1000" or "model.size=small" come last.

        Folders and plans are relative to the file, in `changes` to the working folder. Raises `ConfigError` that names
        the key.
        """
        is_file = isinstance(source, Path) or source.endswith(".toml") or Path(source).is_file()
        file = Path(source) if is_file else None
        table = {"recipe": source} if file is None else _anchored(read_toml(file, ConfigError), file.resolve().parent)
        if (recipe := table.pop("recipe", None)) is not None:
            table = merged(tomllib.loads(recipe_text(str(recipe))), table)
        for change in changes:
            table = merged(table, _anchored(parse_change(change), Path.cwd()))
        return validated(cls, table, ConfigError, file)

    def changed(self, changes: dict[str, Any]) -> TrainConfig:
        """These settings with some keys changed, table by table; relative folders are of the working folder."""
        return validated(type(self), merged(self.as_json(), changes), ConfigError)

    def with_folders(self, folders: Sequence[str | Path]) -> TrainConfig:
        """These settings with other `data.folders`, unless `folders` is empty."""
        return self.changed({"data": {"folders": [str(folder) for folder in folders]}}) if folders else self

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")

    def decisive(self) -> dict[str, Any]:
        """What decides the weights and the curve, as JSON."""
        exclude: dict[str, Any] = {
            "name": True,
            "save": True,
            "data": {"workers", "prefetch", "cache", "kept"},
            "logs": {"kinds"},
            "validation": {"images", "batch"},
            "compute": {"compile_mode", "record"},  # how fast, not what
        }
        if not self.degrade.active:  # as before there was any
            exclude["degrade"] = True
        if self.model.start is None:
            exclude["model"] = {"start"}
        return self.model_dump(mode="json", exclude=exclude)


def recipe_names() -> list[str]:
    """Names of the recipes that are shipped, the paper's first."""
    names = [path.name.removesuffix(".toml") for path in RECIPES.iterdir() if path.name.endswith(".toml")]
    return sorted(names, key=lambda name: (name.endswith("-small"), name))


def recipe_text(name: str) -> str:
    """The commented TOML of a recipe. Raises `ConfigError` for an unknown name."""
    if name not in recipe_names():
        raise ConfigError(f"{name!r} is neither a file nor a recipe: {nearest_name(name, recipe_names())}")
    return RECIPES.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def parse_change(text: str) -> dict[str, Any]:
    """ "schedule.floor=1e-6" as a table. The value is TOML; what is no TOML is text."""
    key, equals, value = text.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise ConfigError(f"{text!r}: expected KEY=VALUE, such as steps=1000 or model.size=small")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for name in reversed(names):
        parsed = {name: parsed}
    return parsed


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`changes` over `base`, table by table; lists are replaced whole."""
    table = dict(base)
    for key, value in changes.items():
        old = table.get(key)
        table[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return table


def _anchored(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Settings with folders and plans below `folder`; what is of the wrong kind is left for the check."""

    def anchor(path: Any) -> Any:
        if isinstance(path, list):
            return [anchor(one) for one in path]
        return str(folder / path) if isinstance(path, str) and "://" not in path else path

    anchored = dict(table)
    for name in ("data", "validation"):
        part = anchored.get(name)
        if isinstance(part, dict):
            anchored[name] = part | {key: anchor(part[key]) for key in ("folders", "plan") if key in part}
    return anchored
