"""Tables as Apache Parquet, the plain core of it: one row group, values one after the other, not compressed.

Written from the format's specification (apache/parquet-format: the file's outline, the PLAIN encoding, the levels as a
hybrid of runs and packed bits) and Thrift's compact protocol, in which its headers are; some hundred lines instead of
a dependency of a hundred megabytes. Every reader of Parquet reads it. All columns may hold nulls.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ..errors import DatasetError

Kind = Literal["text", "json", "integer", "number", "flag"]
PAGE_ROWS = 20_000

_MAGIC = b"PAR1"
_TYPES: dict[Kind, int] = {
    "text": 6,
    "json": 6,
    "integer": 2,
    "number": 5,
    "flag": 0,
}  # BYTE_ARRAY, INT64, DOUBLE, BOOLEAN
_CONVERTED: dict[Kind, int] = {"text": 0, "json": 19}  # UTF8, JSON
_PLAIN, _RLE = 0, 3
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12  # of Thrift's compact protocol
_Field = tuple[int, int, Any]  # number, kind, value


def parquet_bytes(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Kind]) -> bytes:
    """A table: rows as mappings, of which those in `columns` are written; a missing one or None is null."""
    parts: list[bytes] = [_MAGIC]
    at, chunks = len(_MAGIC), []
    for name, kind in columns.items() if rows else ():
        begin = at
        for first in range(0, len(rows), PAGE_ROWS):
            page = _page([row.get(name) for row in rows[first : first + PAGE_ROWS]], name, kind)
            parts.append(page)
            at += len(page)
        chunks.append(_column_chunk(name, kind, len(rows), begin, at - begin))
    groups = [[(1, _LIST, (_STRUCT, chunks)), (2, _I64, at - len(_MAGIC)), (3, _I64, len(rows))]] if rows else []
    footer = _struct(
        [
            (1, _I32, 2),
            (2, _LIST, (_STRUCT, _schema(columns))),
            (3, _I64, len(rows)),
            (4, _LIST, (_STRUCT, groups)),
            (6, _BINARY, b"defocus"),
        ]
    )
    return b"".join([*parts, footer, struct.pack("<I", len(footer)), _MAGIC])


def _schema(columns: Mapping[str, Kind]) -> list[list[_Field]]:
    root: list[_Field] = [(4, _BINARY, b"schema"), (5, _I32, len(columns))]
    leaves: list[list[_Field]] = []
    for name, kind in columns.items():
        leaf: list[_Field] = [(1, _I32, _TYPES[kind]), (3, _I32, 1), (4, _BINARY, name.encode())]  # 1: optional
        if kind in _CONVERTED:
            leaf.append((6, _I32, _CONVERTED[kind]))
        leaves.append(leaf)
    return [root, *leaves]


def _column_chunk(name: str, kind: Kind, rows: int, begin: int, size: int) -> list[_Field]:
    about: list[_Field] = [
        (1, _I32, _TYPES[kind]),
        (2, _LIST, (_I32, [_PLAIN, _RLE])),
        (3, _LIST, (_BINARY, [name.encode()])),
        (4, _I32, 0),  # not compressed
        (5, _I64, rows),
        (6, _I64, size),
        (7, _I64, size),
        (9, _I64, begin),
    ]
    return [(2, _I64, begin), (3, _STRUCT, about)]


def _page(values: list[Any], name: str, kind: Kind) -> bytes:
    """A data page with its header: which values are there, then those."""
    levels = _levels([value is not None for value in values])
    try:
        body = struct.pack("<I", len(levels)) + levels + _plain([v for v in values if v is not None], kind)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise DatasetError(f"the column {name!r} of the table holds what is no {kind}: {error}") from error
    header: list[_Field] = [
        (1, _I32, 0),  # a data page
        (2, _I32, len(body)),
        (3, _I32, len(body)),
        (5, _STRUCT, [(1, _I32, len(values)), (2, _I32, _PLAIN), (3, _I32, _RLE), (4, _I32, _RLE)]),
    ]
    return _struct(header) + body


def _levels(there: list[bool]) -> bytes:
    """Definition levels of one bit: one run where all are alike, else bits packed by eight."""
    if all(there) or not any(there):
        return _varint(len(there) << 1) + bytes([there[0]])
    packed = np.packbits(np.asarray(there, bool), bitorder="little").tobytes()
    return _varint(len(packed) << 1 | 1) + packed


def _plain(values: list[Any], kind: Kind) -> bytes:
    if kind in ("text", "json"):
        texts = [value.encode() for value in values]
        return b"".join(part for text in texts for part in (struct.pack("<I", len(text)), text))
    if kind == "flag":
        return np.packbits(np.asarray(values, bool), bitorder="little").tobytes()
    return struct.pack(f"<{len(values)}{'q' if kind == 'integer' else 'd'}", *values) if values else b""


# --- Thrift's compact protocol ---


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _value(kind: int, value: Any) -> bytes:
    if kind in (_I32, _I64):
        return _zigzag(value)
    if kind == _BINARY:
        return _varint(len(value)) + value
    if kind == _STRUCT:
        return _struct(value)
    inner, items = value  # a list
    head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([0xF0 | inner]) + _varint(len(items))
    return head + b"".join(_value(inner, item) for item in items)


def _struct(fields: list[_Field]) -> bytes:
    """Fields in ascending order, each with the step from the one before (here always below 16), and a zero."""
    out, before = [], 0
    for number, kind, value in fields:
        out.append(bytes([(number - before) << 4 | kind]) + _value(kind, value))
        before = number
    return b"".join(out) + b"\0"
