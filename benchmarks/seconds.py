"""What a user waits for: CPU seconds of whole commands, from their start to their end, cold and with kept programs.

    python benchmarks/seconds.py [--out FOLDER] [--only NAME ...] [--before SOURCE_FOLDER] [--repeats N] [--quick]

A command runs in a process of its own: first with no compiled program on the disk ("cold"), then with those that the
first left ("again"). Python finds its modules as bytecode, as pip installs them: a first round, which does not count,
leaves it. The last rows are calls within one process (`user_programs.py`), once everything is loaded. With --before,
the `src` folder of another checkout is measured in the same minutes, turn by turn, so that the ratio holds on a machine
that others use, too. The least of N repeats counts. Writes seconds.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import user_programs
from machine import amount, is_quick, machine, read_arguments, write_report

SOURCE = Path(__file__).resolve().parents[1] / "src"
LENS = "leica-summicron-50-f2"
COMMANDS = {
    "help": "--help",
    "lens list": "lens list",
    "lens show": f"lens show {LENS}",
    "psf": f"psf {LENS} --focus-m 2 --depth-m 3 --field 0.3,0.4 --out OUT/psf.png",
    "psf-grid": f"psf-grid {LENS} --focus-m 2 --fields 0,0.5,1 --depths-m 1.5,2,4 --out OUT/grid.png",
    "blur": "blur scene:portrait --lens canon-rf-85-f1.2 --size 960x640 --out OUT/blurred.png",
}
CALLS = {"Camera.psf": "one_psf", "gradient": "gradient"}
Seconds = dict[str, float]


def command(words: list[str], variables: dict[str, str]) -> Seconds:
    """Seconds of a command in a process of its own, all its threads and processes."""
    before, start = os.times(), time.perf_counter()
    call = [sys.executable, "-m", "defocus", *words]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL, env=variables)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpu_s": cpu, "wall_s": wall}


def measure(name: str, source: Path, bytecode: str) -> dict[str, Seconds]:
    """A command cold and again, or a program cold, again and once more in that process."""
    with tempfile.TemporaryDirectory() as folder:
        variables = user_programs.environment(f"{folder}/programs")
        variables["PYTHONPATH"] = str(source)
        if not is_quick():
            variables["PYTHONPYCACHEPREFIX"] = bytecode
        if name in CALLS:
            (cold,), (again, call) = (user_programs.fresh(CALLS[name], n, variables) for n in (1, 2))
            return {"cold": cold, "again": again, "next_call": call}
        words = COMMANDS[name].replace("OUT", folder).split()
        return {moment: command(words, variables) for moment in ("cold", "again")}


def least(times: list[dict[str, Seconds]]) -> dict[str, Seconds]:
    """The repeat that took the least CPU time, moment by moment."""
    return {moment: min((t[moment] for t in times), key=lambda t: t["cpu_s"]) for moment in times[0]}


def markdown(result: dict[str, Any]) -> str:
    on = result["machine"]
    lines = [
        "# What a user waits for",
        "",
        f"CPU seconds (wall seconds) on {on['cpu']}, {on['cores']} cores, load {on['load_before']:.1f} before; Python "
        f"{on['python']}, jax {on['jax']}. A command counts from its start to its end, imports included. Cold: nothing "
        "compiled yet; again: a fresh process that finds the programs of the first; next call: once more in it.",
        "",
    ]
    if "before" in result:
        lines += [f"→: from commit {result['before']} to {result['commit']}, measured in turns.", ""]
    lines += ["| what | cold | again | next call |", "| --- | --- | --- | --- |"]
    for name, versions in result["seconds"].items():
        about = f"`defocus {COMMANDS[name]}`" if name in COMMANDS else user_programs.PROGRAMS[CALLS[name]].__doc__
        cells = []
        for moment in ("cold", "again", "next_call"):
            pairs = [versions[v][moment] for v in ("before", "now") if moment in versions.get(v, {})]
            cells.append(" → ".join(f"{t['cpu_s']:.2f} ({t['wall_s']:.2f})" for t in pairs))
        lines.append(f"| {str(about).replace('OUT/', '')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def commit(source: Path) -> str:
    """The commit that a source folder is at."""
    line = ["git", "-C", str(source), "log", "-1", "--format=%h"]
    return subprocess.run(line, check=False, capture_output=True, text=True).stdout.strip() or "unknown"


def main() -> None:
    names = [*COMMANDS, *CALLS]
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=names, default=amount(names, quick=["help", "Camera.psf"]))
    parser.add_argument("--before", type=Path, help="the src folder of the version to compare with")
    parser.add_argument("--repeats", type=int, default=1)
    options = read_arguments(parser)
    sources = {"now": SOURCE} if options.before is None else {"before": options.before.resolve(), "now": SOURCE}
    result: dict[str, Any] = {"machine": machine(), "seconds": {}}
    result |= {"commit" if version == "now" else version: commit(source) for version, source in sources.items()}
    with tempfile.TemporaryDirectory() as bytecode:
        rounds = options.repeats + amount(1, quick=0)
        for name in options.only:
            turns = [{v: measure(name, source, bytecode) for v, source in sources.items()} for _ in range(rounds)]
            turns = turns[-options.repeats :]
            result["seconds"][name] = {v: least([turn[v] for turn in turns]) for v in sources}
            print(name, json.dumps(result["seconds"][name]), flush=True)
    write_report(options.out, "seconds", result, markdown(result))


if __name__ == "__main__":
    main()
