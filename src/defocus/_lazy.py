"""Public names that are imported on first use, so that importing a package loads nothing heavy."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: its names are those that it imports `if TYPE_CHECKING`."""
    spec = importlib.util.find_spec(package)
    source = spec.loader.get_source(package) if spec and spec.loader else ""  # type: ignore[attr-defined]
    homes = {
        alias.name: f"{package}.{node.module}"
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def attribute(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return attribute, lambda: sorted(homes)


def drawn(function: str, *values: Any, **options: Any) -> Any:
    """What a function of `defocus.draw` returns: it stands above the values that it draws and is asked for by name."""
    return getattr(importlib.import_module("defocus.draw"), function)(*values, **options)
