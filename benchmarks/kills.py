"""Commands that are killed at random moments and started again: do they end with the bytes of a run that was not?

    python benchmarks/kills.py [--work train,deblur] [--kills 100] [--quick] [--out FOLDER]

Each work is a command on inputs of a few pixels that this script makes. It is run twice without a disturbance; then it
is started, killed with SIGKILL after a random time, and started again in the same folder until it is done, and that
again in a new folder until so many kills have been made. Every file must then have the bytes that it has in the
undisturbed run, but for those of `NOT_COMPARED`; nothing may be missing, left over, or new. Decoys, files of somebody
else beside the folder and inside it, must have the bytes they had.

A start would cost seconds of imports: this process imports everything, computes nothing, has one thread, and forks one
process for each start. Where the work has processes of its own, every second kill hits the leader alone, the others all
of them. With Ray each start begins a cluster of its own, which must end with it. Writes kills.json and kills.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import machine

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
WORKS = ("synth-local", "synth-ray", "train", "deblur", "evaluate")
DEFAULT = tuple(work for work in WORKS if work != "synth-ray")  # whose forked starts are not known to work yet
PATIENCE_S = 600.0  # for one start that is not killed
# Names of files that two runs need not share, and why.
NOT_COMPARED = {
    ".lock": "empty",
    ".defocus-folder.json": "the folder's identity",
    ".defocus-files.jsonl": "a line for each write",
    ".defocus.jsonl": "a line for each write",
    "journal.jsonl": "a line for each write",
    "run.jsonl": "times, and a line for each start",
    "ledger.sqlite": "times",
    "ledger.sqlite-wal": "times",
    "ledger.sqlite-shm": "times",
}
DECOYS = (
    "notes of the user.txt",
    "config.old.json",
    "pictures/wedding.jpg",
    "states/the best one.pt",
    "images/holiday/beach.png",
    ".thesis.docx.part",
    ".hidden/ledger.sqlite",
)
BESIDE = ("config.json", "best.pt", "pairs.jsonl", "ledger.sqlite", "out.txt", ".out.part", "pictures/wedding.jpg")

PLAN = """
name = "kills"
seed = 3
[[sources]]
count = 6
names = ["table", "letters"]
[lenses]
only = ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*"]
survey = false
[train]
pairs = 6
[validation]
pairs = 2
[test]
pairs = 2
[patch]
size = 48
kernel = 32
photograph = [120, 80]
[limits]
coc_px = 12
samples = 1e6
[psf]
kind = "gaussian"
"""
TRAINING = """
recipe = "nafnet-small"
steps = 60
batch = 4
crop = 16
[model]
overrides = { width = 4, encoder_blocks = [1], decoder_blocks = [1] }
[data]
folders = ["pairs"]
cache = "memory"
workers = 0
[validation]
every = 12
[save]
every = 7
[logs]
every = 4
"""
TABLE = """
title = "kills"
metrics = ["psnr", "ssim"]
device = "cpu"
figures = 1
crops = 1
[[rows]]
kind = "input"
[[rows]]
name = "Ours"
trained_on = "nothing"
weights = "weights.pt"
[[tests]]
name = "Tiny"
kind = "pairs"
folder = "pairs"
split = "train"
"""


@dataclass
class Work:
    """A command, the folder that it fills, and what came of killing it."""

    name: str
    arguments: list[str]
    out: Path
    decoys_at_once: bool = False  # before the first start: the command takes a folder that is not empty
    seconds: float = 0.0  # of an undisturbed run
    kills: int = 0
    starts: int = 0
    rounds: int = 0
    compared: int = 0
    decoys: int = 0
    not_compared: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)  # of processes of the present round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=",".join(DEFAULT), help=f"separated by commas, of {', '.join(WORKS)}")
    parser.add_argument("--kills", type=int, default=100, help="of each work")
    parser.add_argument("--quick", action="store_true", help="5 kills of each work")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    before, moments = machine(("jax", "numpy", "torch")), random.Random(options.seed)
    os.environ.update(ONE_THREAD | {"JAX_PLATFORMS": "cpu"})  # before anything that starts threads is imported
    import_everything()
    works = []
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        inputs = Path(folder) / "inputs"
        make_inputs(inputs)
        for name in options.work.split(","):
            place = Path(folder) / name
            work = make_work(name, inputs, place / "out")
            kill_again_and_again(work, place, 5 if options.quick else options.kills, moments)
            works.append(work)
            print(line(work), flush=True)
    write(works, before, options)
    if any(work.wrong for work in works):
        sys.exit(1)


def import_everything() -> None:
    """What the commands need, so that a fork has it; nothing is computed, and no thread started."""
    import accelerate  # noqa: F401
    import torch  # noqa: F401

    import defocus.cli
    import defocus.evaluate.evaluation
    import defocus.restore.training
    import defocus.synth.run  # noqa: F401

    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        sys.exit(f"{threads} threads after the imports: a fork would not be sound")


def make_inputs(folder: Path) -> None:
    """Pairs, photographs, weights, a plan, settings and a table, all tiny; the weights in a process of their own."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for split, count in (("train", 5), ("validation", 2)):
        for number in range(count):
            for side in ("input", "target"):
                file = folder / "pairs" / split / side / f"{number:03d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (40, 36, 3), np.uint8)).save(file)
    (folder / "photos").mkdir()
    for number in range(12):
        Image.fromarray(rng.integers(0, 256, (80, 120, 3), np.uint8)).save(folder / "photos" / f"{number}.png")
    for name, text in (("plan", PLAN), ("training", TRAINING), ("table", TABLE)):
        (folder / f"{name}.toml").write_text(text)
    code = f"""
import torch
from defocus.restore import build_model, save_weights
torch.manual_seed(0)
network = build_model("nafnet", width=4, encoder_blocks=(1,), decoder_blocks=(1,))
save_weights({str(folder / "weights.pt")!r}, "nafnet", network.options.model_dump(), network.state_dict())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def make_work(name: str, inputs: Path, out: Path) -> Work:
    synth = ["synth", "run", str(inputs / "plan.toml"), "--out", str(out)]
    weights, device = ["--weights", str(inputs / "weights.pt")], ["--device", "cpu"]
    arguments = {
        "synth-local": [*synth, "--workers", "2"],
        "synth-ray": [*synth, "--engine", "ray", "--workers", "2"],
        "train": ["train", str(inputs / "training.toml"), "--out", str(out)],
        "deblur": ["deblur", str(inputs / "photos"), *weights, *device, "--out", str(out)],
        "evaluate": ["evaluate", str(inputs / "table.toml"), "--out", str(out)],
    }
    if name not in arguments:
        sys.exit(f"{name}: known are {', '.join(WORKS)}")
    return Work(name, arguments[name], out, decoys_at_once=name == "deblur")


def kill_again_and_again(work: Work, place: Path, kills: int, moments: random.Random) -> None:
    """Fill in what came of a work."""
    place.mkdir(parents=True)
    beside = plant(place, BESIDE)
    references = []
    for number in range(2):
        start = time.perf_counter()
        run_whole(work, place)
        work.seconds = time.perf_counter() - start
        references.append(work.out.rename(place / f"reference-{number}"))
    reference = contents(references[0])
    work.not_compared = {name: NOT_COMPARED[name] for name in sorted(names(references[0])) if name in NOT_COMPARED}
    work.compared = len(reference)
    compare(work, reference, contents(references[1]), "two undisturbed runs")
    while work.kills < kills:
        inside = plant(work.out, DECOYS) if work.decoys_at_once else {}
        while work.kills < kills:
            work.starts += 1
            code = started(work, place, moments.uniform(0.0, 1.1 * work.seconds), alone=work.kills % 2 == 0)
            if code is not None:
                break
            work.kills += 1
            if not inside and (work.out / ".defocus-folder.json").exists():
                inside = plant(work.out, DECOYS)
        else:
            run_whole(work, place)  # so many kills are enough
        work.rounds += 1
        what = f"round {work.rounds}"
        if not all_ended(work.groups):
            work.wrong.append(f"{what}: processes of a killed command are still there")
        work.groups = []
        compare(work, reference, {n: s for n, s in contents(work.out).items() if n not in inside}, what)
        for decoys in (beside, inside):
            work.decoys += len(decoys)
            work.wrong += [f"{what}: decoy {file} is gone or changed" for file in changed(decoys)]
        shutil.rmtree(work.out)


def run_whole(work: Work, place: Path) -> None:
    """A start that is not killed."""
    work.starts += 1
    code = started(work, place, PATIENCE_S)
    if code != 0:
        sys.exit(f"{work.name}: exit code {code} without a kill: {(place / 'log.txt').read_text()[-2000:]}")


def started(work: Work, place: Path, seconds: float, *, alone: bool = False) -> int | None:
    """The exit code of a start; None if it was killed after so many seconds, `alone` or with all its processes."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from defocus.cli import run

        code = run(work.arguments)
        sys.stdout.flush()
        os._exit(code)
    with suppress(OSError):
        os.setpgid(child, child)
    work.groups.append(child)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code != 0:
                work.wrong.append(f"exit code {code}: {(place / 'log.txt').read_text()[-300:]}")
            return code
        time.sleep(0.001)
    (os.kill if alone else os.killpg)(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def all_ended(groups: list[int], patience_s: float = 60.0) -> bool:
    """Whether processes whose leader was killed notice that, and end."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        alive = []
        for group in groups:
            with suppress(OSError):
                os.killpg(group, 0)
                alive.append(group)
        if not alive:
            return True
        time.sleep(0.05)
    return False


def plant(folder: Path, files: tuple[str, ...]) -> dict[str, tuple[Path, bytes]]:
    """Files of somebody else, by name, with their bytes."""
    decoys = {}
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = f"{name}: mine, not yours\n".encode()
        path.write_bytes(data)
        decoys[name] = path, data
    return decoys


def changed(decoys: dict[str, tuple[Path, bytes]]) -> list[str]:
    return [name for name, (path, data) in decoys.items() if not path.is_file() or path.read_bytes() != data]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def contents(folder: Path) -> dict[str, str]:
    """Sums of all files that two runs must share, by their paths, hidden ones included."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in NOT_COMPARED)
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def compare(work: Work, reference: dict[str, str], other: dict[str, str], what: str) -> None:
    for name in sorted(reference.keys() | other.keys()):
        if reference.get(name) != other.get(name):
            how = "missing" if name not in other else "left over" if name not in reference else "other bytes"
            work.wrong.append(f"{what}: {name}: {how}")


def line(work: Work) -> str:
    verdict = "identical" if not work.wrong else f"**{len(work.wrong)} wrong**"
    others = ", ".join(f"{name} ({why})" for name, why in work.not_compared.items())
    return (
        f"| {work.name} | {work.seconds:.1f} s | {work.kills} | {work.rounds} | {work.compared} | {verdict} | "
        f"{work.decoys} | {others} |"
    )


def write(works: list[Work], before: dict[str, Any], options: argparse.Namespace) -> None:
    text = [
        "# Killed at random moments, and started again",
        "",
        f"{before['cpu']}, {before['cores']} cores; seed {options.seed}. SIGKILL after a time between 0 and 1.1 times "
        "that of an undisturbed run, counted from the start of the command; every second kill hits the leader alone, "
        "the others its processes, too. After each round the folder is compared with that of an undisturbed run, file "
        "by file.",
        "",
        "| work | undisturbed | kills | rounds | files, byte by byte | all rounds | decoys looked at | not compared |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(line, works),
        "",
        *(f"- {work.name}: {wrong.strip()}" for work in works for wrong in work.wrong),
    ]
    results = [
        {key: getattr(work, key) for key in ("name", "seconds", "kills", "starts", "rounds", "compared", "decoys")}
        | {"not_compared": work.not_compared, "wrong": work.wrong}
        for work in works
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "kills.json").write_text(json.dumps({"machine": before, "works": results}, indent=1) + "\n")
    (options.out / "kills.md").write_text("\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    main()
