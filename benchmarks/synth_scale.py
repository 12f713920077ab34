"""What a plan of many candidates costs beside its rendering: checking, drawing, the ledger, shards and metadata.

    python benchmarks/synth_scale.py [--candidates 10000 100000] [--copies 1000000] [--out FOLDER] [--quick]

Every number of candidates runs in a process of its own, through `run_plan` as it is, but for `make_pairs`: a pair is a
picture of 8 × 8 pixels that needs no optics. `--copies`: candidates are copies of some hundred that are drawn, with
other numbers and measures of sharpness, where drawing would take hours. Writes synth_scale.json and .md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from machine import SMALL_PLAN, amount, machine, read_arguments, write_report

PLAN: dict[str, Any] = SMALL_PLAN | {
    "lenses": amount({"survey": False}, quick=SMALL_PLAN["lenses"]),
    "train": {"image_fraction": 1.0, "lens_fraction": 1.0},
    "validation": {"pairs": 0},
    "test": {"pairs": 0},
    "patch": {"size": 48, "kernel": 32, "photograph": amount([240, 160], quick=[120, 80])},
    "output": {"layout": "webdataset", "pairs_per_shard": 512},
}


class Stages(threading.Thread):
    """Seconds and the largest resident memory (MB) of each stage."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stages: dict[str, dict[str, float]] = {}
        self._stage, self._began, self._over = "", time.perf_counter(), threading.Event()
        self.start()

    def end(self) -> None:
        """The last stage is over."""
        self.begin("")
        self._over.set()

    def run(self) -> None:
        while not self._over.wait(0.1):
            if self._stage:
                row = self.stages[self._stage]
                row["resident_mb"] = max(row["resident_mb"], resident_mb())

    def begin(self, stage: str) -> None:
        if stage == self._stage:
            return
        now = time.perf_counter()
        if self._stage:
            self.stages[self._stage]["seconds"] += now - self._began
        if stage:
            self.stages.setdefault(stage, {"seconds": 0.0, "resident_mb": 0.0})
        self._stage, self._began = stage, now


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def leave_out_rendering() -> Callable[..., Any]:
    """A `make_pairs` that takes no time; everything else is as ever."""
    from defocus.synth.pairs import Pair

    picture = np.random.default_rng(0).integers(0, 255, (8, 8, 3), np.uint8)
    more = {
        "offset_px": [0.1, 0.2],
        "source_kind": "scenes",
        "psf": {"kind": "lens", "bands": {"d": [587.5618]}, "energy_outside": 0.001, "samples": 768, "kernel_px": 32},
        "layer_depth_m": [float(f"{v:.6g}") for v in np.geomspace(1, 20, 12)],
        "layer_coc_px": [round(float(v), 4) for v in np.linspace(-4, 7, 12)],
        "notes": [],
    }

    def make_pairs(plan: Any, recipes: Any, sharps: Any, lenses: Any, watch: Any) -> list[Pair]:
        pictures = {"blurred": picture, "sharp": picture}
        return [Pair(recipe, dict(pictures), recipe.to_json() | more) for recipe in recipes]

    return make_pairs


def copy_candidates() -> Callable[..., Any]:
    """A `draw_candidates` that copies the first that are drawn."""
    from defocus.synth.candidates import draw_candidates
    from defocus.synth.recipe import Outcome, Recipe, pair_id

    recipes: list[Recipe] = []

    def draw(plan: Any, split: Any, numbers: Any, sharp: Any, choice: Any) -> list[Outcome]:
        if not recipes:
            outcomes = draw_candidates(plan, split, numbers, sharp, choice)
            recipes.extend(Recipe.from_json(o.record) for o in outcomes if o.record)
        random = np.random.default_rng(numbers[0])
        outcomes = []
        for n, sharpness in zip(numbers, random.gamma(2.0, 1.0, (len(numbers), 3)).tolist(), strict=True):
            recipe = replace(recipes[n % len(recipes)], id=pair_id(split, n), index=n, sharpness=tuple(sharpness))
            outcomes.append(Outcome(recipe.id, "drawn", record=recipe.to_json()))
        return outcomes

    return draw


def measure(candidates: int, copies: bool, folder: Path) -> dict[str, Any]:
    """One run, the same command again, and a look at the files without decoding pictures."""
    from defocus.synth import worker
    from defocus.synth.check import preview_plan
    from defocus.synth.engines.local import LocalEngine
    from defocus.synth.plan import make_plan
    from defocus.synth.run import run_plan
    from defocus.synth.verify import verify_folder

    replaced = {"make_pairs": leave_out_rendering()} | ({"draw_candidates": copy_candidates()} if copies else {})
    plan = make_plan(PLAN | {"train": PLAN["train"] | {"pairs": round(candidates / 1.5)}})
    stages = Stages()
    stages.begin("check")
    with patch.multiple(worker, **replaced):
        preview_plan(plan, folder, read=False)
        summary = run_plan(plan, folder / "pairs", LocalEngine(1), watch=lambda progress: stages.begin(progress.stage))
        stages.begin("the same command again")
        assert run_plan(plan, folder / "pairs", LocalEngine(1)).complete
        stages.begin("verify --no-pictures")
        assert verify_folder(folder / "pairs", pictures=False).sound
    stages.end()
    sizes = {
        name: (folder / "pairs" / name).stat().st_size / 1e6
        for name in ("ledger.sqlite", "pairs.jsonl", "pairs.parquet")
    }
    return {
        "candidates": candidates,
        "copies": copies,
        "pairs": sum(summary.pairs.values()),
        "complete": summary.complete,
        "stages": {name: {k: round(v, 2) for k, v in row.items()} for name, row in stages.stages.items()},
        "megabytes": {name: round(size, 2) for name, size in sizes.items()},
    }


def markdown(result: dict[str, Any]) -> str:
    runs = result["runs"]
    names = list(dict.fromkeys(name for run in runs for name in run["stages"]))
    head = [
        f"{run['candidates']:,} candidates, {run['pairs']:,} pairs{' (copies)' if run['copies'] else ''}"
        for run in runs
    ]

    def row(name: str, run: dict[str, Any]) -> str:
        stage = run["stages"].get(name)
        if stage is None:
            return ""
        per = 1e6 * stage["seconds"] / run["candidates"]
        return f"{stage['seconds']:.1f} s, {per:,.0f} µs each, {stage['resident_mb']:,.0f} MB"

    place = result["machine"]
    lines = [
        "# A plan of many candidates, without rendering",
        "",
        f"{place['cpu']}, {place['cores']} cores, load {place['load_before']:.1f} before, Python {place['python']}. "
        "One process leads and works; pairs are pictures of 8 × 8 pixels in shards of 512. Each stage: seconds, "
        "microseconds for each candidate, largest resident memory. (copies): candidates are copies of some hundred.",
        "",
        f"| stage | {' | '.join(head)} |",
        f"| --- |{' --- |' * len(runs)}",
        *(f"| {name} | {' | '.join(row(name, run) for run in runs)} |" for name in names),
        "| ledger, lines, table (MB) | "
        + " | ".join(", ".join(f"{v:,.1f}" for v in run["megabytes"].values()) for run in runs)
        + " |",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, nargs="*", default=amount([10_000, 100_000], quick=[9]))
    parser.add_argument("--copies", type=int, nargs="*", default=[])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = read_arguments(parser)
    if options.one is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(options.one, bool(options.copies), Path(folder))))
        return
    runs: list[dict[str, Any]] = []
    before = machine(("jax", "numpy", "pyarrow"))
    for count, copies in [(n, False) for n in options.candidates] + [(n, True) for n in options.copies]:
        if options.quick:
            runs.append(measure(count, copies, Path(options.out)))
        else:
            command = [sys.executable, __file__, "--one", str(count), *(["--copies", "1"] if copies else [])]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            runs.append(json.loads(output.splitlines()[-1]))
        result = {"machine": before, "runs": runs}
        write_report(options.out, "synth_scale", result, markdown(result))


if __name__ == "__main__":
    main()
