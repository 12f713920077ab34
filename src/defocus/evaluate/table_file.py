"""The table file of an evaluation: rows (models and what they were trained on), test sets and measures, in TOML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import ConfigError
from ..files.settings import nearest_name, read_toml, validated
from .measures import KINDS
from .test_sets import TestKind


class _TablePart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


class TableRow(_TablePart):
    """What is compared: a network with its weights, the blurred pictures themselves, or pictures made elsewhere."""

    kind: Literal["model", "input", "folder"] = "model"
    name: str = ""  # by default the model's
    trained_on: str = ""
    model: str = ""  # that `build_model` knows; empty: what the weights file says
    options: dict[str, Any] = {}  # of the model, where they differ from what the weights file says
    weights: Path | None = None
    folder: Path | None = None  # of kind "folder"; {test} stands for the name of the test set
    precision: Literal["float32", "bf16"] = "float32"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for kind, needs in (("model", "weights"), ("folder", "folder"), ("folder", "name")):
            if self.kind == kind and not getattr(self, needs):
                raise ValueError(f'kind = "{kind}" needs {"a " * (needs != "weights")}{needs}')
        if self.kind != "model" and (self.weights is not None or self.model):
            raise ValueError(f'kind = "{self.kind}" takes neither model nor weights')
        if self.kind != "folder" and self.folder is not None:
            raise ValueError(f'kind = "{self.kind}" takes no folder')
        return self

    @property
    def label(self) -> str:
        """The model's name, or what stands for it."""
        return self.name or ("Input" if self.kind == "input" else self.model or (self.weights or Path()).stem)

    @property
    def title(self) -> str:
        """Model and training set in one."""
        return f"{self.label} ({self.trained_on})" if self.trained_on else self.label

    @property
    def key(self) -> str:
        """Name of the row in files, unique in the table."""
        return slug(self.title)


class Test(_TablePart):
    """A test set of a table."""

    __test__ = False  # not what pytest looks for

    kind: TestKind
    folder: str
    name: str = ""
    split: Literal["train", "validation", "test"] = "test"
    partial: bool = False  # take it with fewer pictures, or others, than the set has
    limit: int | None = Field(None, ge=1)
    reduce: int = Field(1, ge=1, le=16)  # pictures at this fraction of their size: 2 halves width and height

    @property
    def label(self) -> str:
        from .test_sets import FACTS

        return self.name or (FACTS[self.kind].title if self.kind in FACTS else Path(self.folder).name)

    @property
    def key(self) -> str:
        return slug(self.label)


class MeasureFiles(_TablePart):
    """Weights and parameters of measures; where left out they are looked for."""

    lpips: Path | None = None
    niqe: Path | None = None


class EvaluationTable(_TablePart):
    """What is compared with what, by which measures."""

    title: str = "Evaluation"
    paper: bool = False  # whether the paper's numbers stand beside ours, where it has the same row and test
    rows: tuple[TableRow, ...] = Field(min_length=1)
    tests: tuple[Test, ...] = Field(min_length=1)
    metrics: tuple[str, ...] = Field(("psnr", "ssim"), min_length=1)
    files: MeasureFiles = MeasureFiles()
    device: str = "auto"
    tile_px: int | None = Field(None, ge=32)  # None: whole pictures where memory allows, else tiles of 512
    overlap_px: int = Field(64, ge=0)
    bits: Literal[8, 16] = 8  # of the pictures that are saved, and measured
    marks: Literal["test", "model"] = "test"  # best and second of all rows of a test set, or of each model's
    blur_levels_px: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0, 32.0)  # upper ends of largest blur radii
    bootstrap: int = Field(2000, ge=100, le=100_000)
    seed: int = Field(0, ge=0)
    figures: int = Field(3, ge=0, le=100)  # pictures of each test set that are drawn
    crops: int = Field(2, ge=0, le=4)  # enlarged parts of each

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in self.metrics:
            if name not in KINDS:
                raise ValueError(f"metrics: {name!r}; {nearest_name(name, KINDS)}")
        keys = {"rows": [r.key for r in self.rows], "tests": [t.key for t in self.tests], "metrics": self.metrics}
        for what, names in keys.items():
            name, count = Counter(names).most_common(1)[0]
            if count > 1:
                raise ValueError(f"{what}: two of them are called {name!r}; leave one out or give it another name")
        if self.tile_px is not None and 2 * self.overlap_px > self.tile_px:
            raise ValueError(
                f"tile_px = {self.tile_px} and overlap_px = {self.overlap_px}; tiles may share half of it at most"
            )
        if list(self.blur_levels_px) != sorted(set(self.blur_levels_px)) or any(x <= 0 for x in self.blur_levels_px):
            raise ValueError(f"blur_levels_px = {list(self.blur_levels_px)}; expected ascending positive numbers")
        return self

    @property
    def input_row(self) -> TableRow | None:
        """The row of the blurred pictures themselves, if there is one."""
        return next((row for row in self.rows if row.kind == "input"), None)

    def changed(self, *, metrics: Sequence[str] | None = None, device: str | None = None) -> EvaluationTable:
        """The table with other measures, or on another device, where given; checked again."""
        changes = {"metrics": metrics and tuple(metrics), "device": device}
        values = self.model_dump() | {key: value for key, value in changes.items() if value is not None}
        return validated(EvaluationTable, values, ConfigError)


def load_table(path: str | Path, root: str | Path | None = None) -> EvaluationTable:
    """The table of a file, checked; paths in it are relative to `root`, or to the file. Raises `ConfigError` that names
    the key."""
    path = Path(path)
    table = validated(EvaluationTable, read_toml(path, ConfigError), ConfigError, path)
    root = path.resolve().parent if root is None else Path(root).resolve()

    def whole(place: Path | None) -> Path | None:
        return None if place is None else root / place

    rows = [r.model_copy(update={"weights": whole(r.weights), "folder": whole(r.folder)}) for r in table.rows]
    tests = [t if "://" in t.folder else t.model_copy(update={"folder": str(root / t.folder)}) for t in table.tests]
    files = MeasureFiles(lpips=whole(table.files.lpips), niqe=whole(table.files.niqe))
    return table.model_copy(update={"rows": tuple(rows), "tests": tuple(tests), "files": files})


def slug(text: str) -> str:
    """Text as the name of a file."""
    return re.sub(r"[\W_]+", "-", text.lower()).strip("-") or "x"


def template(name: str) -> str:
    """A commented table to start from, as the text of a file of this name."""
    return (
        resources.files(__package__).joinpath("template.toml").read_text(encoding="utf-8").replace("table.toml", name)
    )
