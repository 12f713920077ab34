"""Commands that the README and the documentation show are some, with options and lenses that there are."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

from defocus import list_lenses
from defocus.cli import app

ROOT = Path(__file__).resolve().parents[2]
COMMAND = typer.main.get_command(app)
CODE = r"```(?:python|\{code-cell\} ipython3)\n(.*?)```"
LENSES = {entry.name for entry in list_lenses()}
PAGES = (ROOT / "README.md", *(p for p in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in p.parts))
SHOWN = [
    pytest.param(line.strip(), id=f"{file.name}:{number}")
    for file in PAGES
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
    if line.startswith("defocus ")
]


@pytest.mark.parametrize("line", SHOWN)
def test_commands_in_the_documentation_are_understood(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command = COMMAND
    context = command.make_context("defocus", list(words))
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, list(words), parent=context)
    lens = context.params.get("lens")
    if lens is not None and not Path(lens).suffix[1:].isalpha():  # no file
        assert lens in LENSES


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{file.name}-{number}")
        for file in PAGES
        for number, block in enumerate(re.findall(CODE, file.read_text("utf-8"), re.DOTALL), 1)
    ],
)
def test_names_that_the_documentation_imports_exist(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("defocus"):
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_there_are_commands_in_the_documentation() -> None:
    assert len(SHOWN) > 40


def test_files_of_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    files = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.py|[\w-]+(?:/[\w-]+)*/)`", text))
    assert len(files) > 50
    places = (ROOT / "src" / "defocus", ROOT)
    assert [file for file in sorted(files) if not any((place / file).exists() for place in places)] == []


@pytest.mark.parametrize("file", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda file: file.name)
def test_files_that_a_page_names_exist(file: Path) -> None:
    paths = re.findall(r"(?<![\w./-])(?:benchmarks|docs|src|tests|tools)/[\w./*-]*[\w*]", file.read_text("utf-8"))
    assert [path for path in paths if not any(ROOT.glob(path))] == []
