"""A plan whose data set is made in seconds, and that data set. Gaussian blur: nothing of optics is compiled."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from defocus.files.ownership import MARK
from defocus.files.pair_folders import LEDGER

TINY: dict[str, Any] = {
    "name": "tiny",
    "seed": 3,
    "sources": [{"count": 6, "names": ["table", "letters"]}],  # those that are drawn fastest
    "lenses": {"only": ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*"], "survey": False},
    "train": {"pairs": 6},
    "validation": {"pairs": 2},
    "test": {"pairs": 2},
    "patch": {"size": 48, "kernel": 32, "photograph": [120, 80]},
    "limits": {"coc_px": 12, "samples": 1e6},  # large pixels: blur of up to 10 of them needs fast lenses
    "psf": {"kind": "gaussian"},
}


def write_plan(file: Path, plan: dict[str, Any]) -> Path:
    """As TOML: parts of a plan are tables of numbers, texts and lists."""

    def lines(table: dict[str, Any]) -> list[str]:
        return [f"{key} = {json.dumps(value)}" for key, value in table.items()]

    text = lines({k: v for k, v in plan.items() if not isinstance(v, dict) and k != "sources"})
    for source in plan.get("sources", []):
        text += ["[[sources]]", *lines(source)]
    for name, part in plan.items():
        if isinstance(part, dict):
            text += [f"[{name}]", *lines(part)]
    file.write_text("\n".join(text) + "\n")
    return file


def contents(folder: Path) -> dict[str, bytes]:
    """All files by their paths but the ledger, which knows times, and the mark, which no two folders share."""
    own = {LEDGER, f".{LEDGER}.lock", MARK}
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in own)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def tiny_plan() -> dict[str, Any]:
    """To change at will."""
    return deepcopy(TINY)


@pytest.fixture(scope="session")
def reference_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished data set of `tiny_plan`, made by this process without interruption. Not to be changed."""
    from defocus.synth.engines.local import LocalEngine
    from defocus.synth.plan import make_plan
    from defocus.synth.run import run_plan

    folder = tmp_path_factory.mktemp("reference") / "pairs"
    summary = run_plan(make_plan(TINY), folder, LocalEngine(1))
    assert summary.complete
    return folder
