"""Steps per second of `defocus train` on this machine, for ways to feed it and to compute.

    python benchmarks/train_speed.py [--out FOLDER] [--recipe nafnet-small] [--pairs 1000] [--size 384] [--steps 300]
        [--set KEY=VALUE ...] [--variants device,device-bf16,...] [--quick]

Pairs are random textures written as PNG before the clock starts. Writes train_speed.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from machine import amount, machine, read_arguments, write_report

VARIANTS: dict[str, list[str]] = {
    "device": ["data.cache=device"],
    "device-bf16": ["data.cache=device", "compute.precision=bf16"],
    "device-bf16-last": ["data.cache=device", "compute.precision=bf16", "compute.channels_last=true"],
    "device-compiled": ["data.cache=device", "compute.precision=bf16", "compute.compile=true"],
    "memory": ["data.cache=memory"],
    "files": ["data.cache=no"],
}

SMALL_TRAINING = [
    "batch=1", "crop=32", "data.workers=0", "model.overrides={width=4,encoder_blocks=[1],decoder_blocks=[1]}"
]  # fmt: skip


def write_pair(job: tuple[Path, str, int, int]) -> None:
    from defocus.files.pictures import quantise
    from defocus.files.png import png_bytes

    folder, split, number, size = job
    rng = np.random.default_rng(number)
    fine = rng.random((size, size, 3), np.float32)
    sharp = sum(np.roll(fine, (a, b), (0, 1)) for a in (0, 1) for b in (0, 1)) / 4.0
    blurred = sum(np.roll(sharp, (2 * a, 2 * b), (0, 1)) for a in range(4) for b in range(4)) / 16.0
    for side, values in (("input", blurred), ("target", sharp)):
        file = folder / split / side / f"{number:06d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(png_bytes(quantise(values, 8)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="nafnet-small")
    parser.add_argument("--pairs", type=int, default=amount(1000, quick=1))
    parser.add_argument("--size", type=int, default=amount(384, quick=32))
    parser.add_argument("--steps", type=int, default=amount(300, quick=4))
    parser.add_argument("--set", dest="changes", action="append", default=amount([], quick=SMALL_TRAINING))
    parser.add_argument("--variants", default=amount(",".join(VARIANTS), quick="memory"))
    given = read_arguments(parser)

    import torch

    from defocus.restore.config import TrainConfig
    from defocus.restore.training import train

    told = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pairs"
        jobs = [(folder, "train", n, given.size) for n in range(given.pairs)]
        jobs += [(folder, "validation", given.pairs + n, given.size) for n in range(amount(16, quick=1))]
        if given.quick:
            list(map(write_pair, jobs))
        else:
            with ProcessPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(write_pair, jobs, chunksize=8))
        for name in given.variants.split(","):
            every = [f"steps={given.steps}", "validation.every=0", f"save.every={given.steps}", 'logs.kinds=["csv"]']
            config = TrainConfig.from_toml(given.recipe, [*every, *VARIANTS[name], *given.changes])
            begun = time.perf_counter()
            train(config, Path(place) / name, folders=(folder,))
            seconds = time.perf_counter() - begun
            last = json.loads((Path(place) / name / "run.jsonl").read_text().splitlines()[-1])
            memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None
            row = {"variant": name, "steps_per_s": last["steps_per_s"], "all_s": seconds, "gpu_gb": memory}
            told.append(row | {"batch": config.batch, "crop": config.crop})
            print(json.dumps(told[-1]), flush=True)
    told_by = machine(("torch", "accelerate", "numpy"))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else told_by["cpu"]
    about = {"machine": told_by, "device": device, "recipe": given.recipe, "changes": given.changes, "rows": told}
    lines = [f"# Speed of training ({device})", "", f"{given.recipe}, {given.steps} steps, torch {torch.__version__}; "]
    lines[-1] += "the whole run has reading, compiling and saving in it."
    lines += ["", "| variant | batch | crop | steps/s | whole run, s |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {r['variant']} | {r['batch']} | {r['crop']} | {r['steps_per_s']:.1f} | {r['all_s']:.1f} |" for r in told
    ]
    write_report(given.out, "train_speed", about, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
