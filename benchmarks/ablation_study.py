"""The paper's ablation at a small scale, on one GPU: what each part of the synthesis is worth to a small network.

    python benchmarks/ablation_study.py WORK data               # photographs, then the five sets of pairs
    python benchmarks/ablation_study.py WORK train --steps N    # all trainings side by side
    python benchmarks/ablation_study.py WORK judge [--out F]    # tables and figures; JSON and Markdown to F
    python benchmarks/ablation_study.py WORK --quick            # all stages, for two variants

`defocus ablate` does the same, one training after the other. WORK is a folder for data and trainings. Photographs are
procedural scenes; lenses are the built-in ones; the largest blur radius of a pair is drawn evenly from four levels;
every setting that is not named here is the paper's. Each stage goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import SMALL_PLAN, amount, machine, read_arguments, write_report
from synth_speed import photographs

IMAGES = amount(96, quick=3)
QUICK_PLAN = SMALL_PLAN | {
    "train": {"pairs": 2}, "validation": {"pairs": 1}, "test": {"pairs": 1}, "psf": {"kind": "disk"},
}  # fmt: skip
PLAN: dict[str, Any] = amount(
    {
        "name": "ablation study",
        "seed": 11,
        "lenses": {"survey": False},
        "train": {"pairs": 2000},
        "validation": {"pairs": 64},
        "test": {"pairs": 400},
        "patch": {"size": 256},
        "blur": {"levels_px": [2, 4, 8, 16], "weights": [1, 1, 1, 1]},
        "output": {"layout": "pairs"},
    },
    quick=QUICK_PLAN,
)
STUDY = "study"  # the folder of data, trainings and results
TRAINING = amount(
    ("batch=16", "crop=128", "compute.precision=bf16", "validation.every=500", "save.every=500", "logs.every=25"),
    quick=("batch=1", "crop=32", "validation.every=1", "save.every=1", "logs.every=1", "data.workers=0",
           "model.overrides={width=4,encoder_blocks=[1],decoder_blocks=[1]}"),
)  # fmt: skip


def study_of(given: argparse.Namespace) -> Any:
    from defocus.evaluate import AblationStudy
    from defocus.evaluate.ablation import PAPER_PSF, VARIANTS
    from defocus.restore.config import TrainConfig
    from defocus.synth.plan import make_plan

    plan = make_plan(PLAN | {"sources": [{"kind": "rgb", "folder": str(given.work / "photos")}]})
    config = TrainConfig.from_toml("nafnet-small", (*TRAINING, f"steps={given.steps}", *given.changes))
    variants = amount((*VARIANTS, PAPER_PSF), quick=VARIANTS[:2])
    return AblationStudy(plan, config, given.work / STUDY, given.seeds, variants=variants)


def make_data(given: argparse.Namespace) -> None:
    from defocus.synth.engines.local import LocalEngine

    start = time.perf_counter()
    if not (given.work / "photos").is_dir():
        photographs(given.work / "photos", IMAGES)
    print(f"{IMAGES} photographs: {time.perf_counter() - start:.0f} s", flush=True)
    last = [""]

    def show(title: str, state: Any) -> None:
        line = f"{title}: {state.stage}, {state.done} of {state.planned}, {state.rejected} rejected"
        if (title, state.stage) != last[0] or state.done == state.planned:
            print(f"{time.perf_counter() - start:.0f} s: {line}", flush=True)
            last[0] = (title, state.stage)

    study = study_of(given)
    study.folder()  # is claimed before anything lies in it
    study.make_pairs(LocalEngine(1), show)


def train_all(given: argparse.Namespace) -> None:
    """A process for each: a small network leaves a large GPU idle most of the time."""
    start = time.perf_counter()
    own = [sys.executable, __file__, str(given.work), "train-one", "--steps", str(given.steps)]
    own += [part for change in given.changes for part in ("--set", change)]
    running = {
        f"{variant.name}-{seed}": subprocess.Popen([*own, "--variant", variant.name, "--seeds", str(seed)])
        for seed in given.seeds
        for variant in study_of(given).variants
    }
    codes = {name: process.wait() for name, process in running.items()}
    print(f"trained in {time.perf_counter() - start:.0f} s, exit codes {codes}", flush=True)
    if any(codes.values()):
        sys.exit(1)


def train_one(given: argparse.Namespace) -> None:
    study = study_of(given)
    (seed,) = given.seeds
    name = f"{given.variant}-{seed}"
    variant = next(v for v in study.variants if v.name == given.variant)
    last = [time.monotonic()]

    def show(_title: str, state: Any) -> None:
        if time.monotonic() - last[0] > 20.0:
            last[0] = time.monotonic()
            speed = state.steps_per_s or 0.0
            print(f"{name}: step {state.step}, loss {state.loss}, {state.psnr} dB, {speed:.1f}/s", flush=True)

    study.train_variant(variant, seed, show)


def judge(given: argparse.Namespace) -> None:
    import torch

    from defocus.evaluate.ablation import CURVES, JUDGED, LAST

    work, results, study = given.work / STUDY, given.out, study_of(given)
    weights = {(v.name, seed): study.run_folder(v, seed) / LAST for seed in given.seeds for v in study.variants}
    missing = [str(file) for file in weights.values() if not file.is_file()]
    if missing:
        sys.exit(f"not trained yet: {', '.join(missing)}")
    ablation = study.judge()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    about = {
        "machine": machine(), "device": device, "torch": torch.__version__, "plan": PLAN, "images": IMAGES,
        "training": ["nafnet-small", *TRAINING, f"steps={given.steps}", *given.changes], "seeds": given.seeds,
        "same_patches": ablation.same, "results": ablation.results.as_json(),
        "over_seeds": study.over_seeds(ablation.results).as_json() if len(given.seeds) > 1 else None,
    }  # fmt: skip
    page = f"{ablation.report.read_text()}\nMeasured on {device}, torch {torch.__version__}.\n"
    write_report(results, "ablation_study", about, page)
    shutil.copy(work / CURVES, results / "ablation_curves.png")
    for figure in (*(work / JUDGED / "figures").rglob("*.png"), *work.glob("*-by-blur.png")):
        shutil.copy(figure, results / f"ablation_{figure.name}")
    for kind in ("validation", "loss"):
        one_csv({name: study.run_folder(v, s) / f"{kind}.csv" for name, v, s in named(given)}, kind, results)
    for (name, seed), file in weights.items():
        shutil.copy(file, results / f"{name}-{seed}.pt")


def named(given: argparse.Namespace) -> list[tuple[str, Any, int]]:
    return [(f"{v.name}-{seed}", v, seed) for seed in given.seeds for v in study_of(given).variants]


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
    parser.add_argument("stage", nargs="?", choices=("data", "train", "train-one", "judge"))
    parser.add_argument("--steps", type=int, default=amount(4000, quick=1))
    parser.add_argument(
        "--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=amount([0, 1], quick=[0])
    )
    parser.add_argument("--set", dest="changes", action="append", default=[], help="KEY=VALUE of the training")
    parser.add_argument("--variant", default="full")
    given = read_arguments(parser)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if given.quick:
        make_data(given)
        for _, variant, seed in named(given):
            train_one(argparse.Namespace(**vars(given) | {"variant": variant.name, "seeds": [seed]}))
        judge(given)
    elif given.stage is None:
        parser.error("a stage is missing: data, train or judge")
    elif given.stage == "data":
        make_data(given)
    elif given.stage == "train":
        train_all(given)
    elif given.stage == "train-one":
        train_one(given)
    else:
        judge(given)


if __name__ == "__main__":
    main()
