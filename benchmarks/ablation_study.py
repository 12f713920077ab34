"""The paper's ablation at a small scale, on one GPU: what each part of the synthesis is worth to a small network.

    python benchmarks/ablation_study.py WORK data               # photographs, then the four sets of pairs
    python benchmarks/ablation_study.py WORK train --steps N    # all trainings side by side
    python benchmarks/ablation_study.py WORK judge --results F  # tables and figures; JSON and Markdown to F

`defocus ablate` does the same, one training after the other. WORK is a folder for data and trainings. Photographs are
procedural scenes; lenses are the built-in ones; the largest blur radius of a pair is drawn evenly from four levels;
every setting that is not named here is the paper's. Each stage goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import machine
from synth_speed import photographs

IMAGES = 96
PLAN: dict[str, Any] = {
    "name": "ablation study",
    "seed": 11,
    "lenses": {"survey": False},
    "train": {"pairs": 2000},
    "validation": {"pairs": 64},
    "test": {"pairs": 400},
    "patch": {"size": 256},
    "blur": {"levels_px": [2, 4, 8, 16], "weights": [1, 1, 1, 1]},
    "output": {"layout": "pairs"},
}
TRAINING = ("batch=16", "crop=128", "compute.precision=bf16", "validation.every=500", "save.every=500", "logs.every=25")


def config(given: argparse.Namespace) -> Any:
    from defocus.restore.config import TrainConfig

    return TrainConfig.from_toml("nafnet-small", (*TRAINING, f"steps={given.steps}", *given.changes))


def make_data(work: Path) -> None:
    from defocus.evaluate.ablation import Watch, make_variants
    from defocus.synth.engines.local import LocalEngine
    from defocus.synth.plan import make_plan

    start = time.perf_counter()
    if not (work / "photos").is_dir():
        photographs(work / "photos", IMAGES)
    print(f"{IMAGES} photographs: {time.perf_counter() - start:.0f} s", flush=True)
    last = [""]

    def told(title: str, state: Any) -> None:
        line = f"{title}: {state.stage}, {state.done} of {state.wanted}, {state.rejected} rejected"
        if (title, state.stage) != last[0] or state.done == state.wanted:
            print(f"{time.perf_counter() - start:.0f} s: {line}", flush=True)
            last[0] = (title, state.stage)

    plan = make_plan(PLAN | {"sources": [{"kind": "rgb", "folder": str(work / "photos")}]})
    make_variants(plan, work, LocalEngine(1), Watch(data=told))


def train_all(given: argparse.Namespace) -> None:
    """A process for each: a small network leaves a large GPU idle most of the time."""
    from defocus.evaluate.ablation import VARIANTS

    start = time.perf_counter()
    own = [sys.executable, __file__, str(given.work), "train-one", "--steps", str(given.steps)]
    own += [part for change in given.changes for part in ("--set", change)]
    running = {
        f"{variant.name}-{seed}": subprocess.Popen([*own, "--variant", variant.name, "--seeds", str(seed)])
        for seed in given.seeds
        for variant in VARIANTS
    }
    codes = {name: process.wait() for name, process in running.items()}
    print(f"trained in {time.perf_counter() - start:.0f} s, exit codes {codes}", flush=True)
    if any(codes.values()):
        sys.exit(1)


def train_one(given: argparse.Namespace) -> None:
    from defocus.evaluate.ablation import VARIANTS, train_variant

    (seed,) = given.seeds
    name = f"{given.variant}-{seed}"
    variant = next(v for v in VARIANTS if v.name == given.variant)
    last = [time.monotonic()]

    def told(state: Any) -> None:
        if time.monotonic() - last[0] > 20.0:
            last[0] = time.monotonic()
            speed = state.steps_per_s or 0.0
            print(f"{name}: step {state.step}, loss {state.loss}, {state.psnr} dB, {speed:.1f}/s", flush=True)

    train_variant(config(given), given.work, variant, seed, told)


def judge(given: argparse.Namespace) -> None:
    import torch

    from defocus.evaluate.ablation import CURVES, JUDGED, VARIANTS, Watch, judge_variants, over_seeds, run_folder

    work, results = given.work, given.results
    weights = {(v.name, seed): run_folder(work, v, seed) / "last.pt" for seed in given.seeds for v in VARIANTS}
    missing = [str(file) for file in weights.values() if not file.is_file()]
    if missing:
        sys.exit(f"not trained yet: {', '.join(missing)}")
    made = judge_variants(config(given), work, weights, None, ("psnr", "ssim"), Watch())
    results.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = {
        "machine": machine(), "device": device, "torch": torch.__version__, "plan": PLAN, "images": IMAGES,
        "training": ["nafnet-small", *TRAINING, f"steps={given.steps}", *given.changes], "seeds": given.seeds,
        "same_patches": made.same, "results": made.results.as_json(),
        "over_seeds": over_seeds(made.results, given.seeds).as_json() if len(given.seeds) > 1 else None,
    }  # fmt: skip
    (results / "ablation_study.json").write_text(json.dumps(about, indent=1) + "\n")
    head = f"{made.report.read_text()}\nMeasured on {device}, torch {torch.__version__}.\n"
    (results / "ablation_study.md").write_text(head)
    shutil.copy(work / CURVES, results / "ablation_curves.png")
    for figure in (*(work / JUDGED / "figures").rglob("*.png"), *work.glob("*-by-blur.png")):
        shutil.copy(figure, results / f"ablation_{figure.name}")
    for kind in ("validation", "loss"):
        one_csv({name: run_folder(work, v, s) / f"{kind}.csv" for name, v, s in named(given)}, kind, results)
    for (name, seed), file in weights.items():
        shutil.copy(file, results / f"{name}-{seed}.pt")
    print(made.report.read_text(), flush=True)


def named(given: argparse.Namespace) -> list[tuple[str, Any, int]]:
    from defocus.evaluate.ablation import VARIANTS

    return [(f"{v.name}-{seed}", v, seed) for seed in given.seeds for v in VARIANTS]


def one_csv(files: dict[str, Path], kind: str, results: Path) -> None:
    """The logs of all trainings in one file, with the training's name in front."""
    lines: list[str] = []
    for name, file in files.items():
        head, *rows = file.read_text().splitlines()
        lines += [*([] if lines else [f"training,{head}"]), *(f"{name},{row}" for row in rows)]
    (results / f"ablation_study_{kind}.csv").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("stage", choices=("data", "train", "train-one", "judge"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0, 1])
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE of the training")
    parser.add_argument("--variant", default="full")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if given.stage == "data":
        make_data(given.work)
    elif given.stage == "train":
        train_all(given)
    elif given.stage == "train-one":
        train_one(given)
    else:
        judge(given)


if __name__ == "__main__":
    main()
