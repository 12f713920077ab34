"""The paper's ablation at a small scale, on one GPU: what each part of the synthesis is worth to a small network.

    python benchmarks/ablation_study.py WORK data               # photographs, then the four sets of pairs
    python benchmarks/ablation_study.py WORK train --steps N    # four trainings side by side
    python benchmarks/ablation_study.py WORK judge --results F  # tables and figures; JSON and Markdown to F

`defocus ablate` does the same, one training after the other. WORK is a folder for data and trainings. Photographs are
procedural scenes; lenses are the built-in ones; every setting that is not named here is the paper's.
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

IMAGES = 64
PLAN: dict[str, Any] = {
    "name": "ablation study",
    "seed": 11,
    "lenses": {"survey": False},
    "train": {"pairs": 1600},
    "validation": {"pairs": 64},
    "test": {"pairs": 300},
    "patch": {"size": 256},
    "output": {"layout": "pairs"},
}
TRAINING = ("batch=16", "crop=128", "compute.precision=bf16", "validation.every=500", "save.every=500", "logs.every=25")


def config(steps: int) -> Any:
    from defocus.restore.config import TrainConfig

    return TrainConfig.from_toml("nafnet-small", (*TRAINING, f"steps={steps}"))


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


def train_all(work: Path, steps: int, seed: int) -> None:
    """A process for each: a small network leaves a large GPU idle most of the time."""
    from defocus.evaluate.ablation import VARIANTS

    start = time.perf_counter()
    own = [sys.executable, __file__, str(work), "train-one", "--steps", str(steps), "--seed", str(seed)]
    running = {v.name: subprocess.Popen([*own, "--variant", v.name]) for v in VARIANTS}
    codes = {name: process.wait() for name, process in running.items()}
    print(f"trained in {time.perf_counter() - start:.0f} s, exit codes {codes}", flush=True)
    if any(codes.values()):
        sys.exit(1)


def train_one(work: Path, steps: int, seed: int, name: str) -> None:
    from defocus.evaluate.ablation import VARIANTS, train_variant

    variant = next(v for v in VARIANTS if v.name == name)
    last = [time.monotonic()]

    def told(state: Any) -> None:
        if time.monotonic() - last[0] > 20.0:
            last[0] = time.monotonic()
            speed = state.steps_per_s or 0.0
            print(f"{name}: step {state.step}, loss {state.loss}, {state.psnr} dB, {speed:.1f}/s", flush=True)

    train_variant(config(steps), work, variant, seed, told)


def judge(work: Path, steps: int, seed: int, results: Path) -> None:
    import torch

    from defocus.evaluate.ablation import CURVES, JUDGED, VARIANTS, Watch, judge_variants, run_folder

    weights = {(v.name, seed): run_folder(work, v, seed) / "last.pt" for v in VARIANTS}
    missing = [str(file) for file in weights.values() if not file.is_file()]
    if missing:
        sys.exit(f"not trained yet: {', '.join(missing)}")
    made = judge_variants(config(steps), work, weights, None, ("psnr", "ssim"), Watch())
    results.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = {
        "machine": machine(), "device": device, "torch": torch.__version__, "plan": PLAN, "images": IMAGES,
        "training": ["nafnet-small", *TRAINING, f"steps={steps}", f"seed={seed}"], "same_patches": made.same,
        "results": made.results.as_json(),
    }  # fmt: skip
    (results / "ablation_study.json").write_text(json.dumps(about, indent=1) + "\n")
    head = f"{made.report.read_text()}\nMeasured on {device}, torch {torch.__version__}.\n"
    (results / "ablation_study.md").write_text(head)
    shutil.copy(work / CURVES, results / "ablation_curves.png")
    for figure in (work / JUDGED / "figures").rglob("*.png"):
        shutil.copy(figure, results / f"ablation_{figure.name}")
    for variant in VARIANTS:
        for kind in ("validation.csv", "loss.csv"):
            shutil.copy(run_folder(work, variant, seed) / kind, results / f"ablation_{variant.name}_{kind}")
        shutil.copy(weights[variant.name, seed], results / f"{variant.name}.pt")
    print(made.report.read_text(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("stage", choices=("data", "train", "train-one", "judge"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variant", default="full")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if given.stage == "data":
        make_data(given.work)
    elif given.stage == "train":
        train_all(given.work, given.steps, given.seed)
    elif given.stage == "train-one":
        train_one(given.work, given.steps, given.seed, given.variant)
    else:
        judge(given.work, given.steps, given.seed, given.results)


if __name__ == "__main__":
    main()
