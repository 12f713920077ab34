"""What a data set says of its pairs: a line of JSON for each, a table of the same, and the checksums of all files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from ..errors import DatasetError, MissingPackageError
from ..files.pair_folders import ROLES, Record
from ..files.stores import Store

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["text", "json", "integer", "number", "flag", "numbers", "texts"]
TABLE, CHECKSUMS = "pairs.parquet", "checksums.sha256"
CARD, SAMPLE, REPORT = "README.md", "sample.png", "report.html"

# Column of the table: its kind and what it means; the card explains the fields with the same words.
COLUMNS: dict[str, tuple[Kind, str]] = {
    "id": ("text", "split and number of the pair"),
    "split": ("text", "train, validation or test"),
    "index": ("integer", "number of the candidate within its split"),
    "seed": ("integer", "of the noise"),
    "source": ("text", "the photograph or scene"),
    "source_kind": ("text", "scenes, raw or rgb"),
    "source_sha256": ("text", "of the photograph's and its depth's bytes; of a scene, of its name and size"),
    "centre_x_px": ("number", "middle of the patch in the reduced photograph, to the right"),
    "centre_y_px": ("number", "the same, downwards"),
    "rotation_rad": ("number", "by which the patch was turned"),
    "scale": ("number", "above 1 the patch shows less, larger"),
    "flip": ("flag", "whether it was mirrored"),
    "exposure": ("number", "factor on the light"),
    "patch_px": ("integer", "side of the pictures"),
    "lens": ("text", "name of the lens"),
    "lens_sha256": ("text", "of its prescription"),
    "state": ("text", "zoom or focus state of the prescription"),
    "field_x": ("number", "where in the image the PSFs are those of, as a fraction of the image radius"),
    "field_y": ("number", "the same, the other axis"),
    "focus_m": ("number", "distance that the lens is focused at"),
    "pixel_um": ("number", "pixel pitch"),
    "f_number": ("number", "of the lens in this state"),
    "nearest_m": ("number", "nearest depth of the patch"),
    "farthest_m": ("number", "farthest depth of the patch"),
    "coc_low_px": ("number", "smallest signed radius of the circle of confusion"),
    "coc_high_px": ("number", "largest signed radius of the circle of confusion"),
    "largest_blur_px": ("number", "the larger of the two without its sign"),
    "offset_px": ("numbers", "by which the lens moves what is in focus, right and down; it was taken back"),
    "layers": ("integer", "room for so many depth layers"),
    "layer_depth_m": ("numbers", "depths of the layers"),
    "layer_coc_px": ("numbers", "their signed blur radii"),
    "psf_kind": ("text", "lens, gaussian or disk"),
    "psf": ("json", "bands and their wavelengths (nm), light outside the kernel, what the reports of the PSFs say"),
    "saturation": ("number", "power of the synthesised saturation"),
    "noise_shot": ("number", "variance of the noise for each unit of light"),
    "noise_read": ("number", "variance of the noise in the dark"),
    "sharpness": ("numbers", "measures by which the sharpest candidates were chosen"),
    "notes": ("texts", "what was repaired or left out"),
    **{f"{role}_path": ("text", f"file of the {role} picture (or its shard)") for role in ROLES},
    **{f"{role}_member": ("text", f"name of the {role} picture within the shard") for role in ROLES},
    **{f"{role}_sha256": ("text", f"of the {role} picture's bytes") for role in ROLES},
    "more": ("json", "whatever else the record holds"),
}

_PAIRS = {
    "centre": ("centre_x_px", "centre_y_px"),
    "field": ("field_x", "field_y"),
    "depth_m": ("nearest_m", "farthest_m"),
    "coc_px": ("coc_low_px", "coc_high_px"),
    "noise": ("noise_shot", "noise_read"),
}


def jsonl_bytes(records: Iterable[Record]) -> bytes:
    """One line for each record, keys sorted."""
    return b"".join(_compact(record, str(record.get("id", ""))).encode() + b"\n" for record in records)


def table_rows(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Records as flat rows with the keys of COLUMNS; mappings as JSON text."""
    for record in records:
        identity = str(record.get("id", ""))
        row: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for key, value in record.items():
            if key in _PAIRS:
                row.update(zip(_PAIRS[key], value, strict=True))
            elif key == "psf":
                row |= {"psf": _compact(value, identity), "psf_kind": value.get("kind")}
            elif key == "files":
                for role, about in value.items():
                    row |= {f"{role}_{part}": about.get(part) for part in ("path", "member", "sha256")}
            elif key in COLUMNS:
                row[key] = _compact(value, identity) if COLUMNS[key][0] == "json" else value
            else:
                more[key] = value
        if "coc_px" in record:
            row["largest_blur_px"] = largest_blur_px(record)
        row["more"] = _compact(more, identity) if more else None
        yield row


def table_bytes(records: Iterable[Record]) -> bytes:
    """The table of the pairs as Parquet."""
    table = _arrow_table(records)
    from pyarrow import BufferOutputStream, parquet

    out = BufferOutputStream()
    parquet.write_table(table, out)
    return out.getvalue().to_pybytes()


def is_table_of(data: bytes, records: Iterable[Record]) -> bool:
    """Whether a Parquet file says what the records say, in the columns that it has as we write them today."""
    expected = _arrow_table(records)
    from pyarrow import ArrowException, BufferReader, parquet

    try:
        table = parquet.read_table(BufferReader(data))
    except (ArrowException, OSError):
        return False
    common = [field.name for field in expected.schema if field in list(table.schema)]
    return table.num_rows == expected.num_rows and table.select(common).equals(expected.select(common))


def _arrow_table(records: Iterable[Record]) -> pyarrow.Table:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise MissingPackageError("the table of the pairs", "pyarrow") from error
    types = {
        "text": pyarrow.string(),
        "json": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "flag": pyarrow.bool_(),
        "numbers": pyarrow.list_(pyarrow.float64()),
        "texts": pyarrow.list_(pyarrow.string()),
    }
    rows = list(table_rows(records))
    columns = {}
    for name, (kind, _) in COLUMNS.items():
        values = [row.get(name) for row in rows]
        try:
            if kind == "integer" and any(isinstance(value, float) for value in values):
                raise TypeError("a number with a fraction")  # which Arrow would cut off
            columns[name] = pyarrow.array(values, types[kind])
        except (pyarrow.ArrowException, OverflowError, TypeError) as error:
            raise DatasetError(f"the column {name!r} of the table holds what is no {kind}: {error}") from error
    return pyarrow.table(columns)


def largest_blur_px(record: Record) -> float:
    """Largest radius of the circle of confusion of a pair in pixels, without its sign."""
    return float(max(abs(value) for value in record["coc_px"]))


def checksums_text(store: Store, records: Iterable[Record], others: Iterable[str] = ()) -> str:
    """Lines that `sha256sum --check` reads, of all pictures or shards, and of `others` (paths of written files).

    Sums of pictures are those of the records; shards and the others are read.
    """
    sums: dict[str, str] = {}
    to_read = list(others)
    for record in records:
        for about in record.get("files", {}).values():
            if "member" in about:
                to_read.append(about["path"])
            else:
                sums[about["path"]] = about["sha256"]
    for path in dict.fromkeys(to_read):
        sums[path] = hashlib.sha256(store.read(path)).hexdigest()
    return "".join(f"{sums[path]}  {path}\n" for path in sorted(sums))


def read_checksums(text: str) -> dict[str, str]:
    """sha256 of each path."""
    lines = (line.partition("  ") for line in text.split("\n") if line)
    return {path: digest for digest, _, path in lines}


def _compact(value: Any, identity: str) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise DatasetError(f"the record of {identity} holds a number that is not finite") from error
