"""Whether a folder that was begun may be gone on with: the same plan, photographs, lenses and version as then.

What differs is refused with advice, or, when all is planned anew, forgotten.
"""

from __future__ import annotations

import json

from .. import __version__
from ..errors import DatasetError
from ..files.stores import Store
from .ledger import Ledger
from .lens_pool import LensPool
from .plan import SplitName
from .sources import SourceName, files_sum

Sources = dict[SplitName, tuple[SourceName, ...]]


def require_target(ledger: Ledger, store: Store) -> None:
    """A ledger that is kept elsewhere goes with one folder: pictures that are in no ledger are removed at the end."""
    target = ledger.fact("target")
    if target is not None and target != store.root:
        raise DatasetError(f"this ledger is that of {target}: take another for {store.root}", file=ledger.path)
    ledger.put("target", store.root)


def require_same_files(ledger: Ledger, sources: Sources, lenses: LensPool, replan: bool) -> None:
    """Photographs and lenses are, byte for byte, those that the candidates were drawn from, wherever they lie now.

    Ones that are gone are left to `require_same_names`. To plan anew, a file that was changed in its place is a reason
    to forget everything.
    """
    photos = {source.name: source for group in sources.values() for source in group if source.photo is not None}
    sums: dict[tuple[str, str], str] = {}
    for _, _, _, record in ledger.items():
        sums |= {(what, record[what]): record[f"{what}_sha256"] for what in ("source", "lens") if what in record}
    for (what, name), digest in sums.items():
        if what == "source":
            same = name not in photos or files_sum(photos[name]) == digest
        else:
            same = name not in lenses.lenses or lenses.lenses[name].sha256 == digest
        if same:
            continue
        if replan:
            ledger.forget()
            return
        words = "the photograph or its depth is" if what == "source" else "the lens is"
        raise DatasetError(
            f"the plan's folders lie elsewhere than when this folder was begun, and {name} is another one there: "
            f"{words} not what the candidates were drawn from. Take the old ones, take another folder, or ask for "
            "--replan",
            file=ledger.path.parent,
        )


def require_same_names(ledger: Ledger, sources: Sources, lenses: LensPool, replan: bool) -> None:
    """Images and lenses stay in the splits that they were in: one that is new or gone would move the others."""
    now: dict[str, dict[SplitName, list[str]]] = {
        "images": {split: [source.name for source in group] for split, group in sources.items()},
        "lenses": {split: list(names) for split, names in lenses.of_split.items()},
    }
    for what, names in now.items():
        fact = ledger.fact(f"split/{what}")
        if fact is None or (before := json.loads(fact)) == names:
            continue
        if replan:
            ledger.forget()
            break
        old, new = ({name for part in parts.values() for name in part} for parts in (before, names))
        changes = [f"{name} is new" for name in sorted(new - old)] + [f"{name} is gone" for name in sorted(old - new)]
        raise DatasetError(
            f"the {what} are not those that this folder was begun with "
            f"({'; '.join(changes[:5]) or 'they are divided differently'}): restore them, take another folder, or ask "
            "for --replan",
            file=ledger.path.parent,
        )
    for what, names in now.items():
        ledger.put(f"split/{what}", json.dumps(names))


def require_same_version(ledger: Ledger, replan: bool) -> None:
    """Another version of the program may make other bytes."""
    version = ledger.fact("version")
    if version not in (None, __version__) and not replan:
        raise DatasetError(
            f"this folder was begun with defocus {version}, this is {__version__}, which may differ: go on with that "
            "version, take another folder, or ask for --replan",
            file=ledger.path.parent,
        )
    ledger.put("version", __version__)
