"""The site as text: every page is built, every internal link and reference leads somewhere, warnings are errors.

Notebooks are shown and not run; `make docs` runs them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

import defocus
from defocus.cli import root_command
from defocus.restore.config import TrainConfig
from defocus.synth.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
PAGES = [path for path in (ROOT / "docs").rglob("*.md") if "generated" not in path.parts]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a copy of the documentation as text, with generated ones, without figures of lenses."""
    pytest.importorskip("sphinx", reason="the site is built by Sphinx: pip install 'defocus[dev]'")
    pytest.importorskip("myst_parser", reason="its pages are MyST: pip install 'defocus[dev]'")
    folder = tmp_path_factory.mktemp("site")
    tree = folder / "tree"
    tree.mkdir()
    (tree / "tools").symlink_to(ROOT / "tools")
    shutil.copytree(ROOT / "docs", tree / "docs", ignore=shutil.ignore_patterns("generated", "jupyter_execute"))
    environment = os.environ | {"DEFOCUS_DOCS_TEXT": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "text", "docs", "../text"]
    build = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr[-4000:]
    return folder / "text"


def test_every_page_is_built(site: Path) -> None:
    names = {path.relative_to(ROOT / "docs").with_suffix(".txt") for path in PAGES}
    assert {name for name in names if not (site / name).exists()} == set()
    assert "Measurements" in (site / "generated" / "results" / "index.txt").read_text("utf-8")


def test_the_reference_has_every_name_command_and_key(site: Path) -> None:
    api = (site / "generated" / "api" / "defocus.txt").read_text("utf-8")
    assert [name for name in defocus.__all__ if name != "__version__" and f"defocus.{name}" not in api] == []
    assert "close_up" in api
    assert "LensDefocus" in (site / "generated" / "api" / "restore.txt").read_text("utf-8")
    commands = (site / "generated" / "commands.txt").read_text("utf-8")
    for name, command in root_command().commands.items():
        for path in [f"{name} {inner}" for inner in getattr(command, "commands", {})] or [name]:
            assert f"defocus {path}" in commands
    assert '"--focus-m"' in commands
    for page, model in (("plan", Plan), ("recipe", TrainConfig)):
        text = (site / "generated" / f"{page}.txt").read_text("utf-8")
        assert [key for key in _keys(model) if f'"{key}"' not in text] == []
    assert "next to the photograph" in (site / "generated" / "plan.txt").read_text("utf-8")  # a comment of the source


def _keys(model: type[BaseModel]) -> list[str]:
    """The keys of a model that are no tables."""
    return [name for name, field in model.model_fields.items() if field.annotation in (int, float, str, bool)]


def test_tutorials_are_notebooks_whose_code_is_python() -> None:
    cells = {p.name: re.findall(r"```\{code-cell\} ipython3\n(.*?)```", p.read_text("utf-8"), re.DOTALL) for p in PAGES}
    notebooks = {name: code for name, code in cells.items() if code}
    assert {"photographer.md", "optical_engineer.md", "vision_researcher.md", "how_a_lens_blurs.md"} <= set(notebooks)
    for code in notebooks.values():
        compile("\n".join(code), "notebook", "exec")


def test_addresses_of_other_sites_are_whole() -> None:
    links = [link for page in PAGES for link in re.findall(r"\]\((\w+:[^)]*)\)", page.read_text("utf-8"))]
    assert [link for link in links if not re.fullmatch(r"https://[\w.-]+\.\w+(/\S*)?", link)] == []
