"""Scripts under benchmarks/ run today: each with --quick, and the pages that they write of committed results.

Their sums are too slow for tests. --quick goes through the same steps with the least work (see benchmarks/machine.py);
the pages are also written from the committed results, which must stay readable.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import runpy
import subprocess
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
PROGRAMS = [name for name in SCRIPTS if '__name__ == "__main__"' in (FOLDER / f"{name}.py").read_text()]
FORKS = {"kills"}  # from a process with one thread
COMPILERS = {  # what they compile, nothing else uses
    "growth", "paper_sampling", "psf_speed", "psf_vs_huygens", "render_speed", "trace_vs_optiland", "trace_vs_oracle",
}  # fmt: skip
SLOW = {  # 5 s and more each
    "ablation_study", "analysis_seconds", "analysis_vs_others", "cluster", "general_training", "lens_drawing",
    "page_speed", "psf_stages", "psf_study", "render_truth", "same_bytes", "synth_statistics", "versus_optiland",
}  # fmt: skip
RESULTS = sorted(path.stem for path in (FOLDER / "results").glob("*.json"))
SEVERAL = {"same_bytes_gpu"}  # put together from several runs, which the script does not write
OPTIONAL = {
    "gradio",
    "optiland",
    "torch",
    "ray",
    "moto",
    "pyiqa",
    "skimage",
    "datasets",
    "tensorflow",
    "webdataset",
    "fiftyone",
}


@pytest.fixture(autouse=True)
def folder_of_scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts find each other, but none that was imported with another command line, and leave nothing behind."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    for name in SCRIPTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    variables = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(variables)
    for name in SCRIPTS:
        sys.modules.pop(name, None)


def skip_without(name: str) -> None:
    """Skip where a package, a file or a folder is missing indeed."""
    there = Path(name).exists() if "/" in name else importlib.util.find_spec(name) is not None
    assert not there, f"{name} is here"
    pytest.skip(f"needs {name}")


def quick_words(name: str, folder: Path) -> list[str]:
    """The command line of a quick run in a new folder."""
    work = [str(folder / "work")] if name == "ablation_study" else []
    return [str(FOLDER / f"{name}.py"), *work, "--quick", "--out", str(folder / "out")]


def check_report(folder: Path) -> None:
    """A quick run has written JSON and a table in Markdown."""
    results = {path.suffix: path for path in (folder / "out").iterdir()}
    assert json.loads(results[".json"].read_text())
    assert "\n| ---" in results[".md"].read_text()


def committed() -> dict[Path, int]:
    """When each file of benchmarks/results was written."""
    return {path: path.stat().st_mtime_ns for path in (FOLDER / "results").iterdir()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long if n in SLOW else ()) for n in sorted({*PROGRAMS} - FORKS - COMPILERS)],
)
@pytest.mark.filterwarnings("ignore")
def test_a_quick_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has most of the compiled programs."""
    before = committed()
    words = quick_words(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", words)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OPTIONAL:
            raise
        skip_without(str(error.name))
    except SystemExit as leaving:
        missing = re.fullmatch(r"needs (\S+), which is not here", str(leaving.code))
        if missing:
            skip_without(missing[1])
        if leaving.code:
            pytest.fail(f"exit code {leaving.code}")
    check_report(tmp_path)
    assert committed() == before


@pytest.mark.long
def test_quick_runs_that_compile_programs_of_their_own(tmp_path: Path) -> None:
    """In one process, without the optimizations that such small work is not worth."""
    before = committed()
    lines = [quick_words(name, tmp_path / name) for name in sorted(COMPILERS)]
    code = "import runpy, sys\nfor sys.argv in LINES: runpy.run_path(sys.argv[0], run_name='__main__')"
    variables = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code.replace("LINES", repr(lines))], check=False, env=variables, capture_output=True
    )
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    for name in COMPILERS:
        check_report(tmp_path / name)
    assert committed() == before


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_imports_is_there(name: str) -> None:
    """From the other scripts and from the package, also within functions: long runs are seldom."""
    pytest.importorskip("torch")
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
        module = (isinstance(node, ast.ImportFrom) and node.module) or ""
        if module in SCRIPTS:
            table = symtable.symtable((FOLDER / f"{module}.py").read_text(), module, "exec")
            there = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
        elif module.partition(".")[0] == "defocus":
            there = {one.name for one in node.names if is_there(module, one.name)}
        else:
            continue
        assert {one.name for one in node.names} <= there, module


def is_there(module: str, name: str) -> bool:
    """Whether a module has a name, or a package has a module of that name."""
    whole = importlib.import_module(module)
    return hasattr(whole, name) or importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("name", sorted(FORKS))
def test_a_quick_run_that_forks(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    before = committed()
    subprocess.run([sys.executable, *quick_words(name, tmp_path)], check=True, stdout=subprocess.DEVNULL)
    check_report(tmp_path)
    assert committed() == before


def _pages() -> list[tuple[str, str]]:
    """Scripts that write a page from one value, each with a committed result."""
    head = re.compile(r"^def markdown\(result: dict\[str, \w+\]\)", re.MULTILINE)
    writers = [s for s in SCRIPTS if head.search((FOLDER / f"{s}.py").read_text())]
    return [(s, r) for s in writers for r in RESULTS if r in (s, f"{s}_cpu", f"{s}_gpu") and r not in SEVERAL]


@pytest.mark.parametrize(("script", "name"), _pages())
def test_a_script_writes_its_page(script: str, name: str) -> None:
    """From the numbers of its committed run: a page of the same title with as many tables."""
    module: ModuleType = importlib.import_module(script)
    page = module.markdown(json.loads((FOLDER / "results" / f"{name}.json").read_text()))
    before = (FOLDER / "results" / f"{name}.md").read_text()
    assert page.splitlines()[0] == before.splitlines()[0]
    assert page.count("| --- |") >= before.count("| --- |")
