"""The weights of `defocus deblur`: their pairs, their training and their test, on one GPU.

    python benchmarks/general_training.py prepare --photos FOLDER --lenses FOLDER    # here: device-data/general
    python benchmarks/general_training.py data WORK [--tests N]                      # pairs to validate and test with
    python benchmarks/general_training.py psfs WORK [--settings N] [--psfs FOLDER]   # through the lenses to learn from
    python benchmarks/general_training.py bank WORK [--psfs FOLDER]                  # them, and photographs
    python benchmarks/general_training.py train WORK --minutes M [--start WEIGHTS] [--set KEY=VALUE] [--out F]
    python benchmarks/general_training.py judge WORK --weights FILE [--out F]        # on unseen lenses and photographs
    python benchmarks/general_training.py all WORK --minutes M                       # all five, M minutes in all
    python benchmarks/general_training.py card --weights FILE --index INDEX.csv --out F  # of the reports of `all` in F
    python benchmarks/general_training.py --quick                                    # all of it, tiny, on a processor

Scenes are composed of photographs without depth; lenses are the built-in ones and a folder's, those that pass the
survey (`prepare` notes which). Photographs and lens families are divided among training, validation and test. WORK is a
folder outside the repository; each stage goes on with what is there. `train` measures its speed in the first steps and
takes as many as the minutes hold (or --steps), from the weights of --start on, beside which their card must be; it
writes the weights in half precision after each save and at the end (general.safetensors), the loss, and how busy the
GPU was; `judge` writes general_training.json and .md. Nine files in all, none above 16 MiB.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import math
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from general_card import earlier_training, write_card
from machine import amount, is_quick, machine, read_arguments, write_report

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "device-data" / "general"
PHOTO_BYTES = 27_000_000  # of all photographs together, as they travel
REDUCTION = 0.8  # of photographs: what an earlier JPEG left in them becomes finer than its blocks
KINDS = ("lens", "paper", "gaussian", "disk")  # of PSFs, as plans have them
RIM_PX = 16  # of each patch: what the blur mirrors in at its border is cut off
SIZE = amount(256, quick=48)
SCENES = amount(4000, quick=8)  # of the plan's training split, whose photographs the bank takes
PER_SCENE = 2
CIRCLES_PX = (1600, 3200, 6400)  # pixels across the image circle: reduced photographs to full resolution
CHUNK = amount(96, quick=6)  # pairs made together
SETTINGS_AT_ONCE = 48  # settings whose PSFs are computed together, and lie in one file
COUNTS = amount({"test": 360, "validation": 48}, quick={"test": 3, "validation": 2})
SEEDS = {"test": 1, "validation": 2}
TRAIN_BLUR = {"levels_px": [1, 2, 4, 8, 16], "weights": [0.8, 1.2, 1.8, 2.6, 3.6]}
LEVELS = ((0.0, 2.0), (2.0, 8.0), (8.0, 16.5))
TEST_BLUR = {"levels_px": [2, 8, 16], "weights": [1, 1, 1]}
MOST_STEPS = 200_000
TEST_SECONDS = 45.0  # the test of `all`
BEGIN = time.perf_counter()
QUICK_TRAINING = [
    "batch=2", "crop=32", "compute.compile=false", "compute.precision=no",
    "validation.every=1", "save.every=1", "logs.every=1",
    "model.overrides={width=4,encoder_blocks=[1,1],middle_blocks=1,decoder_blocks=[1,1]}",
]  # fmt: skip


def plan_of(data: Path, blur: dict[str, Any], circle_px: int = CIRCLES_PX[0], kind: str = "lens") -> Any:
    """The plan of a split's pairs; `data` holds photographs and lenses."""
    from defocus.synth.plan import make_plan

    names = (data / "lenses.txt").read_text().split("\n")
    if kind == "lens":  # whose programs compile for a minute
        kind = amount(kind, quick="gaussian")
    side = SIZE + 2 * RIM_PX
    settings: dict[str, Any] = {
        "name": "general",
        "seed": 20,
        "sources": [{"kind": "composed", "folder": str(data / "photos"), "prefilter_px": 0.4,
                     "count": round(SCENES / 0.7)}],
        "lenses": {"folders": [str(data / "lenses")], "survey": False, "families": True, "only": names},
        "train": {"pairs": PER_SCENE * SCENES, "augment": False, "image_fraction": 0.7, "lens_fraction": 0.7},
        "validation": {"pairs": COUNTS["validation"], "image_fraction": 0.1, "lens_fraction": 0.1},
        "test": {"pairs": COUNTS["test"], "image_fraction": 0.2, "lens_fraction": 0.2},
        "patch": {"size": side, "kernel": 64, "photograph": [side + 96, side + 32]},
        "limits": {"coc_px": 16, "samples": 1e6 if is_quick() else 1536},
        "psf": {"kind": kind, "bands": "rgb"} | ({"exact": False} if kind == "lens" else {}),
        "blur": blur,
        "sensor": {"circle_px": circle_px},
        "select": {"surplus": 0, "sharpness": False},
    }  # fmt: skip
    return make_plan(settings)


def prepare(arguments: argparse.Namespace) -> None:
    """Photographs re-encoded to what may travel, and the lenses that pass the survey, in device-data/general."""
    from PIL import Image

    from defocus.synth.lens_pool import find_lenses
    from defocus.synth.plan import make_plan

    photos = arguments.data / "photos"
    photos.mkdir(parents=True, exist_ok=True)
    files = sorted(p for p in arguments.photos.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    files = files[: amount(len(files), quick=12)]
    pictures = []
    for file in files:
        picture = Image.open(file).convert("RGB")
        size = tuple(round(n * REDUCTION) for n in picture.size)
        pictures.append(picture.resize(size, Image.Resampling.LANCZOS))
    for quality in (95, 93, 91, 89, 87, 85, 80, 75):
        buffers = [io.BytesIO() for _ in files]
        for picture, buffer in zip(pictures, buffers, strict=True):
            picture.save(buffer, "JPEG", quality=quality, optimize=True)
        total = sum(buffer.tell() for buffer in buffers)
        print(f"quality {quality}: {total / 1e6:.1f} MB", flush=True)
        if total <= PHOTO_BYTES:
            break
    for file, buffer in zip(files, buffers, strict=True):
        (photos / f"{file.stem}.jpg").write_bytes(buffer.getvalue())
    with tarfile.open(arguments.data / "lenses.tar.xz", "w:xz") as archive:
        archive.add(arguments.lenses, "lenses", filter=lambda info: None if info.name.endswith(".csv") else info)
    plan = make_plan({"lenses": {"folders": [str(arguments.lenses)], "survey": not is_quick()}})
    names = sorted(find_lenses(plan).lenses)
    (arguments.data / "lenses.txt").write_text("\n".join(names))
    print(f"{len(files)} photographs, {len(names)} lenses", flush=True)


def composing() -> None:
    """What a process that composes scenes begins with: it leaves the GPU alone."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["OMP_NUM_THREADS"] = "1"


def read_scene(source: Any, plan: Any) -> Any:
    from defocus.synth.sources import read_source

    return read_source(source, plan)


def read_there(source: Any, plan: Any) -> Any:
    """A scene without the surfaces that are nowhere, which would be half of what goes from process to process."""
    from defocus.scene.surface_stack import SurfaceStack

    sharp = read_scene(source, plan)
    stack, last = sharp.stack, max(k for k, opacity in enumerate(sharp.stack.opacity) if opacity.any())
    parts = (stack.colour[: last + 1], stack.opacity[: last + 1], stack.depth_m[: last + 1])
    return replace(sharp, stack=SurfaceStack(*parts))


def unpack(arguments: argparse.Namespace) -> Path:
    """The folder with photographs and lenses: WORK/data, since the copy of the working tree may be read-only."""
    data, own = arguments.data, arguments.work / "data"
    if not (data / "lenses.tar.xz").is_file():
        return Path(data)
    if not (own / "lenses.txt").is_file():
        own.mkdir(parents=True, exist_ok=True)
        with tarfile.open(data / "lenses.tar.xz") as archive:
            archive.extractall(own, filter="data")
        shutil.copytree(data / "photos", own / "photos", dirs_exist_ok=True)
        shutil.copy(data / "lenses.txt", own)
    return Path(own)


def psf_folder(arguments: argparse.Namespace, data: Path) -> Path:
    return Path(arguments.psfs or data / f"psfs{suffix(arguments)}")


def bank_folder(arguments: argparse.Namespace) -> Path:
    return Path(arguments.work / f"bank{suffix(arguments)}")


def suffix(arguments: argparse.Namespace) -> str:
    """Of folders: those of lenses have none."""
    return "" if arguments.kind == "lens" else f"-{arguments.kind}"


def make_psfs(arguments: argparse.Namespace) -> None:
    """PSFs of the bank's settings, in files of some of them: those that are there already are not made again."""
    from defocus.synth.bank import find_setting_psfs
    from defocus.synth.lens_pool import find_lenses

    begin, data = time.perf_counter(), unpack(arguments)
    plan, folder = plan_of(data, TRAIN_BLUR, kind=arguments.kind), psf_folder(arguments, data)
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, arguments.settings, SETTINGS_AT_ONCE)
    missing = [first for first in starts if not (folder / f"{first:06d}.npz").is_file()]
    pool = find_lenses(plan) if missing else None
    for first in missing:
        numbers = range(first, min(first + SETTINGS_AT_ONCE, arguments.settings))
        own = find_setting_psfs(plan, "train", numbers, pixels_across=CIRCLES_PX, pool=pool)
        own.save(folder / f"{first:06d}.npz")
        print(f"{time.perf_counter() - begin:.0f} s: {numbers.stop} of {arguments.settings} settings", flush=True)


def make_psf_bank(arguments: argparse.Namespace) -> None:
    """The bank that the training learns from, in a folder of WORK, unless it is there."""
    from defocus.synth.bank import SettingPsfs, bank_batch, make_bank

    if (bank_folder(arguments) / "bank.json").is_file():
        return
    begin, data = time.perf_counter(), unpack(arguments)
    files = sorted(psf_folder(arguments, data).glob("*.npz"))
    bank = make_bank(plan_of(data, TRAIN_BLUR), "train", SettingPsfs.load(files))
    facts = {"settings": len(bank.psfs), "psfs": bank.psfs.shape[0] * bank.psfs.shape[1], "machine": machine(),
             "pictures": len(bank.places), "seconds": time.perf_counter() - begin}  # fmt: skip
    bank.save(bank_folder(arguments), facts)
    (arguments.out / "general_bank.json").write_text(json.dumps(facts, indent=1) + "\n")
    show_batch(*bank_batch(bank, 1, count=16, crop=amount(192, quick=32)), arguments.out / "general_bank.jpg")
    print(f"{time.perf_counter() - begin:.0f} s: {facts}", flush=True)


def show_batch(blurred: Any, sharp: Any, out: Path) -> None:
    """Sixteen pairs of a batch, inputs beside their targets."""
    import numpy as np
    from PIL import Image

    pairs = np.concatenate([np.asarray(blurred), np.asarray(sharp)], 2)
    Image.fromarray(np.concatenate([np.concatenate(list(pairs[k : k + 4]), 1) for k in range(0, 16, 4)])).save(out)


def make_data(arguments: argparse.Namespace) -> None:
    """Test and validation pairs, until all are there."""
    from defocus.synth.lens_pool import find_lenses
    from defocus.synth.on_demand import OnDemandPairs

    begin = time.perf_counter()
    data = unpack(arguments)
    workers = max(1, (os.cpu_count() or 2) - 2)
    context = multiprocessing.get_context("spawn")
    with nullcontext() if is_quick() else ProcessPoolExecutor(workers, context, initializer=composing) as composers:
        read = read_scene
        if composers is not None:
            read = partial(_elsewhere, composers)
            for _ in range(workers):
                composers.submit(composing)  # they start while lenses are read
        plan = plan_of(data, TEST_BLUR)
        pool = find_lenses(plan)
        counts = {split: len(names) for split, names in pool.of_split.items()}
        print(f"{time.perf_counter() - begin:.0f} s: {len(pool.lenses)} lenses, {counts}", flush=True)
        works: list[tuple[str, Callable[[], int]]] = []
        spent: Counter[str] = Counter()
        # One queue: no split waits for the last pairs of another.
        for split, count in (COUNTS | {"test": arguments.tests}).items():
            maker = OnDemandPairs(plan, split, seed=SEEDS[split], cache_size=400, pool=pool, read=read)
            works += [(split, work) for work in chunk_works(arguments.work, maker, split, count, spent)]
        carry_out(works, begin)
    seconds = time.perf_counter() - begin
    files = {split: sorted((arguments.work / "pairs" / split / "input").glob("*.png")) for split in SEEDS}
    facts = {"pairs": {split: len(own) for split, own in files.items()}, "seconds": seconds, "lenses": counts,
             "seconds_of_threads": dict(spent), "machine": machine()}  # fmt: skip
    (arguments.out / "general_data.json").write_text(json.dumps(facts, indent=1) + "\n")
    show_pairs(files["test"][:: max(1, len(files["test"]) // 16)][:16], arguments.out / "general_pairs.jpg")
    print(f"{seconds:.0f} s: {facts['pairs']}", flush=True)


def show_pairs(files: list[Path], out: Path) -> None:
    """A contact sheet: inputs beside their targets, four pairs in a row."""
    import numpy as np
    from PIL import Image

    pairs = [
        np.concatenate(
            [np.asarray(Image.open(file)), np.asarray(Image.open(file.parents[1] / "target" / file.name))], 1
        )
        for file in files
    ]
    rows = [np.concatenate(pairs[k : k + 4], 1) for k in range(0, len(pairs) - 3, 4)]
    if rows:
        Image.fromarray(np.concatenate(rows)).save(out, quality=88)


def _elsewhere(composers: ProcessPoolExecutor, source: Any, plan: Any) -> Any:
    from defocus.scene.photo_scenes import filled_up

    sharp = composers.submit(read_there, source, plan).result()
    return replace(sharp, stack=filled_up(sharp.stack))


def chunk_works(work: Path, maker: Any, split: str, count: int, spent: Counter[str]) -> list[Callable[[], int]]:
    """What makes the pairs of one split, chunk after chunk, each with one of the pixel sizes; and how many it made."""
    folder, records = work / "pairs" / split, work / "records"
    records.mkdir(parents=True, exist_ok=True)
    for side in ("input", "target"):
        (folder / side).mkdir(parents=True, exist_ok=True)

    def make(chunk: range) -> int:
        own = copy.copy(maker)
        circle = CIRCLES_PX[chunk[0] // CHUNK % len(CIRCLES_PX)]
        own.plan = maker.plan.model_copy(update={"sensor": maker.plan.sensor.model_copy(update={"circle_px": circle})})
        times = [time.perf_counter()]
        own.prefetch(chunk, 32 if not is_quick() else 1)
        times.append(time.perf_counter())
        pairs = own.pairs(chunk)
        times.append(time.perf_counter())
        rows = []
        for pair in pairs:
            write_pair(folder, pair)
            recipe = pair.recipe
            radius = max(abs(v) for v in recipe.coc_px)
            rows.append({"id": f"{recipe.index:06d}", "radius_px": radius, "lens": recipe.lens, "circle_px": circle,
                         "source": recipe.source})  # fmt: skip
        (records / f"{split}-{chunk[0]:06d}.json").write_text(json.dumps(rows))
        times.append(time.perf_counter())
        for stage, first, last in zip(("compose", "blur", "write"), times, times[1:], strict=False):
            spent[stage] += last - first
        return len(rows)

    chunks = [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    missing = [chunk for chunk in chunks if not (records / f"{split}-{chunk[0]:06d}.json").is_file()]
    return [partial(make, chunk) for chunk in missing]


def carry_out(works: list[tuple[str, Callable[[], int]]], begin: float) -> None:
    """All works side by side in their order."""
    last, done = time.perf_counter(), Counter[str]()
    with ThreadPoolExecutor(amount(8, quick=1)) as threads:
        split_of = {threads.submit(work): split for split, work in works}
        for future in as_completed(split_of):
            done[split_of[future]] += future.result()
            if time.perf_counter() - last > 5.0:
                last = time.perf_counter()
                print(f"{last - begin:.0f} s: {dict(done)}", flush=True)


def write_pair(folder: Path, pair: Any) -> None:
    """Both pictures without their rim, as PNG."""
    from defocus.files.png import png_bytes

    inner = slice(RIM_PX, RIM_PX + SIZE)
    for side, role in (("input", "blurred"), ("target", "sharp")):
        file = folder / side / f"{pair.recipe.index:06d}.png"
        file.write_bytes(png_bytes(pair.pictures[role][inner, inner]))


class GpuWatch(threading.Thread):
    """How busy the GPU is, in percent, every two seconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.values: list[int] = []
        self.start()

    def run(self) -> None:
        if shutil.which("nvidia-smi") is None:
            return
        query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-l", "2"]
        with subprocess.Popen(query, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.strip().isdigit():
                    self.values.append(int(line))


def train_general(arguments: argparse.Namespace) -> Path:
    """A training of the recipe; the weights in half precision, after each save and at the end."""
    import torch

    from defocus.restore import TrainConfig, train

    start = earlier_training(arguments.start) if arguments.start else None
    minutes = None if arguments.steps else minutes_left(arguments)
    changes = [f"steps={arguments.steps or MOST_STEPS}", *(QUICK_TRAINING if is_quick() else []), *arguments.changes]
    if arguments.start:
        changes.append(f"model.start={arguments.start}")
    if not is_quick() and shutil.which("gcc") is None and shutil.which("cc") is None:
        print("no C compiler here: without torch.compile", flush=True)
        changes.append("compute.compile=false")
    changes.append(f'validation.folders=["{arguments.work / "pairs"}"]')
    config = TrainConfig.from_toml("general", changes)
    watch, begin, state = GpuWatch(), time.perf_counter(), {"last": 0.0, "file": 0.0, "first": None}
    run, out = arguments.work / arguments.run, arguments.out / "general.safetensors"

    def show(progress: Any) -> None:
        now, state["step"] = time.perf_counter(), progress.step
        if progress.step and state["first"] is None:
            state["first"] = now - begin
        if now - state["last"] > 15.0:
            state["last"] = now
            print(f"{now - begin:.0f} s: {progress.stage} {progress.step}, loss {progress.loss}, {progress.psnr} dB, "
                  f"{progress.steps_per_s or 0.0:.2f}/s", flush=True)  # fmt: skip
            weights = run / "last.pt"
            if weights.is_file() and weights.stat().st_mtime != state["file"]:
                state["file"] = weights.stat().st_mtime
                export(weights, out)

    result = train(config, run, folders=(bank_folder(arguments),), progress=show, minutes=minutes, accept_changes=True)
    export(result.last, out)
    shutil.copy(run / "loss.csv", arguments.out / "general_loss.csv")
    events = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    busy = watch.values
    facts = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "processor",
        "steps": state["step"], "batch": config.batch, "crop": config.crop, "seconds": time.perf_counter() - begin,
        "seconds_to_first_step": state["first"], "steps_per_s": events[-1].get("steps_per_s"),
        "gpu_busy_percent": busy, "gpu_busy_mean": sum(busy) / len(busy) if busy else None,
        "gpu_memory_gb": torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else None,
        "history": result.history, "events": events, "settings": config.as_json() | {"data": None},
        "start": start,
    }  # fmt: skip
    (arguments.out / "general_train.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(
        json.dumps({k: v for k, v in facts.items() if k not in ("settings", "history", "events", "gpu_busy_percent")})
    )
    return out


def minutes_left(arguments: argparse.Namespace) -> float:
    """Minutes for the training: of all stages those that are left, but for the test at the end."""
    if arguments.stage != "all":
        return arguments.minutes
    return max(0.5, arguments.minutes - (time.perf_counter() - BEGIN + TEST_SECONDS) / 60.0)


def export(weights: Path, out: Path) -> None:
    """Weights in half precision, as they are shipped."""
    import torch

    from defocus.restore.models.checkpoints import read_weights, save_weights

    name, options, state = read_weights(weights)
    save_weights(out, str(name), options, {key: value.to(torch.float16) for key, value in state.items()})


def judge(arguments: argparse.Namespace) -> None:
    """PSNR before and after on pairs of lenses and photographs that the training has not seen, by blur level."""
    import numpy as np
    import torch

    from defocus.restore import PairDataset
    from defocus.restore.degradations import jpeg
    from defocus.restore.models.checkpoints import load_model

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(arguments.weights).to(device)
    files = sorted((arguments.work / "records").glob("test-*.json"))
    records = {row["id"]: row for file in files for row in json.loads(file.read_text())}
    pairs = PairDataset(arguments.work / "pairs", "test")
    rows = []
    with torch.inference_mode():
        for item in pairs:
            blurred, sharp = (item[side][None].to(device) for side in ("input", "target"))
            quality = torch.full((1, 1, 1, 1), 90.0, device=device)
            coded = jpeg(blurred, quality, quality > 0.0)
            inputs = {"": (blurred, sharp), "jpeg_": (coded, sharp), "sharp_": (sharp, sharp)}
            row = dict(records[Path(item["id"]).name])
            for name, (image, truth) in inputs.items():
                row[f"{name}in"], row[f"{name}out"] = psnr(image, truth), psnr(model(image), truth)
            rows.append(row)
    levels = []
    for low, high in LEVELS:
        part = [row for row in rows if low <= row["radius_px"] < high]
        gains = np.array([row["out"] - row["in"] for row in part] or [np.nan])
        mean = {key: float(np.mean([row[key] for row in part])) if part else math.nan
                for key in ("in", "out", "jpeg_in", "jpeg_out", "sharp_out")}  # fmt: skip
        half = 1.96 * float(gains.std()) / math.sqrt(len(gains))
        levels.append({"level_px": [low, high], "pairs": len(part), **mean, "gain": float(gains.mean()), "half": half})
    report = {"machine": machine(("torch", "numpy")), "device": device, "levels": levels, "pairs": rows}
    lines = [
        "# The network of `defocus deblur` on lenses and photographs that it has not seen", "",
        f"{len(rows)} pairs; PSNR in dB, means over pairs; 95 % intervals of the mean gain behind ±.", "",
        "| largest blur radius, px | pairs | blurred | restored | gain | after JPEG 90 | restored | sharp input |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    lines += [
        f"| {one['level_px'][0]:g}–{one['level_px'][1]:g} | {one['pairs']} | {one['in']:.2f} | {one['out']:.2f} | "
        f"{one['gain']:+.2f} ± {one['half']:.2f} | {one['jpeg_in']:.2f} | {one['jpeg_out']:.2f} | "
        f"{one['sharp_out']:.2f} |"
        for one in levels
    ]
    write_report(arguments.out, "general_training", report, "\n".join(lines) + "\n")


def psnr(image: Any, truth: Any) -> float:
    error = float((image.clamp(0.0, 1.0) - truth).square().mean())
    return -10.0 * math.log10(error + 1e-10)


def quick_inputs(arguments: argparse.Namespace) -> None:
    """A few photographs of noise, and no lenses but the built-in ones."""
    import numpy as np
    from PIL import Image

    arguments.photos, arguments.lenses = arguments.out / "photos", arguments.out / "lenses"
    arguments.data, arguments.work = arguments.out / "prepared", arguments.out / "work"
    for folder in (arguments.photos, arguments.lenses):
        folder.mkdir()
    for k in range(10):
        values = np.random.default_rng(k).integers(0, 256, (368, 400, 3), dtype=np.uint8)
        Image.fromarray(values).save(arguments.photos / f"noise_{k}.png")
    prepare(arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "stage", nargs="?", default="all", choices=("prepare", "data", "psfs", "bank", "train", "judge", "card", "all")
    )
    parser.add_argument("work", nargs="?", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--lenses", type=Path)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--settings", type=int, default=amount(2400, quick=4), help="lens settings of the bank")
    parser.add_argument("--psfs", type=Path, help="folder of the settings' PSFs, in place of WORK's")
    parser.add_argument("--kind", choices=KINDS, default="lens", help="of the PSFs to learn from")
    parser.add_argument("--tests", type=int, default=COUNTS["test"], help="test pairs at most")
    parser.add_argument("--minutes", type=float, default=9.0, help="of the training; with `all`, of all stages")
    parser.add_argument("--steps", type=int, default=amount(0, quick=2), help="so many, in place of --minutes")
    parser.add_argument("--run", default="run", help="name of the training's folder in WORK")
    parser.add_argument("--start", type=Path, help="weights to begin with")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--index", type=Path, help="licences of the photographs: file, author, licence, source")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    arguments = read_arguments(parser)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if arguments.quick and arguments.work is None:
        quick_inputs(arguments)
    if arguments.stage not in ("prepare", "card") and arguments.work is None:
        parser.error("WORK is missing")
    if arguments.stage == "prepare":
        prepare(arguments)
    if arguments.stage == "card":
        write_card(arguments)
    if arguments.stage in ("data", "all"):
        make_data(arguments)
    if arguments.stage in ("psfs", "all"):
        make_psfs(arguments)
    if arguments.stage in ("bank", "all"):
        make_psf_bank(arguments)
    if arguments.stage in ("train", "all"):
        arguments.weights = train_general(arguments)
    if arguments.stage in ("judge", "all"):
        if arguments.weights is None:
            sys.exit("--weights is missing")
        judge(arguments)


if __name__ == "__main__":
    main()
