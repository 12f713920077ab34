"""Scripts under benchmarks/ run today: their imports, their arguments, and the pages that they write at their end.

Their sums are too slow for tests. The pages are written from the committed results, so that a script cannot compute for
an hour and fail on its last line.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))
RESULTS = sorted(path.stem for path in (FOLDER / "results").glob("*.json"))
SEVERAL = {"same_bytes_gpu"}  # put together from several runs, which the script does not write
OPTIONAL = {"optiland", "torch", "ray", "moto", "pyiqa", "skimage", "datasets", "tensorflow", "webdataset", "fiftyone"}


@pytest.fixture
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module; skipped without a package of one of the extras."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [request.param, "--help"])
    try:
        return importlib.import_module(request.param)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OPTIONAL:
            pytest.skip(f"needs {error.name}")
        raise


@pytest.mark.parametrize("script", SCRIPTS, indirect=True)
def test_a_script_starts_and_says_how_it_is_called(script: ModuleType, capsys: pytest.CaptureFixture) -> None:
    assert (script.__doc__ or "").strip()
    if not hasattr(script, "main") or "ArgumentParser" not in inspect.getsource(script.main):
        return
    with pytest.raises(SystemExit) as leaving:
        script.main()
    assert leaving.value.code == 0
    assert "usage:" in capsys.readouterr().out


def _result(name: str) -> Any:
    return json.loads((FOLDER / "results" / f"{name}.json").read_text())


def _pages() -> list[tuple[str, str]]:
    """Scripts that write a page from one value, each with a committed result."""
    head = re.compile(r"^def markdown\(result: dict\[str, \w+\]\)", re.MULTILINE)
    writers = [s for s in SCRIPTS if head.search((FOLDER / f"{s}.py").read_text())]
    return [(s, r) for s in writers for r in RESULTS if r in (s, f"{s}_cpu", f"{s}_gpu") and r not in SEVERAL]


@pytest.mark.parametrize(("script", "name"), _pages(), indirect=["script"])
def test_a_script_writes_its_page(script: ModuleType, name: str) -> None:
    """From the numbers of its committed run: a page of the same title with as many tables."""
    page = script.markdown(_result(name))
    before = (FOLDER / "results" / f"{name}.md").read_text()
    assert page.splitlines()[0] == before.splitlines()[0]
    assert page.count("| --- |") >= before.count("| --- |")
