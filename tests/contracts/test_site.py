"""The site as text: every page is built, every internal link and reference leads somewhere, warnings are errors.

Notebooks are shown and not run; `make docs` runs them, and checks the links of what it built.
"""

from __future__ import annotations

import importlib.util
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
TOOL = importlib.util.spec_from_file_location("check_links", ROOT / "tools" / "check_links.py")
check_links = importlib.util.module_from_spec(TOOL)
TOOL.loader.exec_module(check_links)
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
        assert [line for line in "\n".join(code).splitlines() if len(line) > 90] == []  # as wide as the page's column


def test_formulas_become_mathml() -> None:
    math = pytest.importorskip("docutils.utils.math.latex2mathml", reason="of docutils, which Sphinx brings along")
    texts = [re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL) for page in PAGES]
    formulas = [formula for text in texts for formula in re.findall(r"\$\$?([^$]+)\$\$?", text)]
    assert len(formulas) > 10
    for formula in formulas:
        assert math.tex2mathml(formula).startswith("<math")


def test_links_of_the_repository_lead_to_files_and_headings() -> None:
    files = check_links.markdown_files(ROOT)
    assert {ROOT / "README.md", *PAGES} <= set(files)
    assert list(check_links.problems_of_markdown(ROOT, files)) == []


def test_a_link_of_markdown_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A `title`, *here*\n```\n[code](no.md)\n```\n[up](a.md) [title](#a-title-here) [whole](https://a.org/x)\n"
        "[gone](b.md) [place](#b) [out](../c.md) [half](https://a) ![picture](d.png) <http://a.org>\n[e]: f.md\n"
    )
    problems = [line.split(" ", 2)[1:] for line in check_links.problems_of_markdown(tmp_path, [page])]
    assert problems == [
        ["#b", "names no place of that page"],
        ["../c.md", "leads out of the folder"],
        ["b.md", "names no file"],
        ["d.png", "names no file"],
        ["f.md", "names no file"],
        ["http://a.org", "is no whole address"],
        ["https://a", "is no whole address"],
    ]


def test_a_link_of_the_site_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h1 id="place">B</h1>')
    (tmp_path / "a.html").write_text(
        '<link href="a.css"><a href="b.html#place">B</a><a href="b.html#gone"></a><a href="#">top</a>'
        '<img src="data:image/png;base64,AA"><img src="gone.png"><script src="https://a.org/a.js"></script>'
    )
    problems = [line.split(" ", 2)[1:] for line in check_links.problems_of_site(tmp_path)]
    assert problems == [
        ["a.css", "names no file"],
        ["b.html#gone", "names no place of that page"],
        ["gone.png", "names no file"],
        ["https://a.org/a.js", "is loaded from another site"],
    ]
    assert len(list(check_links.problems_of_site(tmp_path / "empty"))) == 1
