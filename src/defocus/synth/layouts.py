"""Where the pictures of a pair lie: in the folders of the DPDD data set, in input and target folders, or in shards.

A shard is a plain tar file (ustar, all times and owners zero) with the members of its pairs one after the other, as
WebDataset reads them: 000123.blurred.png, 000123.sharp.png, 000123.json. Labels lie in folders of their own names
beside the pictures, or in the shard as 000123.depth.tif.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import DatasetError
from ..files.pair_folders import PLANES, ROLES, Record, role_suffix

DPDD_SPLITS = {"train": "train", "validation": "val", "test": "test"}
_DPDD = {"blurred": ("c", "source"), "sharp": ("c", "target"), "left": ("l", "source"), "right": ("r", "source")}
_PAIRS = {"blurred": "input", "sharp": "target", "left": "left", "right": "right"}
_LABEL = rf"stack_\d\d/(?=\d+\.png)|(?:{'|'.join(PLANES)})/(?=\d+\.tif)"
_OURS = {
    "dpdd": re.compile(rf"(train|val|test)_(?:[clr]/(?:source|target)/(?=\d+\.png)|c/(?:{_LABEL}))(\d{{6,}})\.\w+"),
    "pairs": re.compile(
        rf"(train|validation|test)/(?:(?:input|target|left|right)/(?=\d+\.png)|{_LABEL})(\d{{6,}})\.\w+"
    ),
    "webdataset": re.compile(r"(train|validation|test)/shard-(\d{6,})\.tar"),
}


def pair_paths(layout: str, record_id: str, roles: Iterable[str]) -> dict[str, str]:
    """Path of each role, for a pair such as "train-000123" in the layouts "dpdd" and "pairs"."""
    split, _, number = record_id.rpartition("-")
    if layout == "dpdd":
        folders = {role: "_{}/{}".format(*_DPDD.get(role, ("c", role))) for role in roles}
        folders = {role: f"{DPDD_SPLITS[split]}{folder}" for role, folder in folders.items()}
    elif layout == "pairs":
        folders = {role: f"{split}/{_PAIRS.get(role, role)}" for role in roles}
    else:
        raise DatasetError(f"the layout {layout!r} has no file for each picture")
    return {role: f"{folder}/{number}{role_suffix(role)}" for role, folder in folders.items()}


def split_folder(layout: str, split: str) -> str:
    """The folder that holds both pictures of a split's pairs and their labels, or its shards."""
    return f"{DPDD_SPLITS[split]}_c" if layout == "dpdd" else split


def picture_number(path: str, layout: str) -> tuple[str, int] | None:
    """Split and number of the pair, or of the shard, whose file a layout would call so; None of other files."""
    match = _OURS[layout].fullmatch(path)
    if match is None:
        return None
    split = next(split for split, name in DPDD_SPLITS.items() if match[1] in (split, name))
    return split, int(match[2])


def is_picture_path(path: str) -> bool:
    """Whether one of the layouts would call a file of pictures so."""
    return any(pattern.fullmatch(path) for pattern in _OURS.values())


def shard_path(split: str, number: int) -> str:
    """Path of a split's shard."""
    return f"{split}/shard-{number:06d}.tar"


def member_name(record_id: str, role: str) -> str:
    """Name of a picture within its shard."""
    return f"{record_id.rpartition('-')[2]}.{role}{role_suffix(role)}"


def file_facts(data: bytes) -> dict[str, Any]:
    """What a record says of a picture's bytes: sha256 and their number."""
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def shard_bytes(
    members: Iterable[tuple[str, Mapping[str, bytes], Mapping[str, Any]]],
) -> tuple[bytes, dict[str, dict[str, dict[str, Any]]]]:
    """A shard of (id, file of each role, record), and for each id and role what records say: member, sha256, bytes.

    The record goes into the shard without its "files": those are its neighbours there.
    """
    file = io.BytesIO()
    index: dict[str, dict[str, dict[str, Any]]] = {}
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for identity, pictures, record in members:
            names = {role: member_name(identity, role) for role in sorted(pictures, key=_place)}
            for role, name in names.items():
                _add(tar, name, pictures[role])
            index[identity] = {role: {"member": name} | file_facts(pictures[role]) for role, name in names.items()}
            _add(tar, f"{identity.rpartition('-')[2]}.json", shard_line(record))
    return file.getvalue(), index


def record_size(record: Record) -> int:
    """Bytes that a pair takes in a shard: a header and whole blocks for each member."""
    members = [about["bytes"] for about in record["files"].values()] + [len(shard_line(record))]
    return sum(tarfile.BLOCKSIZE * (1 + math.ceil(size / tarfile.BLOCKSIZE)) for size in members)


def shard_size(pairs: int) -> int:
    """Bytes of a shard whose pairs take so many: two empty blocks are its end, and tar writes twenty at a time."""
    return math.ceil((pairs + 2 * tarfile.BLOCKSIZE) / tarfile.RECORDSIZE) * tarfile.RECORDSIZE


def expected_files(records: Sequence[Record]) -> dict[str, int]:
    """Files of the pairs of a shard, or of one pair with files of its own, and how many bytes they have."""
    files = [about for record in records for about in record["files"].values()]
    if "member" in files[0]:
        return {files[0]["path"]: shard_size(sum(map(record_size, records)))}
    return {about["path"]: about["bytes"] for about in files}


def shard_line(record: Mapping[str, Any]) -> bytes:
    """The record of a pair as it stands in its shard, beside the pictures."""
    return compact_json({key: value for key, value in record.items() if key != "files"}).encode()


def compact_json(value: Any) -> str:
    """JSON without blanks, keys sorted: equal values are equal bytes. Raises `ValueError` for what is not finite."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _place(role: str) -> tuple[int, str]:
    """Where a picture stands among those of its pair: labels come last."""
    return (ROLES.index(role) if role in ROLES else len(ROLES)), role


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)  # its times and owners are zero, its mode is 644
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
