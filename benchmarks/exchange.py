"""Do other programs open what we write? Focal length and f-number of exported lenses in Optiland, ray-optics, DeepLens.

    python -m venv OPTILAND && OPTILAND/bin/pip install optiland==0.6.3
    python -m venv RAYOPTICS && RAYOPTICS/bin/pip install rayoptics
    python -m venv DEEPLENS && DEEPLENS/bin/pip install torch matplotlib scikit-image
    DEEPLENS/bin/pip install --no-deps --ignore-requires-python deeplens-core==2.5.6
    python benchmarks/exchange.py --optiland OPTILAND/bin/python --rayoptics RAYOPTICS/bin/python \\
        --deeplens DEEPLENS/bin/python

The programs are heavy and play no part in the product: each gets an environment of its own, in which this script runs
itself again to open the files. A program without an environment is left out, and the page says so. Every built-in lens
is written in every format (zooms in their first state) and opened by the programs that read the format; a lens that a
format cannot hold is named with the writer's reason. --quick writes one lens.

DeepLens asks for Python 3.12, and its lenses run with 3.11 as well; what it imports for pictures and networks alone is
not installed but replaced. Its d line is 587.6 nm, and its f-number follows from its paraxial entrance pupil.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import warnings
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

FORMATS = {
    "Optiland": (".zmx", ".seq", ".optiland.json"),
    "ray-optics": (".zmx", ".seq"),
    "DeepLens": (".deeplens.json",),
}
PICTURES_OF_DEEPLENS = ("cv2", "einops", "lpips", "torchvision", "tqdm")  # packages that its lenses do not need
TOLERANCE = 1e-6
NUMBERS = ("focal_length", "f_number")


# --- in the other program's environment ---------------------------------------------------------------------------


def with_optiland(path: Path) -> tuple[float, float]:
    """Focal length (mm) and f-number of a file in Optiland."""
    from optiland.fileio import load_codev_file, load_optiland_file, load_zemax_file  # type: ignore[import-not-found]

    loads = {".zmx": load_zemax_file, ".seq": load_codev_file, ".json": load_optiland_file}
    optic = loads[path.suffix](str(path))
    return float(optic.paraxial.f2()), float(optic.paraxial.FNO())


def with_rayoptics(path: Path) -> tuple[float, float]:
    """Focal length (mm) and f-number of a file in ray-optics."""
    from rayoptics.codev import cmdproc  # type: ignore[import-not-found]
    from rayoptics.zemax import zmxread  # type: ignore[import-not-found]

    model, _ = (zmxread.read_lens_file if path.suffix == ".zmx" else cmdproc.read_lens)(path)
    data = model["analysis_results"]["parax_data"].fod
    return float(data.efl), float(data.fno)


def with_deeplens(path: Path) -> tuple[float, float]:
    """Focal length (mm) and f-number of a file in DeepLens, at its d line."""
    if not any(isinstance(finder, Replacements) for finder in sys.meta_path):
        sys.meta_path.insert(0, Replacements())
    import torch
    from deeplens.geolens import GeoLens  # type: ignore[import-not-found]

    lens = GeoLens(filename=str(path), device=torch.device("cpu"), dtype=torch.float64, primary_wvln=0.5876)
    return float(lens.foclen), float(lens.foclen) / (2.0 * float(lens.entr_pupilr_parax))


class Replacements:
    """Finds empty modules in place of packages that are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """An empty module's, for one of those packages."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in PICTURES_OF_DEEPLENS else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        """A module whose every name is there."""
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__ = spec, [], spec.name
        return module

    def exec_module(self, module: Any) -> None:
        """Nothing to do."""


def open_files(program: str) -> None:
    """Print what the program makes of each file named on standard input, as JSON."""
    warnings.simplefilter("ignore")
    answers: dict[str, Any] = {}
    for name in sys.stdin.read().split("\n"):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answers[name] = PROGRAMS[program](Path(name))
        except Exception as error:  # whatever another program raises is a result
            answers[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps(answers))


PROGRAMS = {"Optiland": with_optiland, "ray-optics": with_rayoptics, "DeepLens": with_deeplens}


# --- here ---------------------------------------------------------------------------------------------------------


def export(folder: Path, names: list[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Write the lenses in all formats: what they should be in other programs, and why some could not be written."""
    from defocus.errors import LensError
    from defocus.lens import load_lens, save_lens
    from defocus.lens.first_order import f_number, focal_length

    rows, refusals = [], {}
    for name in names:
        lens = load_lens(name)
        lens = lens.in_state(0) if lens.states else lens
        for suffix in {suffix for suffixes in FORMATS.values() for suffix in suffixes}:
            path = folder / f"{name}{suffix}"
            try:
                save_lens(lens, path)
            except LensError as error:
                refusals[f"{name}{suffix}"] = str(error)
                continue
            numbers = {"focal_length": focal_length(lens), "f_number": f_number(lens)}
            rows.append({"lens": name, "suffix": suffix, "path": str(path)} | numbers)
    return rows, refusals


def compare(rows: list[dict[str, Any]], program: str, interpreter: Path, folder: Path) -> list[dict[str, Any]]:
    """One record for each file that the program should open: relative errors, or what went wrong."""
    files = [row for row in rows if row["suffix"] in FORMATS[program]]
    command = [str(interpreter), str(Path(__file__).resolve()), "--open", program]
    answer = subprocess.run(
        command, input="\n".join(row["path"] for row in files), capture_output=True, text=True, cwd=folder, check=False
    )
    if answer.returncode != 0:
        sys.exit(f"{program}: {answer.stderr.strip().splitlines()[-1]}")
    answers = json.loads(answer.stdout.splitlines()[-1])
    records = []
    for row in files:
        result = answers[row["path"]]
        record = {key: row[key] for key in ("lens", "suffix")} | {"program": program}
        if isinstance(result, str):
            records.append(record | {"failure": result})
            continue
        errors = {f"{key}_error": abs(row[key] / value - 1.0) for key, value in zip(NUMBERS, result, strict=True)}
        records.append(record | errors)
    return records


def main() -> None:
    from defocus.lens import list_lenses
    from machine import SMALL_LENS, amount, machine, read_arguments, write_report

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optiland", type=Path, help="Python of an environment that has Optiland")
    parser.add_argument("--rayoptics", type=Path, help="Python of an environment that has ray-optics")
    parser.add_argument("--deeplens", type=Path, help="Python of an environment that has DeepLens")
    options = read_arguments(parser)
    names = amount([entry.name for entry in list_lenses()], quick=[SMALL_LENS])
    interpreters = {"Optiland": options.optiland, "ray-optics": options.rayoptics, "DeepLens": options.deeplens}
    with tempfile.TemporaryDirectory() as folder:
        rows, refusals = export(Path(folder), names)
        records = [
            record
            for program, interpreter in interpreters.items()
            if interpreter is not None
            for record in compare(rows, program, interpreter.absolute(), Path(folder))
        ]
    result = {"machine": machine(), "lenses": len(names), "records": records, "refusals": refusals}
    write_report(options.out, "exchange", result, markdown(result))


REMARKS = (
    "Optiland 0.6.3 keeps three digits of the glass codes of a `.seq` file and skips its PRV tables: give it its own",
    "JSON. It does not know Zemax's extended aspheres (terms above r^16, or odd ones); ray-optics knows the odd ones",
    "alone and drops the terms of the others without a word. While it opens a file ray-optics 0.9.8 traces a chief ray",
    "back from the corner of the image, and fails where it finds none: with fields of up to 20 mm instead of 21.63 the",
    "16–35 mm opens, and has our focal length and f-number. DeepLens 2.5.6 asks for Python 3.12; its lenses were",
    "opened with 3.11, without the packages that its pictures and networks need, at its d line of 587.6 nm; it reads",
    "numbers in single precision, which is what its two files beyond 1e-6 (400 and 600 mm, 2e-6) differ by.",
)


def markdown(result: dict[str, Any]) -> str:
    """The report as Markdown."""
    about = result["machine"]
    lines = [
        "# Exported lenses in other programs",
        "",
        f"{result['lenses']} built-in lenses, zooms in their first state, written by `defocus lens convert` and",
        "opened as they are; focal length and f-number against ours, relative.",
        f"{about['cpu']}, Python {about['python']}.",
        "",
        f"| program | format | files | opened | within {TOLERANCE:g} | largest error, focal length | f-number |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for program, suffixes in FORMATS.items():
        for suffix in suffixes:
            records = [r for r in result["records"] if (r["program"], r["suffix"]) == (program, suffix)]
            readable = [r for r in records if "failure" not in r]
            good = [r for r in readable if max(r[f"{key}_error"] for key in NUMBERS) <= TOLERANCE]
            worst = [max((r[f"{key}_error"] for r in readable), default=0.0) for key in NUMBERS]
            cells = [len(records), len(readable), len(good), *(f"{value:.1e}" for value in worst)]
            cells = cells if records else ["not measured", "", "", "", ""]
            lines.append(f"| {program} | `{suffix}` | " + " | ".join(map(str, cells)) + " |")
    failures = [r for r in result["records"] if "failure" in r]
    lines += ["", *REMARKS, "", f"## Files that were not opened: {len(failures)}", ""]
    lines += [f"- {r['lens']}{r['suffix']} in {r['program']}: {r['failure']}" for r in failures]
    lines += ["", f"## Lenses that a format cannot hold: {len(result['refusals'])}", ""]
    lines += [f"- {name}: {reason}" for name, reason in sorted(result["refusals"].items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        open_files(sys.argv[2])
    else:
        main()
