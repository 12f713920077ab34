"""Where the folders of a plan lie, apart from what is in them.

What decides the pairs are the photographs and lenses, known by their names below the plan's folders and by the sums in
the records; where the folders lie decides nothing. The ledger keeps the way from the data set's folder to them, so that
all can be moved together, or the whole path where the two have nothing in common. `plan.json`, which is passed on with
a data set, keeps the same way or else the folder's last name; the card the last name alone.

Two places have something in common below a folder that is neither the root nor above the user's home.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

PlanJson = dict[str, Any]


def without_places(plan: PlanJson) -> PlanJson:
    """The plan with folders by their last names, wherever they lie."""
    return _mapped(plan, lambda path: PurePath(path).name)


def apart_from_places(plan: PlanJson) -> PlanJson:
    """The plan without its places: equal for two plans that differ in them alone."""
    return _mapped(plan, lambda path: "", lambda path: PurePath(path).name)


def ledger_places(plan: PlanJson, folder: Path | None) -> PlanJson:
    """The plan for the ledger: with ways from the data set's folder, else whole paths."""
    return _mapped(plan, lambda path: _way(path, folder) or os.path.abspath(path), str)


def published_places(plan: PlanJson, folder: Path | None) -> PlanJson:
    """The plan for `plan.json`: with ways from the data set's folder, else last names."""
    return _mapped(plan, lambda path: _way(path, folder) or PurePath(path).name, lambda path: PurePath(path).name)


def absolute_places(plan: PlanJson, folder: Path | None) -> PlanJson:
    """The plan of the ledger or of `plan.json` with whole paths again; those of older versions are whole."""
    if folder is None:
        return plan
    base = os.path.realpath(folder)
    return _mapped(plan, lambda path: os.path.normpath(os.path.join(base, path)), str)


def folders_of(plan: PlanJson) -> list[str]:
    """Folders of photographs and of lenses, and of depth where it has one of its own."""
    sources = plan.get("sources", ())
    photos = [source[key] for source in sources for key in ("folder", "split_folder") if source.get(key)]
    depths = [source["depth"] for source in sources if PurePath(source.get("depth", "")).is_absolute()]
    return [*photos, *depths, *plan.get("lenses", {}).get("folders", ())]


def placeless(text: str, plan: PlanJson) -> str:
    """The text with files of the plan's folders named by what is below those folders."""
    for folder in folders_of(plan):
        place = folder.partition("{")[0].rstrip("/")  # of a depth pattern what is before its names
        text = text.replace(f"{place}/", "") if place else text
    return text


def same_places(one: PlanJson, other: PlanJson) -> bool:
    """Whether two plans with whole paths mean the same folders."""
    here, there = ([os.path.realpath(folder) for folder in folders_of(plan)] for plan in (one, other))
    return here == there


def _way(path: str, folder: Path | None) -> str | None:
    """Way from the data set's folder to another; None where they have nothing in common that may be published."""
    if folder is None:
        return None
    here, there = os.path.realpath(folder), os.path.realpath(path)
    try:
        shared = Path(os.path.commonpath([here, there]))
    except ValueError:  # two drives
        return None
    home = Path(os.path.realpath(os.path.expanduser("~")))
    if shared == Path(shared.anchor) or shared in home.parents:
        return None
    return Path(os.path.relpath(there, here)).as_posix()


def _mapped(plan: PlanJson, of_folder: Callable[[str], str], of_depth: Callable[[str], str] | None = None) -> PlanJson:
    """The plan with other folders; a depth pattern counts where it is a whole path."""
    of_depth = of_depth or of_folder
    mapped = copy.deepcopy(plan)
    for source in mapped.get("sources", ()):
        for key in ("folder", "split_folder"):
            if source.get(key):
                source[key] = of_folder(source[key])
        if PurePath(source.get("depth", "")).is_absolute():
            source["depth"] = of_depth(source["depth"])
    if mapped.get("lenses", {}).get("folders"):
        mapped["lenses"]["folders"] = [of_folder(folder) for folder in mapped["lenses"]["folders"]]
    return mapped
