"""The same plan twice on one device, once undisturbed and once killed again and again: are all bytes the same?

    python benchmarks/same_bytes.py [--out FOLDER] [--pairs N] [--kills N] [--patch N] [--quick]

Every run is `defocus synth run` in a process of its own. A second folder's runs are ended by SIGKILL, the first as soon
as a few pairs are done and the others likewise, then the last one is left alone; they use the programs that the first
folder's run compiled and kept, as runs on one machine do. A third folder is made the same way without these programs,
as on another machine: whatever the compiler measures and chooses is chosen again. Compared with the first are the sums
of all files but the ledger (which tells the runs and their times); pictures that differ are compared value by value.
Writes same_bytes_gpu.json and .md, or same_bytes_cpu. With --quick, runs are calls in this process that end at a limit
instead of a kill, and PSFs are Gaussian.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from machine import amount, is_quick, machine, read_arguments, write_report

FOLDERS = {"with the kept programs": "programs", "with programs of their own": "own programs"}
PLAN = """
name = "same bytes"
seed = 5
[[sources]]
kind = "scenes"
count = 6
names = ["table", "letters", "portrait", "street"]
[lenses]
survey = false
[train]
pairs = {pairs}
[validation]
pairs = 0
[test]
pairs = 0
[patch]
size = {patch}
kernel = 64
photograph = [960, 640]
[psf]
bands = "rgb"
"""


QUICK_PLAN = """
name = "same bytes"
seed = 3
psf.kind = "gaussian"
[[sources]]
count = 6
names = ["table", "letters"]
[lenses]
only = ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*"]
survey = false
[train]
pairs = {pairs}
[validation]
pairs = 0
[test]
pairs = 0
[patch]
size = 48
kernel = 32
photograph = [120, 80]
[limits]
coc_px = 12
samples = 1e6
"""


def run_here(plan: Path, out: Path, *more: str) -> None:
    """The command in this process."""
    from defocus.cli import run

    if run(["synth", "run", str(plan), "--out", str(out), *more]):
        raise SystemExit("synth run failed")


def run_whole(plan: Path, out: Path, programs: Path) -> None:
    """The command without a disturbance."""
    if is_quick():
        run_here(plan, out)
    else:
        finish(start(plan, out, programs))


def start(plan: Path, out: Path, programs: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", str(out), "--workers", "1"]
    environment = os.environ | {"DEFOCUS_CACHE": str(programs)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"synth run ended with {process.returncode}:\n{errors.decode(errors='replace')[-3000:]}")


def pairs_done(out: Path) -> int:
    try:
        with sqlite3.connect(f"file:{out}/ledger.sqlite?mode=ro", uri=True, timeout=5.0) as db:
            return int(db.execute("SELECT COUNT(*) FROM items WHERE status = 'done'").fetchone()[0])
    except sqlite3.Error:
        return 0


def sums(out: Path) -> dict[str, str]:
    """The sha256 of every file that is passed on."""
    files = (path for path in sorted(out.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not path.name.startswith("ledger")
    }


def kill_and_resume(plan: Path, out: Path, programs: Path, pairs: int, kills: int) -> list[int]:
    """Pairs that were done at each kill."""
    rng, done = random.Random(7), []
    for k in range(kills):
        wanted = round(pairs * (k + 0.3 + 0.4 * rng.random()) / (kills + 1))
        if is_quick():
            run_here(plan, out, "--limit", str(wanted))
            done.append(pairs_done(out))
            continue
        process = start(plan, out, programs)
        while process.poll() is None and pairs_done(out) < wanted:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done.append(pairs_done(out))
        print(f"killed at {done[-1]} of {pairs} pairs", flush=True)
    run_whole(plan, out, programs)
    return done


def compare(whole: Path, other: Path) -> dict[str, Any]:
    """Which files of two folders differ, and how much pictures do."""
    first, second = sums(whole), sums(other)
    differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    pictures = [n for n in differing if n.endswith(".png") and n in first and n in second]
    return {
        "differing": len(differing),
        "differing_by_folder": dict(Counter(n.rpartition("/")[0] or "." for n in differing)),
        "differing_files": differing[:40],
        "pictures": {n: difference(whole / n, other / n) for n in pictures},
    }


def difference(first: Path, second: Path) -> dict[str, Any]:
    """Of two pictures: how many values differ, and by how much at most."""
    a, b = (np.asarray(Image.open(path)).astype(int) for path in (first, second))
    return {"values": a.size, "differ": int((a != b).sum()), "most": int(np.abs(a - b).max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=amount(400, quick=3))
    parser.add_argument("--kills", type=int, default=amount(3, quick=1))
    parser.add_argument("--patch", type=int, default=384)
    options = read_arguments(parser)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        plan = folder / "plan.toml"
        plan.write_text(amount(PLAN, quick=QUICK_PLAN).format(pairs=options.pairs, patch=options.patch))
        whole = folder / "whole"
        begin = time.perf_counter()
        run_whole(plan, whole, folder / "programs")
        result: dict[str, Any] = {
            "machine": machine(),
            "device": device(),
            "pairs": pairs_done(whole),
            "files": len(sums(whole)),
            "seconds": round(time.perf_counter() - begin, 1),
            "folders": {},
        }
        print(f"undisturbed: {result['seconds']} s", flush=True)
        for name, programs in FOLDERS.items():
            out, begin = folder / f"killed with {programs}", time.perf_counter()
            kills = kill_and_resume(plan, out, folder / programs, options.pairs, options.kills)
            seconds = round(time.perf_counter() - begin, 1)
            result["folders"][name] = {"killed_at": kills, "seconds": seconds, **compare(whole, out)}
    where = "cpu" if result["device"] == "cpu" else "gpu"
    write_report(options.out, f"same_bytes_{where}", result, markdown(result))


def device() -> str:
    """Name of the device that runs use, asked in a process of its own."""
    code = "import jax; print(jax.devices()[0].device_kind)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def markdown(result: dict[str, Any]) -> str:
    lines = [
        f"# One plan, undisturbed and killed ({result['device']})",
        "",
        f"{result['machine']}. {result['pairs']} pairs, undisturbed in {result['seconds']} s; {result['files']} files, "
        "compared by their sha256 with those of runs that were killed and resumed.",
        "",
        "| runs that were killed | pairs done at the kills | s | files that differ | values that differ | by at most |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in result["folders"].items():
        pictures = one["pictures"].values()
        values, differ = sum(p["values"] for p in pictures), sum(p["differ"] for p in pictures)
        share = f"{differ} of {values} in {len(pictures)} pictures" if pictures else "none"
        most = max((p["most"] for p in pictures), default=0)
        killed = ", ".join(map(str, one["killed_at"]))
        lines.append(f"| {name} | {killed} | {one['seconds']} | {one['differing']} | {share} | {most} |")
        if one["differing"]:
            lines[2] += f" Differing files by folder, {name}: {one['differing_by_folder']}."
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
