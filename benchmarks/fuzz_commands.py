"""Command lines with something wrong: each path of each command spoilt in each way, or words by chance.

A line of `LINES` is right as it stands, but for the places that `{…}` mark: `file` and `folder` are read, `new` is a
file to write and `place` a folder to fill. `SPOILT` says what may stand there instead. Such a line must come to exit
code 1 or 2 and one line that begins with "defocus:" and has the name of what is wrong; nothing that is read is changed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fuzz_calls import Absurd, Attempt
from fuzz_mutations import WORDS

ROOT = Path(__file__).resolve().parents[1]
LENS, PHOTO, DEPTH, PLAN = "{file:lens.zmx}", "{file:photo.png}", "{file:depth.npz}", "{file:plan.toml}"
LINES = (
    f"lens show {LENS}",
    f"lens draw {LENS} --out {{new:a.png}}",
    f"lens spots {LENS} --out {{new:a.svg}}",
    f"lens card {LENS} --out {{new:a.pdf}}",
    f"lens analyse {LENS} --out {{new:a.png}}",
    f"lens convert {LENS} {{new:a.json}}",
    "lens survey {folder:lenses} --out {new:a.csv} --plots {place:plots}",
    f"psf {LENS} --out {{new:a.npz}} --out {{new:b.png}}",
    f"psf-grid {LENS} --out {{new:a.npz}} --out {{new:b.png}}",
    f"psf-gallery {LENS} --out {{new:b.png}}",
    f"psf-compare {{folder:exports}} --lens {LENS} --out {{new:a.png}} --out {{new:b.csv}}",
    f"wavefront {LENS} --out {{new:a.png}}",
    f"pupils {LENS} --out {{new:a.png}}",
    f"through-focus {LENS} --depths-m 1,2 --out {{new:a.png}}",
    f"blur {PHOTO} --depth {DEPTH} --focus-m 2 --lens {LENS} --out {{new:a.png}} --sharp {{new:b.png}} "
    "--raw {new:c.npz} --report {new:d.json}",
    f"refocus {PHOTO} --depth {DEPTH} --focus-m 1,2 --lens {LENS} --out {{new:a.gif}} --report {{new:d.json}}",
    f"develop {PHOTO} --out {{new:a.png}} --response {{file:response.txt}}",
    f"depth {PHOTO} --out {{new:a.npz}} --plot {{new:b.png}} --weights {{folder:model}}",
    "scene portrait --size 32x24 --out {new:a.png} --depth {new:b.npz} --blurred {new:c.png} --points 1",
    f"deblur {PHOTO} --weights {{file:weights.pth}} --out {{place:restored}} --device cpu",
    "deblur {folder:photos} --weights {file:weights.safetensors} --out {place:restored} --device cpu",
    "train {file:recipe.toml} --data {folder:pairs} --out {place:run}",
    "train nafnet-small --write {new:a.toml}",
    "evaluate {file:table.toml} --out {place:results}",
    f"evaluate --images {PHOTO} {PHOTO}",
    "evaluate --images photo.png photo.png --metrics psnr,lpips --lpips {file:lpips.ckpt}",
    "evaluate --images photo.png photo.png --metrics psnr,niqe --niqe {file:niqe.npz}",
    "evaluate --template {new:a.toml}",
    "groundtruth {folder:blurred} --sharp {folder:photos} --out {new:a.html}",
    "downstream {folder:blurred} --sharp {folder:photos} --restored a={folder:photos} --out {place:judged} "
    "--task depth --depth-model {folder:model} --device cpu",
    "downstream blurred --sharp photos --out results/judged --task segmentation --segmentation-model {folder:model}",
    f"ablate {PLAN} --train {{file:recipe.toml}} --out {{place:study}} --photographs {{folder:photos}} --metrics niqe",
    "synth init {new:a.toml}",
    f"synth check {PLAN} --out {{place:made}}",
    f"synth run {PLAN} --out {{place:made}} --ledger {{new:a.sqlite}}",
    "synth verify {folder:pairs}",
    f"synth show {{folder:pairs}} train-000000 --out {{new:a.png}} --plan {PLAN}",
    "synth report {folder:pairs} --out {new:a.html}",
    "demo --out {place:demo}",
)
MARK = re.compile(r"\{(\w+):([\w.]+)\}")
SPOILT = {
    "file": ("missing/{}", "missing-{}", "spoilt/folder/{}", "spoilt/empty/{}", "spoilt/link/{}", "photo.png/{}"),
    "folder": ("missing/{}", "photo.png", "spoilt/empty-folder", "spoilt/link/{}", "photo.png/{}"),
    "new": ("missing/{}", "spoilt/folder/{}", "/proc/{}", "photo.png/{}", "long" * 70 + "-{}", "input", "pairs/{}"),
    "place": ("photo.png", "photo.png/{}", "/proc/{}", "long" * 70, "lenses"),
}
# What is right although it may not look so: a plan is checked for room in any place, the results of deblurring may lie
# beside other files, its photographs may be one, and a ledger may lie in a data set.
RIGHT = {("synth check", "place", way) for way in SPOILT["place"]} | {
    ("deblur", "place", "lenses"), ("deblur", "folder", "photo.png"), ("synth run", "new", "pairs/{}"),
}  # fmt: skip
TEXTS = (
    *WORDS[:45], "photo.png", "none.png", ".", "..", "/", "out.png", "lens.zmx", "nan", "0", "-3", "1e9", "1,2,3",
    "a=b", "a=",
)  # fmt: skip


def prepare_commands(folder: Path) -> None:
    """Everything that the lines read, and what stands in their place where they are spoilt."""
    from PIL import Image

    from fuzz_kinds import fake_pairs, lpips_files, niqe_files, response_files, weights_files, zemax_psf_files

    shutil.copy(ROOT / "tests/formats/samples/triplet.zmx", folder / "lens.zmx")
    values = (np.indices((24, 32)).sum(0)[..., None] * [5, 3, 4] % 256).astype(np.uint8)
    for name in ("photo.png", "photos/a.png", "blurred/a.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(values).save(folder / name)
    np.savez(folder / "depth.npz", depth_m=np.full((24, 32), 2.0, np.float32))
    (folder / "exports").mkdir()
    (folder / "exports/a.txt").write_bytes(zemax_psf_files()["a.txt"])
    (folder / "lenses").mkdir()
    shutil.copy(folder / "lens.zmx", folder / "lenses")
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text("{}")
    files = {
        "weights.pth": weights_files()["a.pth"], "weights.safetensors": weights_files()["b.safetensors"],
        "lpips.ckpt": lpips_files()["a.ckpt"], "niqe.npz": niqe_files()["a.npz"],
        "response.txt": response_files()["a.txt"], "plan.toml": _plan().encode(), "recipe.toml": RECIPE.encode(),
        "table.toml": TABLE.encode(),
    }  # fmt: skip
    for name, data in files.items():
        (folder / name).write_bytes(data)
    fake_pairs(folder / "pairs", "dpdd")
    names = {name for line in LINES for _, name in MARK.findall(line)}
    for way in ("folder", "empty", "link", "empty-folder"):
        (folder / "spoilt" / way).mkdir(parents=True)
    for name in names:
        (folder / "spoilt/folder" / name).mkdir()
        (folder / "spoilt/empty" / name).write_bytes(b"")
        (folder / "spoilt/link" / name).symlink_to("nowhere")


RECIPE = """
steps = 2
[model]
name = "nafnet"
size = "small"
[data]
folders = ["pairs"]
"""
TABLE = """
metrics = ["psnr"]
[[rows]]
kind = "input"
[[tests]]
kind = "pairs"
folder = "pairs"
"""


def _plan() -> str:
    from defocus.synth.plan import plan_template

    return plan_template("plan.toml")


def sweep() -> Iterator[tuple[list[str], str]]:
    """Every line, spoilt in each of its places in each way; with the word that is wrong."""
    for line in LINES:
        if "{folder:model}" in line and importlib.util.find_spec("transformers") is None:
            continue
        for number, mark in enumerate(MARK.finditer(line)):
            for way in SPOILT[mark[1]]:
                right = any(line.startswith(start) and mark[1] == kind and way == one for start, kind, one in RIGHT)
                if not right and (way != "input" or _inputs(line)):
                    yield spoilt_line(line, number, way)


def _inputs(line: str) -> list[str]:
    """Names of the files that a line reads."""
    names = [name for kind, name in MARK.findall(line) if kind == "file"]
    return [*names, "lenses/lens.zmx"] if "{folder:lenses}" in line else names


def spoilt_line(line: str, number: int, way: str) -> tuple[list[str], str]:
    """A line's words with its place `number` spoilt in a way, and what stands there."""
    marks = [mark for word in line.split() for mark in MARK.finditer(word)]
    name = marks[number][2]
    bad = way.format(name)
    if way == "input":
        inputs = _inputs(line)
        bad = next((one for one in inputs if Path(one).suffix == Path(name).suffix), inputs[0])
    words, place = [], 0
    for word in line.split():
        mark = MARK.search(word)
        if mark is not None:
            right = f"results/{mark[2]}" if mark[1] in ("new", "place") else mark[2]
            word = word.replace(mark[0], bad if place == number else right)  # noqa: PLW2901
            place += 1
        words.append(word)
    return words, bad


def run_line(words: list[str]) -> tuple[int, str]:
    """The exit code of a command line, and its message: what it wrote to the standard error, or lines on problems."""
    from defocus.cli import run

    output, errors = io.StringIO(), io.StringIO()
    niqe = {"DEFOCUS_NIQE": "niqe.npz"}
    with mock.patch.dict(os.environ, niqe), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = run(words)
    problems = [line for line in output.getvalue().splitlines(keepends=True) if line.startswith("problem: ")]
    return code, errors.getvalue() or "".join(problems)


def check_spoilt(words: list[str], bad: str) -> bool:
    """False: a spoilt line is refused in one line that names what is wrong. Raises `Absurd` where it is not."""
    Path("results").mkdir(exist_ok=True)
    code, message = run_line(words)
    lines = message.splitlines()
    if code not in (1, 2):
        raise Absurd(f"exit code {code} of {' '.join(words)[:200]}")
    if len(lines) != 1 or not lines[0].startswith(("defocus: ", "failed: ", "problem: ")):
        raise Absurd(f"{len(lines)} lines of {' '.join(words)[:200]}: {message[:300]}")
    if bad[:200] not in message and str(Path(bad).resolve())[:200] not in message:
        raise Absurd(f"no name of {bad[:60]} in the message of {' '.join(words)[:200]}: {message[:300]}")
    return False


def folder_sum(folder: Path) -> str:
    """A sum of all that is read in a folder, and of the names in it."""
    digest = sha256()
    for path in sorted(folder.rglob("*")):
        if "results" not in path.relative_to(folder).parts:
            digest.update(f"{path.relative_to(folder)} {path.is_dir()}".encode())
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def command_attempt(rng: random.Random, folder: Path) -> Attempt:
    """A spoilt line, half of the time; else a command with wrong words: unknown options, files, numbers."""
    if rng.random() < 0.5:
        words, bad = rng.choice(_SWEEP)
        return words[0], json.dumps(words).encode(), lambda: check_spoilt(words, bad)
    name = rng.choice(list(commands()))
    words, options = name.split(), commands()[name]
    for _ in range(rng.randrange(1, 5)):
        if options and rng.random() < 0.7:
            words.append(rng.choice(options))
        words.append(rng.choice(TEXTS).replace("\x00", ""))
    # Something that no command can take ends each line: nothing long is begun.
    words += rng.choice((["--no-such-option"], ["none.png", "none.toml", "none.zmx", "more", "and", "more"], ["--out"]))

    def call() -> Any:
        code, message = run_line(words)
        if code not in (0, 1, 2):
            raise Absurd(f"exit code {code}")
        if code and message.count("\n") != 1:
            raise Absurd(f"a message of {message.count(chr(10))} lines")
        return code == 0

    return " ".join(words)[:80], json.dumps(words).encode(), call


@functools.cache
def commands() -> dict[str, list[str]]:
    """Every command of the command line, with its options."""
    from defocus.cli import root_command

    options: dict[str, list[str]] = {}

    def walk(command: Any, name: str) -> None:
        for word, part in getattr(command, "commands", {}).items():
            walk(part, f"{name} {word}".strip())
        if not hasattr(command, "commands"):
            options[name] = [o for p in command.params for o in p.opts if o.startswith("--") and o != "--help"]

    walk(root_command(), "")
    return options


_SWEEP = list(sweep())
