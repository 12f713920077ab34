"""Damage by chance: bytes, lines of text, values of JSON, and the frames of PNG, zip and tar, made whole again."""

from __future__ import annotations

import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

WORDS = (
    "NaN", "inf", "-Infinity", "1e400", "-1e308", "1e-400", "0", "-0.0", "-1", "1e10", "1e17", "9" * 400, "1" * 5000,
    "", "é", "\u2028", "\ud7ff", "٣", "1_000", "0x7fffffff", "1D5", '"', "'", "{", "[[", "null", "true", "&", ";", "!",
    "\x00", "../../etc/passwd", "/dev/zero", "%s", "{stem:>9999999999}", "<script>", "A" * 3000, "-" * 40, "#", "=",
    "SURF", "SURF 0", "MNUM 3", "MIRROR", "___BLANK", "XASPHERE", "STOP", "SO", "SI", "ZOO 3", "END", "AS", "d8",
    "[lens data]", "[[rows]]", "[model]", '{"a": 1}', "[" * 2500, "{" * 2500, '{"a":' * 2500, "a." * 2000 + "a = 1",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 1e308, -1e308, 0.5, float("nan"), float("inf"), "",
    "../a", "/dev/zero", "é\x00", "A" * 2000, [], [[]], {}, {"a": {}}, [1, "a", None], [0] * 2000, {"path": 1}, "nan",
)  # fmt: skip


def damaged_bytes(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Some bytes changed, cut, repeated, exchanged with another input's, or numbers set to their ends."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not data:
            return bytes(rng.getrandbits(8) for _ in range(rng.randrange(64)))
        i = rng.randrange(len(data))
        n = min(rng.choice((1, 2, 4, 8, 16, 100, 1000)), len(data) - i)
        way = rng.randrange(9)
        if way <= 1:
            data = data[:i] + bytes([data[i] ^ (1 << rng.randrange(8))]) + data[i + 1 :]
        elif way == 2:
            data = data[:i]
        elif way == 3:
            data = data[:i] + data[i + n :]
        elif way == 4:
            data = data[:i] + data[i : i + n] * rng.choice((2, 3, 50)) + data[i + n :]
        elif way == 5:
            data = data[:i] + bytes(rng.getrandbits(8) for _ in range(n)) + data[i + n :]
        elif way == 6:
            data = data[:i] + rng.choice((b"\xff", b"\x00")) * n + data[i + n :]
        elif way == 7:
            number = rng.choice((0, 1, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**63 - 1, 2**64 - 1))
            form = rng.choice((">H", "<H", ">I", "<I", ">Q", "<Q"))
            size = struct.calcsize(form)
            data = data[:i] + struct.pack(form, number % 256**size) + data[i + size :]
        else:
            other = rng.choice([data, *others])
            j = rng.randrange(len(other) + 1)
            data = data[:i] + other[j : j + rng.choice((16, 300, 10_000))] + (data[i:] if rng.random() < 0.5 else b"")
    return data


def damaged_text(rng: random.Random, data: bytes) -> bytes:
    """Lines deleted, doubled, moved, or a word of one replaced; sometimes bytes instead."""
    if rng.random() < 0.2:
        return damaged_bytes(rng, data)
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        i = rng.randrange(len(lines))
        way = rng.randrange(7)
        if way == 0 and len(lines) > 1:
            del lines[i]
        elif way == 1:
            lines[i:i] = [lines[i]] * rng.choice((1, 2, 300))
        elif way == 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(i))
        else:
            mark = next((m for m in ("\t", "=", ":", ",", " ") if m in lines[i] and rng.random() < 0.7), " ")
            words = lines[i].split(mark)
            words[rng.randrange(len(words))] = rng.choice(WORDS)
            lines[i] = mark.join(words)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def damaged_value(rng: random.Random, value: Any) -> Any:
    """A value of JSON with one part removed, doubled, renamed, or set to something else."""
    if isinstance(value, dict) and value and rng.random() < 0.92:
        key = rng.choice(list(value))
        way = rng.random()
        if way >= 0.25:
            return value | {key: damaged_value(rng, value[key])}
        rest = {k: v for k, v in value.items() if k != key}
        return rest if way < 0.15 else rest | {rng.choice(("x", "", "id", "path", key * 2)): value[key]}
    if isinstance(value, list) and value and rng.random() < 0.85:
        i = rng.randrange(len(value))
        way = rng.random()
        if way < 0.15:
            return value[:i] + value[i + 1 :]
        if way < 0.3:
            return value + value[i : i + 1] * rng.choice((1, 500))
        return [*value[:i], damaged_value(rng, value[i]), *value[i + 1 :]]
    return rng.choice(VALUES)


def damaged_json(rng: random.Random, data: bytes) -> bytes:
    """JSON, or lines of it, with a field damaged; sometimes its text instead."""
    if rng.random() < 0.35:
        return damaged_text(rng, data)
    try:
        return json.dumps(damaged_value(rng, json.loads(data))).encode()
    except ValueError:
        lines = data.split(b"\n")
        i = rng.randrange(max(1, len(lines) - 1))
        try:
            lines[i] = json.dumps(damaged_value(rng, json.loads(lines[i]))).encode()
        except ValueError:
            return damaged_text(rng, data)
        return b"\n".join(lines)


def damaged_png(rng: random.Random, data: bytes) -> bytes:
    """A PNG with a chunk damaged and its sum made right again, so that what is behind the sum is reached."""
    if rng.random() < 0.35:
        return damaged_bytes(rng, data)
    chunks, place = [], 8
    while place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + length]))
        place += 12 + length
    i = rng.randrange(len(chunks))
    name, body = chunks[i]
    if name == b"IHDR" and rng.random() < 0.8:
        width, height = (rng.choice((0, 1, 7, 24, 2**16, 2**20, 2**31 - 1, 2**32 - 1)) for _ in range(2))
        kept = struct.unpack(">IIBBBBB", body)
        size = (width, height) if rng.random() < 0.6 else kept[:2]
        rest = [rng.choice((k, k, k, 0, 1, 2, 3, 4, 6, 8, 16, 255)) for k in kept[2:]]
        body = struct.pack(">IIBBBBB", *size, *rest)
    elif name == b"IDAT" and rng.random() < 0.7:
        try:
            pixels = zlib.decompress(body)
        except zlib.error:
            pixels = b""
        body = zlib.compress(damaged_bytes(rng, pixels) * rng.choice((1, 1, 1, 400)))
    else:
        body = damaged_bytes(rng, body)
    chunks[i] = (name, body)
    if rng.random() < 0.2:
        chunks.insert(rng.randrange(len(chunks)), rng.choice(chunks))
    if rng.random() < 0.1:
        chunks.pop(rng.randrange(len(chunks)))
    whole = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks)
    return data[:8] + b"".join(whole)


def damaged_npy(rng: random.Random, data: bytes) -> bytes:
    """An array of numpy with its header rewritten, or bytes damaged."""
    end = data.find(b"\n")
    if rng.random() < 0.3 or end < 12:
        return damaged_bytes(rng, data)
    kinds = ("<f4", ">f8", "<u2", "|O", "<U9", "|V40", "<M8[s]", "<c16", "<f2", "|b1", "f", "", "<f99", "(3,)<f4")
    sizes = (
        "()",
        "(0,)",
        "(5,)",
        "(4, 6)",
        "(99999, 99999)",
        "(9999999999999, 9)",
        "(-1, 4)",
        "(4, 6, 1)",
        "4",
        "(1e3,)",
    )
    order = rng.choice(("False", "True", "None", "0"))
    head = f"{{'descr': '{rng.choice(kinds)}', 'fortran_order': {order}, 'shape': {rng.choice(sizes)}, }}"
    if rng.random() < 0.3:
        head = damaged_text(rng, head.encode()).decode("latin-1")
    text = head.encode("latin-1", "replace") + b"\n"
    return data[:8] + struct.pack("<H", min(len(text), 65_535)) + text + data[end + 1 :]


def damaged_zip(rng: random.Random, data: bytes, inner: Callable[[random.Random, bytes], bytes]) -> bytes:
    """A zip whose members are damaged, left out or renamed; sometimes its own bytes."""
    if rng.random() < 0.4:
        return damaged_bytes(rng, data)
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        names = old.namelist()
        chosen = rng.choice(names)
        for name in names:
            body = old.read(name)
            if name == chosen:
                if rng.random() < 0.15:
                    continue
                body = inner(rng, body)
                if rng.random() < 0.05:
                    body = bytes(3 * 10**8 if rng.random() < 0.02 else 10**6)  # a bomb; large ones take long to write
            other = name == chosen and rng.random() < 0.3
            new.writestr(rng.choice(("x.npy", "../x.npy")) if other else name, body)
    return buffer.getvalue()


def damaged_tar(rng: random.Random, data: bytes) -> bytes:
    """A tar with a header's field changed and its sum made right again, or bytes damaged."""
    if rng.random() < 0.4 or len(data) < 1024:
        return damaged_bytes(rng, data)
    heads = [place for place in range(0, len(data) - 512, 512) if data[place + 257 : place + 262] == b"ustar"]
    if not heads:
        return damaged_bytes(rng, data)
    place = rng.choice(heads)
    head = bytearray(data[place : place + 512])
    start, end = rng.choice(((0, 100), (124, 136), (156, 157), (257, 265), (345, 500)))
    new = rng.choice(
        (b"99999999999\0", b"00000000000\0", b"-0000000001\0", b"\x80" + b"\xff" * 11, b"S", b"x", b"2", b"../x\0")
    )
    head[start:end] = new[: end - start].ljust(end - start, b"\0")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return data[:place] + bytes(head) + data[place + 512 :]
