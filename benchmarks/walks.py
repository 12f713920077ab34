"""How far one walks through the source to follow a command: files, lines, functions, switches between files.

    python benchmarks/walks.py --before | --after [--out FOLDER]   # fills that column of walks.json and .md there
    python benchmarks/walks.py --quick                             # one of the commands, in this process

Each command runs once on tiny inputs in a process of its own, with a profiler over all its threads. A file is run when
one of its functions is (importing it does not count); a function counts once; a switch is a call, or a generator that
goes on, whose nearest caller within the package lies in another file; a way is such a pair of files, however often it
is gone: unlike switches, ways do not grow with the amount of data. The work of `synth run` and `train` is done in
the process that is watched. The source tree that is measured is the one that Python imports: with
PYTHONPATH=OTHER/src, that of another checkout.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from machine import SMALL_LENS, amount, is_quick, read_arguments, write_report

LENS = amount("zeiss-planar-50-f1.4", quick=SMALL_LENS)
PLAN = """
seed = 11
[[sources]]
count = 6
names = ["table", "letters", "portrait"]
[lenses]
only = ["canon-rf-?5-f1.*", "zeiss-distagon-35*", "*-planar-50*", "minolta-*", "leica-*"]
survey = false
[train]
pairs = 4
[validation]
pairs = 2
[test]
pairs = 2
[patch]
size = 128
kernel = 64
photograph = [384, 256]
[limits]
samples = 6000
[psf]
exact = false
[select]
surplus = 1.5
"""
TRAINING = """
recipe = "nafnet-small"
steps = 4
batch = 2
crop = 32
[model]
overrides = { width = 4, encoder_blocks = [1], decoder_blocks = [1] }
[data]
folders = ["pairs"]
workers = 0
[validation]
every = 2
[save]
every = 2
[logs]
every = 1
"""
COMMANDS = {
    "psf": f"psf {LENS} --focus-m 2 --depth-m 3 --field 0.3,0.4 --out psf.npz --out psf.png",
    "blur": f"blur scene:table --lens {LENS} --size 96x64 --nodes 2x2 --out blurred.png",
    "synth run": "synth run plan.toml --out pairs",
    "train": "train train.toml --out run",
}
COLUMNS = ("files", "lines", "functions", "switches", "ways")
REVIEW = {  # of the review that asked for fewer, with its own definitions
    "psf": (68, 11_700, 333, 462),
    "blur": (59, 9_300, 375, 1862),
    "synth run": (84, 13_500, 572, 3543),
    "train": (32, 5_300, 220, 625),
}


class Walk:
    """What ran below `root`, over all threads that start after this."""

    def __init__(self, root: Path) -> None:
        self.root = f"{root}{os.sep}"
        self.functions: set[tuple[str, int, str]] = set()
        self.switches = 0
        self.ways: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._inside: dict[str, bool] = {}

    def start(self) -> None:
        threading.setprofile(self._event)
        sys.setprofile(self._event)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return"):
            return
        code = frame.f_code
        file = code.co_filename
        inside = self._inside.get(file)
        if inside is None:
            inside = self._inside[file] = file.startswith(self.root)
        if not inside or not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or a class: an import
            return
        stack: list[str] = self._thread.__dict__.setdefault("stack", [])
        if event == "return":
            if stack:
                stack.pop()
            return
        if stack and stack[-1] != file:
            with self._lock:
                self.switches += 1
                self.ways.add((stack[-1], file))
        stack.append(file)
        if not code.co_name.startswith("<"):  # lambdas and comprehensions are part of the function around them
            self.functions.add((file, code.co_firstlineno, code.co_name))

    def numbers(self) -> dict[str, int]:
        files = {file for file, _, _ in self.functions}
        return {
            "files": len(files),
            "lines": sum(len(Path(file).read_text("utf-8").splitlines()) for file in files),
            "functions": len(self.functions),
            "switches": self.switches,
            "ways": len(self.ways),
        }


def package() -> Path:
    import defocus

    return Path(defocus.__file__).parent


def walk(words: list[str]) -> dict[str, int]:
    """The numbers of one command, run in this process and in the working folder."""
    from defocus import cli

    watched = Walk(package())
    watched.start()
    try:
        code = cli.run(words)
    finally:
        watched.stop()
    if code:
        raise SystemExit(f"defocus {' '.join(words)}: exit code {code}")
    return watched.numbers()


def source() -> dict[str, int]:
    """Files, lines and functions of the whole package."""
    files = sorted(package().rglob("*.py"))
    texts = [file.read_text("utf-8") for file in files]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        "files": len(files),
        "lines": sum(len(text.splitlines()) for text in texts),
        "functions": sum(isinstance(node, kinds) for text in texts for node in ast.walk(ast.parse(text))),
    }


def measure() -> dict[str, dict[str, int]]:
    numbers: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "plan.toml").write_text(PLAN)
        (Path(scratch) / "train.toml").write_text(TRAINING)
        for name, words in amount(COMMANDS, quick={"psf": f"{COMMANDS['psf']} --size 32 --bands d"}).items():
            out = Path(scratch) / "numbers.json"
            command = [sys.executable, str(Path(__file__).resolve()), "--walk", str(out), words]
            if is_quick():
                with contextlib.chdir(scratch):
                    numbers[name] = walk(words.split())
            else:
                subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
                numbers[name] = json.loads(out.read_text())
            print(name, numbers[name], flush=True)
    numbers["source"] = source()
    return numbers


def markdown(columns: dict[str, Any]) -> str:
    def cell(name: str, column: str) -> str:
        values = [columns.get(when, {}).get(name, {}).get(column) for when in ("before", "after")]
        return " → ".join("–" if value is None else f"{value:,}" for value in values)

    lines = [
        "# Walks: what runs for one command, before → after",
        "",
        "Tiny inputs, one process; see benchmarks/walks.py for what counts. In brackets, what the review counted.",
        "",
        "| command | files run | lines in them | functions | file switches | ways between files |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in COMMANDS:
        cells = [f"{cell(name, c)} ({review:,})" for c, review in zip(COLUMNS, REVIEW[name], strict=False)]
        lines.append(f"| `{name}` | {' | '.join([*cells, cell(name, 'ways')])} |")
    lines += ["", "| whole package | |", "| --- | --- |"]
    lines += [f"| {column} | {cell('source', column)} |" for column in COLUMNS[:3]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--after", action="store_true", default=is_quick())
    parser.add_argument("--walk", nargs=2, metavar=("OUT", "WORDS"), help=argparse.SUPPRESS)
    options = read_arguments(parser)
    if options.walk:
        Path(options.walk[0]).write_text(json.dumps(walk(options.walk[1].split())))
        return
    file = options.out / "walks.json"
    columns = json.loads(file.read_text()) if file.exists() else {}
    numbers = measure()
    columns |= {when: numbers for when in ("before", "after") if getattr(options, when)}
    if options.before or options.after:
        write_report(options.out, "walks", columns, markdown(columns))
    else:
        print(markdown(columns))


if __name__ == "__main__":
    main()
