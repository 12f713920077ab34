"""The pages of the site that follow from the package: commands, public names, keys of plans and recipes, and results.

`python tools/site_pages.py docs/generated` writes them; each build of the site does so first. Descriptions are those of
the code: docstrings, the help of options, and the comments beside the keys of the settings.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import shutil
import tokenize
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import defocus
from defocus.cli import GROUPS, root_command
from defocus.restore.config import TrainConfig, recipe_names, recipe_text
from defocus.synth.plan import Plan, paper_template, plan_template

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(defocus.__file__).parent
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    write_pages(parser.parse_args().folder)


def write_pages(folder: Path) -> None:
    """Write all pages anew."""
    pages = {"commands.md": command_page(), "plan.md": plan_page(), "recipe.md": recipe_page(), **api_pages()}
    for name, text in pages.items():
        write(folder / name, text)
    results = folder / "results"
    files = sorted(RESULTS.glob("*.md"))
    texts = {file.name: file.read_text("utf-8") for file in files}
    heads = [text.partition("\n")[0] for text in texts.values()]
    for file in files:
        text, name = texts[file.name], file.stem.replace("_", " ")
        head, _, rest = text.partition("\n")
        if not head.startswith("# "):
            text = f"# {name.capitalize()}\n\n{text}"
        elif heads.count(head) > 1:  # several runs of one script
            text = f"{head}: {name}\n{rest}"
        write(results / file.name, text)
    for picture in (path for path in RESULTS.glob("*") if path.suffix in (".png", ".jpg")):
        shutil.copy2(picture, results / picture.name)
    about = "Each by a script in `benchmarks/`, with the machine's name."
    write(results / "index.md", page("Measurements", about, files))


def write(path: Path, text: str) -> None:
    """Write a page that is another than the one there: what stays the same is not built again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")


def page(title: str, text: str, members: list[Path] | list[str]) -> str:
    """A page with a list of others."""
    names = "\n".join(Path(member).stem for member in members)
    return f"# {title}\n\n{text}\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n"


# --- commands ---


def command_page() -> str:
    """Every command with its arguments and options."""
    root = root_command()
    lines = ["# Commands", "", (inspect.getdoc(importlib.import_module("defocus.cli")) or "").partition("\n\n")[2], ""]
    for heading in GROUPS:
        lines += [f"## {heading}", ""]
        for name, command in root.commands.items():
            if command.rich_help_panel == heading:
                lines += _command_lines((name,), command)
    return "\n".join(lines)


def _command_lines(path: tuple[str, ...], command: Any) -> Iterator[str]:
    for name, member in getattr(command, "commands", {}).items():
        yield from _command_lines((*path, name), member)
    if hasattr(command, "commands"):
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [_argument(p) if p.required else f"[{_argument(p)}]" for p in arguments]
    usage = " ".join(["defocus", *path, *words])
    yield from (f"### defocus {' '.join(path)}", "", f"```text\n{usage} [OPTIONS]\n```", "")
    yield from (inspect.cleandoc(command.help or ""), "", "| | default | |", "| --- | --- | --- |")
    for parameter in command.params:
        text = " ".join((parameter.help or "").split())
        names = [f"`{n}`" for n in (*parameter.opts, *parameter.secondary_opts)]
        if parameter.param_type_name == "argument":
            names = [f"`{_argument(parameter)}`"]
        yield f"| {', '.join(names)} | {_default(parameter)} | {cell(text)} |"
    yield ""


def _argument(parameter: Any) -> str:
    return (parameter.metavar or parameter.name.upper()).strip("{}[]")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    return "" if parameter.default in (None, (), [], False, "") else f"`{parameter.default}`"


# --- settings ---


def plan_page() -> str:
    """Every key of a plan, and the two plans that are brought along."""
    lines = [
        "# Keys of a plan",
        "",
        "A plan is a TOML file: `defocus synth init plan.toml` writes one. What it leaves out has the value below.",
        "",
        *_table_lines(Plan, (), Plan()),
        "## The plan to begin with",
        "",
        f"```toml\n{plan_template('plan.toml').strip()}\n```",
        "",
        "## The paper's",
        "",
        f"```toml\n{paper_template('paper.toml', None).strip()}\n```",
        "",
    ]
    return "\n".join(lines)


def recipe_page() -> str:
    """Every key of a training's settings, and all recipes."""
    lines = [
        "# Keys of a recipe",
        "",
        'A training is a TOML file, or one of the recipes below, on which a file may build (`recipe = "nafnet"`).',
        "`defocus train NAME --write my.toml` copies a recipe.",
        "",
        *_table_lines(TrainConfig, (), None),
        "## Recipes",
        "",
    ]
    for name in recipe_names():
        lines += [f"### {name}", "", f"```toml\n{recipe_text(name).strip()}\n```", ""]
    return "\n".join(lines)


def _table_lines(
    model: type[BaseModel], path: tuple[str, ...], defaults: BaseModel | None, *, is_list: bool = False
) -> Iterator[str]:
    """A table of the keys of a model, then those of the models inside it."""
    notes, inner = _comments(model), []
    heading = f"[[{'.'.join(path)}]]" if is_list else f"[{'.'.join(path)}]"
    yield f"## `{heading}`" if path else "## Top level"
    yield from ("", cell(" ".join(inspect.cleandoc(model.__dict__.get("__doc__") or "").split())) if path else "", "")
    yield from ("| key | type | default | |", "| --- | --- | --- | --- |")
    for name, field in model.model_fields.items():
        parts = [kind for kind in _kinds(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        value = field.default if defaults is None else getattr(defaults, name)
        if parts:
            one = value if isinstance(value, BaseModel) else None
            inner.append((parts[0], (*path, name), one, typing.get_origin(field.annotation) is tuple))
        else:
            limits = ", ".join(filter(None, map(_limit, field.metadata)))
            default = "required" if value is PydanticUndefined else f"`{_toml(value)}`"
            text = "; ".join(filter(None, [notes.get(name, ""), limits]))
            yield f"| `{name}` | {_type_text(field.annotation)} | {default} | {cell(text)} |"
    yield ""
    for part, place, one, several in inner:
        yield from _table_lines(part, place, one, is_list=several)


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _type_text(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type_text(parts[0])
    if origin is typing.Literal:
        return " or ".join(f"`{_toml(value)}`" for value in parts)
    if origin is tuple:
        kinds = [_type_text(part) for part in parts if part is not Ellipsis]
        return f"list of {kinds[0]}" if Ellipsis in parts else f"list of {len(kinds)}: {', '.join(kinds)}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type_text(part) for part in parts if part is not type(None))
    if origin is dict or annotation is dict:
        return "table"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}
    return names.get(annotation, str(annotation))


def _limit(constraint: Any) -> str:
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "multiple_of": "a multiple of"}
    limits = [(sign, getattr(constraint, name)) for name, sign in signs.items() if hasattr(constraint, name)]
    return " ".join(f"{sign} {value:,}" if isinstance(value, int) else f"{sign} {value:g}" for sign, value in limits)


def _toml(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else "{}" if value == {} else str(value)


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """What the source says beside or above each field of a model and of those that it builds on."""
    notes: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not (issubclass(cls, BaseModel) and cls.__module__.startswith("defocus.")):
            continue
        source = inspect.getsource(cls)
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        by_line = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
        above: dict[int, str] = {}
        lines = source.splitlines()
        for number, token in by_line.items():
            if lines[number - 1].strip().startswith("#"):
                above[number + 1] = f"{above.pop(number, '')} {token.string[1:].strip()}".strip()
        (tree,) = ast.parse(inspect.cleandoc(source) if source[0] == " " else source).body
        assert isinstance(tree, ast.ClassDef)
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                beside = by_line.get(node.end_lineno or node.lineno)
                text = above.get(node.lineno, "") if beside is None else beside.string[1:].strip()
                if text:
                    notes[node.target.id] = text
    return notes


def cell(text: str) -> str:
    """A text that a table's cell can hold."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


# --- public names ---


def api_pages() -> dict[str, str]:
    """A page for the package and one for each of its parts: every name of their `__all__`."""
    parts = ["", *sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py") if path.parent.name != "cli")]
    pages = {f"api/{part or 'defocus'}.md": _api_page(f"defocus.{part}".rstrip(".")) for part in parts}
    text = "Every public name, by package. A name that several packages offer is described once."
    return pages | {"api/index.md": page("Python", text, [part or "defocus" for part in parts])}


def _api_page(module_name: str) -> str:
    module = importlib.import_module(module_name)
    about = (inspect.getdoc(module) or "").strip()
    lines = [f"# {module_name}", "", about.replace("<", "&lt;"), ""]
    for name in module.__all__:
        value = getattr(module, name)
        if name.startswith("__") or inspect.ismodule(value):
            continue
        home = public_home(name, value)
        if home != module_name:
            lines += [f"`{name}`: see {{py:obj}}`{home}.{name}`.", ""]
            continue
        kind = "autoclass" if inspect.isclass(value) else "autofunction" if inspect.isroutine(value) else "autodata"
        options = {"autoclass": "   :members:\n", "autodata": "   :no-value:\n"}.get(kind, "")
        own = type(value).__module__.startswith("defocus.")
        if kind == "autodata" and own and inspect.getdoc(value) == inspect.getdoc(type(value)):  # said of its class
            data = f".. py:data:: {module_name}.{name}\n   :type: {type(value).__name__}"
            lines += [f"```{{eval-rst}}\n{data}\n```", ""]
            continue
        lines += [f"```{{eval-rst}}\n.. {kind}:: {module_name}.{name}\n{options}```", ""]
    return "\n".join(lines)


def public_home(name: str, value: Any) -> str:
    """The package whose page describes a public name: the one that it is defined in, else the first that offers it."""
    modules = ["defocus", *sorted(f"defocus.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py"))]
    homes = [m for m in modules if m != "defocus.cli" and name in importlib.import_module(m).__all__]
    homes = [m for m in homes if getattr(importlib.import_module(m), name) is value]
    own = ".".join(str(getattr(value, "__module__", "")).split(".")[:2])
    return "defocus" if "defocus" in homes else own if own in homes else homes[0]


if __name__ == "__main__":
    main()
