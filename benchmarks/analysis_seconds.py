"""CPU seconds of `defocus lens analyse LENS --out page.png` for every built-in lens, with compiled programs kept.

    python benchmarks/analysis_seconds.py [--out FOLDER] [--quick]

Each is a process of its own, from its start to its end, imports and the drawing of the page included, all its threads.
One that compiled something, which the first of its size does, is measured again. `defocus --help` is measured beside
each lens: cores that others use, too, count more seconds for the same work, and its own on quiet ones are in
seconds.md. Writes analysis_seconds.json and .md.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import user_programs
from machine import SMALL_LENS, amount, machine, read_arguments, write_report
from seconds import SOURCE, command

MOST_S = 10.0  # that a user should wait for, on two cores


def measure(name: str, variables: dict[str, str], page: Path) -> dict[str, Any]:
    """Seconds of one lens, the second time where the first compiled something."""
    cache = Path(variables["DEFOCUS_CACHE"])
    words = ["lens", "analyse", name, "--out", str(page)]
    before = sum(1 for _ in cache.rglob("*"))
    first = command(words, variables)
    compiled = sum(1 for _ in cache.rglob("*")) > before
    seconds = command(words, variables) if compiled else first
    return {"lens": name, "compiling": first if compiled else None, "help": command(["--help"], variables)} | seconds


def main() -> None:
    options = read_arguments(argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]))
    from defocus import list_lenses

    names = amount([entry.name for entry in list_lenses()], quick=[SMALL_LENS])
    about = machine()
    with tempfile.TemporaryDirectory() as folder:
        variables = user_programs.environment(f"{folder}/programs") | {"PYTHONPATH": str(SOURCE)}
        Path(variables["DEFOCUS_CACHE"]).mkdir()
        rows = []
        for name in names:
            rows.append(measure(name, variables, Path(folder) / "page.png"))
            print(rows[-1], flush=True)
    result = {"machine": about, "rows": rows}
    write_report(options.out, "analysis_seconds", result, markdown(result))


def markdown(result: dict[str, Any]) -> str:
    """The report as Markdown."""
    about, rows = result["machine"], result["rows"]
    cpu = [row["cpu_s"] for row in rows]
    within = sum(value <= MOST_S for value in cpu)
    lines = [
        "# `defocus lens analyse LENS --out page.png`",
        "",
        f"{len(rows)} built-in lenses, each in a process of its own, compiled programs kept; "
        f"{about['cpu']}, {about['cores']} cores, load {about['load_before']:.1f} before, Python {about['python']}, "
        f"jax {about['jax']}. Median {statistics.median(cpu):.1f} CPU seconds, most {max(cpu):.1f}; {within} within "
        f"{MOST_S:g}. Compiling for the first lens of a size takes up to "
        f"{max((row['compiling']['cpu_s'] for row in rows if row['compiling']), default=0.0):.0f}. `defocus --help` "
        f"took {statistics.median(row['help']['cpu_s'] for row in rows):.2f} beside them (median).",
        "",
        "| lens | CPU s | wall s |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {row['lens']} | {row['cpu_s']:.1f} | {row['wall_s']:.1f} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
