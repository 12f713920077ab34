"""Commands that are killed at random moments and started again: do they end with the bytes of a run that was not?

    python benchmarks/kills.py [--work train,deblur] [--kills 100] [--seed 0] [--out FOLDER] [--quick]
    python benchmarks/kills.py --merge A.json B.json [--out FOLDER]

Each work is a command on inputs of a few pixels that this script makes. It is run twice without a disturbance; then it
is started, killed with SIGKILL after a random time, and started again in the same folder until it is done, and that
again in a new folder until so many kills have been made. Every file must then have the bytes that it has in the
undisturbed run, but for those of `NOT_COMPARED`; nothing may be missing, left over, or new. Decoys, files of somebody
else beside the folder and inside it, must have the bytes they had.

A start would cost seconds of imports: this process imports everything, computes nothing, has one thread, and forks one
process for each start. Where the work has processes of its own, about half of the kills hit the leader alone, the
others all of them. `synth` has one process and two workers in turn, and so has `synth-labels`, whose plan asks for all
labels. Four starts of five of `synth-ray` join a cluster that outlives them, so that the next leader meets workers of
the last; the fifth begins a cluster of its own, which must end with it.

Counts are added to those that kills.json holds already, after each round, and kills.md is written beside it. What the
page should say of kills that are not counted stands in the file's list "notes". --quick kills deblurring once.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import amount, machine, read_arguments, write_report

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
FILE = "kills.json"
WORKS = ("synth", "synth-labels", "synth-ray", "train", "deblur", "evaluate")
SUMS = ("kills", "starts", "rounds", "decoys")  # of several runs of this script
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
LABELS = """
[labels]
depth = true
blur_radius = true
focal_stack = 3
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
    variants: list[list[str]]  # arguments of the command, taken in turn
    out: Path
    decoys_at_once: bool = False  # before the first start: the command takes a folder that is not empty
    seconds: list[float] = field(default_factory=list)  # of an undisturbed start of each variant
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
    works = amount(",".join(WORKS), quick="deblur")
    parser.add_argument("--work", default=works, help=f"separated by commas, of {', '.join(WORKS)}")
    kills = amount(100, quick=1)
    parser.add_argument("--kills", type=int, default=kills, help="of each work, beside those that the file has")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--merge", type=Path, nargs="+", help="add the counts of these files, and do no more")
    parser.add_argument("--cluster", action="store_true", help=argparse.SUPPRESS)
    options = read_arguments(parser)
    file = options.out / FILE
    if options.cluster:
        serve_cluster()
    elif options.merge:
        write(added([read(file), *map(read, options.merge)]), options.out)
    else:
        kill_works(options)


def kill_works(options: argparse.Namespace) -> None:
    """All that was asked for; ends with an error where anything went wrong."""
    before, earlier = machine(("jax", "numpy", "torch")), read(options.out / FILE)
    os.environ.update(ONE_THREAD | {"JAX_PLATFORMS": "cpu"})  # before anything that starts threads is imported
    import_everything()
    works: list[Work] = []
    names = options.work.split(",")

    def keep() -> None:
        write(added([earlier, {"machines": [before], "works": [facts(work) for work in works]}]), options.out)

    with tempfile.TemporaryDirectory(prefix="kills-") as folder, cluster("synth-ray" in names) as address:
        inputs = Path(folder) / "inputs"
        make_inputs(inputs)
        for name in names:
            place = Path(folder) / name
            works.append(make_work(name, inputs, place / "out", address))
            past = sum(work["kills"] for work in earlier["works"] if work["name"] == name)
            moments = random.Random(f"{options.seed} {name} {past}")
            kill_again_and_again(works[-1], place, options.kills, moments, keep)
            print(line(facts(works[-1])), flush=True)
    if any(work.wrong for work in works):
        sys.exit(1)


@contextmanager
def cluster(needed: bool) -> Iterator[str]:
    """The address of a Ray cluster of two processors, whose own process ends with the block."""
    if not needed:
        yield ""
        return
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's name for: nodes have the loopback address
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, __file__, "--cluster"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        yield next(text.split()[1] for text in server.stdout if text.startswith("address "))
        server.stdin.close()


def serve_cluster() -> None:
    """A Ray cluster until the standard input ends."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    print("address", nodes.address, flush=True)
    sys.stdin.read()
    nodes.shutdown()


def import_everything() -> None:
    """What the commands need, so that a fork has it; nothing is computed, and no thread started."""
    names = ("torch", "defocus.cli", "defocus.restore.deblurring")
    more = ("accelerate", "defocus.evaluate.evaluation", "defocus.restore.training", "defocus.synth.run")
    for name in names + amount(more, quick=()):
        importlib.import_module(name)

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
    for name, text in (("plan", PLAN), ("labels", PLAN + LABELS), ("training", TRAINING), ("table", TABLE)):
        (folder / f"{name}.toml").write_text(text)
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            make_weights(folder / "weights.pt")
            os._exit(0)
        os._exit(1)
    if os.waitpid(child, 0)[1]:
        sys.exit("no weights could be made")


def make_weights(file: Path) -> None:
    """Those of a tiny network."""
    import torch

    from defocus.restore import build_model, save_weights

    torch.manual_seed(0)
    network = build_model("nafnet", width=4, encoder_blocks=(1,), decoder_blocks=(1,))
    save_weights(file, "nafnet", network.options.model_dump(), network.state_dict())


def make_work(name: str, inputs: Path, out: Path, address: str) -> Work:
    synth, labels = (["synth", "run", str(inputs / f"{plan}.toml"), "--out", str(out)] for plan in ("plan", "labels"))
    ray = [*synth, "--engine", "ray", "--workers", "2"]
    weights, device = ["--weights", str(inputs / "weights.pt")], ["--device", "cpu"]
    variants = {
        "synth": [synth, [*synth, "--workers", "2"]],
        "synth-labels": [labels, [*labels, "--workers", "2"]],
        "synth-ray": [*[[*ray, "--address", address]] * 4, ray],
        "train": [["train", str(inputs / "training.toml"), "--out", str(out)]],
        "deblur": [["deblur", str(inputs / "photos"), *weights, *device, "--out", str(out)]],
        "evaluate": [["evaluate", str(inputs / "table.toml"), "--out", str(out)]],
    }
    if name not in variants:
        sys.exit(f"{name}: known are {', '.join(WORKS)}")
    return Work(name, variants[name], out, decoys_at_once=name == "deblur")


def kill_again_and_again(work: Work, place: Path, kills: int, moments: random.Random, keep: Callable[[], None]) -> None:
    """Fill in what came of a work; `keep` is called after each round."""
    place.mkdir(parents=True)
    beside = plant(place, BESIDE)
    references = []
    for number in range(max(2, len(work.variants))):
        start = time.perf_counter()
        run_whole(work, place)
        work.seconds = [*work.seconds, time.perf_counter() - start][-len(work.variants) :]
        references.append(contents(work.out))
        names_there = names(work.out)
        shutil.rmtree(work.out)
        compare(work, references[0], references[-1], f"undisturbed run {number}")
    reference, work.compared = references[0], len(references[0])
    work.not_compared = {name: NOT_COMPARED[name] for name in sorted(names_there) if name in NOT_COMPARED}
    while work.kills < kills:
        inside, kills_before = plant(work.out, DECOYS) if work.decoys_at_once else {}, work.kills
        while work.kills < kills:
            variant, start = work.starts % len(work.variants), time.perf_counter()
            alone = moments.random() < 0.5
            if started(work, place, moments.uniform(0.0, work.seconds[variant]), alone=alone) is not None:
                if work.kills == kills_before:  # a whole run: as fast as this machine is now
                    work.seconds[variant] = time.perf_counter() - start
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
        keep()


def run_whole(work: Work, place: Path) -> None:
    """A start that is not killed."""
    code = started(work, place, PATIENCE_S)
    if code != 0:
        sys.exit(f"{work.name}: exit code {code} without a kill: {(place / 'log.txt').read_text()[-2000:]}")


def started(work: Work, place: Path, seconds: float, *, alone: bool = False) -> int | None:
    """The exit code of a start; None if it was killed after so many seconds, `alone` or with all its processes."""
    arguments = work.variants[work.starts % len(work.variants)]
    work.starts += 1
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from defocus.cli import run

        code = run(arguments)
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


def facts(work: Work) -> dict[str, Any]:
    """What the results say of a work."""
    keys = (*SUMS, "name", "compared", "not_compared", "wrong")
    return {key: getattr(work, key) for key in keys} | {"seconds": [round(s, 2) for s in work.seconds]}


def read(file: Path) -> dict[str, Any]:
    """Results of a file; nothing where there is none."""
    return json.loads(file.read_text()) if file.is_file() else {"machines": [], "works": []}


def added(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Results of several runs as one."""
    machines = [machine for result in results for machine in result["machines"]]
    works: dict[str, dict[str, Any]] = {}
    for work in (work for result in results for work in result["works"]):
        before = works.setdefault(work["name"], work | dict.fromkeys(SUMS, 0) | {"wrong": []})
        sums = {key: before[key] + work[key] for key in SUMS}
        works[work["name"]] = work | sums | {"wrong": before["wrong"] + work["wrong"]}
    notes = dict.fromkeys(note for result in results for note in result.get("notes", ()))
    return {"machines": machines, "works": [works[name] for name in WORKS if name in works], "notes": list(notes)}


def line(work: dict[str, Any]) -> str:
    verdict = "identical" if not work["wrong"] else f"**{len(work['wrong'])} wrong**"
    others = ", ".join(f"{name} ({why})" for name, why in work["not_compared"].items())
    seconds = f"{min(work['seconds']):.1f} to {max(work['seconds']):.1f}"
    return (
        f"| {work['name']} | {seconds} s | {work['kills']} | {work['rounds']} | {work['compared']} | {verdict} | "
        f"{work['decoys']} | {others} |"
    )


def write(results: dict[str, Any], out: Path) -> None:
    """The results as JSON, and a page beside it."""
    places = sorted({f"{m['cpu']}, {m['cores']} cores, Python {m['python']}" for m in results["machines"]})
    text = [
        "# Killed at random moments, and started again",
        "",
        f"{'; '.join(places)}. SIGKILL after a time between 0 and that of an undisturbed run, counted from the start "
        "of the command; about half of the kills hit the leader alone, the others its processes, too. After each round "
        "the folder is compared with that of an undisturbed run, file by file. Four starts of five of synth-ray join a "
        "cluster on which workers of the last leader still run, the fifth begins its own.",
        "",
        "| work | undisturbed | kills | rounds | files, byte by byte | all rounds | decoys looked at | not compared |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(line, results["works"]),
        "",
        *(f"- {work['name']}: {wrong.strip()}" for work in results["works"] for wrong in work["wrong"]),
        *(f"- {note}" for note in results["notes"]),
    ]
    write_report(out, Path(FILE).stem, results, "\n".join(text).rstrip() + "\n")


if __name__ == "__main__":
    main()
