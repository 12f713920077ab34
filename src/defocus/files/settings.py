"""Settings from TOML files, checked by pydantic models. An error is one line that names the key, and for an unknown key
the nearest one that there is."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from ..errors import FileError

Settings = TypeVar("Settings", bound=BaseModel)
LARGEST_FILE = 16 * 2**20  # bytes that are read: a device has no end


def read_toml(path: str | Path, failure: type[FileError]) -> dict[str, Any]:
    """Contents of a TOML file. Raises `failure` if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise failure(f"cannot be read: {getattr(error, 'strerror', None) or error}", file=path) from error
    if not text.strip():
        raise failure("the file is empty: no settings", file=path)
    if len(data) > LARGEST_FILE:
        raise failure(f"no settings: more than {LARGEST_FILE // 2**20} MiB", file=path)
    try:
        return tomllib.loads(text)
    except ValueError as error:  # no TOML, or a number of more digits than Python takes
        raise failure(f"no TOML: {error}", file=path) from error
    except RecursionError as error:
        raise failure("no TOML that can be read: brackets within brackets, too deep", file=path) from error


def validated(
    model: type[Settings], values: Mapping[str, Any], failure: type[FileError], file: str | Path | None = None
) -> Settings:
    """Settings with the values of a TOML file. Raises `failure` with a line that names every wrong key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        errors = error.errors()
        # A list whose part is wrong is also said to have too few parts: that follows, and would lead astray.
        messages = [_message(model, one) for one in errors if not any(_within(other, one) for other in errors)]
        raise failure("; ".join(dict.fromkeys(messages)), file=file) from error


def settings_difference(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> list[str]:
    """A line for each key in which two settings as JSON differ."""
    lines: list[str] = []
    for key in dict.fromkeys([*old, *new]):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += settings_difference(a, b, f"{where}{key}.")
        elif a != b:
            lines.append(f"{where}{key}: {json.dumps(a)} -> {json.dumps(b)}")
    return lines


def nearest_name(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Advice for an unknown name: the nearest one of `names`, else `otherwise`, else all of them."""
    names = list(names)
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else otherwise or f"known are {', '.join(names) or 'none'}"


def _within(other: Any, one: Any) -> bool:
    """Whether the other error lies in a part of what this one is about."""
    return len(other["loc"]) > len(one["loc"]) and other["loc"][: len(one["loc"])] == one["loc"]


def _message(model: type[BaseModel], error: Any) -> str:
    """One line for one of pydantic's errors."""
    place = [p for p in error["loc"] if p not in ("function-after",)]
    key = ".".join(str(p) for p in place)
    if error["type"] == "extra_forbidden":
        keys = _keys(model, place[:-1])
        elsewhere = [f"{part}.{place[-1]}" for part in model.model_fields if place[-1] in _keys(model, [part])]
        offer = nearest_name(str(place[-1]), keys, otherwise=f"did you mean {elsewhere[0]}?" if elsewhere else "")
        return f"unknown key {key!r}: {offer}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "int_parsing_size":
        message = "a number far too large"
    value = error.get("input")
    present = f" (it is {value!r})" if isinstance(value, str | int | float | bool) else ""
    return f"{key}: {message}{present}" if key else message


def _keys(model: type[BaseModel], place: list[Any]) -> list[str]:
    """Keys of the part of the settings at a place."""
    part: Any = model
    for step in place:
        if isinstance(step, int):
            continue
        field = part.model_fields.get(step) if hasattr(part, "model_fields") else None
        if field is None:
            return []
        part = next((a for a in get_args(field.annotation) if hasattr(a, "model_fields")), field.annotation)
    return list(part.model_fields) if hasattr(part, "model_fields") else []
