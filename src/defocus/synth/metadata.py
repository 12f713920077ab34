"""What a data set says of its pairs: lines of JSON, a table, a card, a sample figure, and the checksums of all files.

Beside the pictures of each split lies what Hugging Face's `datasets` reads, with the head of the card: a file
`metadata.jsonl`, a row for each pair with the names of its pictures. Shards need none: they hold the records
themselves.

However many pairs there are, their records are read one after the other, and the table is written in row groups.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self

import numpy as np
from jaxtyping import Shaped

from .. import __version__
from ..errors import DatasetError, MissingPackageError
from ..files.pair_folders import JSON_LINES, PLAN, PLANES, ROLES, Record, pictures_of, role_suffix, stack_role
from ..files.pictures import decode_picture
from ..files.stores import Store
from .folder import keep_facts
from .layouts import DPDD_SPLITS, compact_json, split_folder
from .ledger import Ledger
from .places import published_places, without_places
from .plan import SPLITS, Plan
from .recipe import Recipe

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["text", "json", "integer", "number", "flag", "numbers", "texts"]
TABLE, CHECKSUMS = "pairs.parquet", "checksums.sha256"
CARD, SAMPLE, REPORT = "README.md", "sample.png", "report.html"
ROWS = "metadata.jsonl"  # as `datasets` expects it to be called
SAMPLES = 12  # pairs of the sample figure
ROW_GROUP = 10_000  # rows of the table that are written together
AT_ONCE = 1000  # rows that are held as Python's objects: these take ten times the room

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
    "single_m": ("number", "the one depth that is rendered; none where all of the patch are"),
    "layers": ("integer", "room for so many depth layers"),
    "layer_depth_m": ("numbers", "depths of the layers"),
    "layer_coc_px": ("numbers", "their signed blur radii"),
    "psf_kind": ("text", "lens, paper, gaussian or disk"),
    "psf": ("json", "bands and their wavelengths (nm), light outside the kernel, what the reports of the PSFs say"),
    "saturation": ("number", "power of the synthesised saturation"),
    "noise_shot": ("number", "variance of the noise for each unit of light"),
    "noise_read": ("number", "standard deviation of the noise in the dark"),
    "sharpness": ("numbers", "measures by which the sharpest candidates were chosen"),
    "notes": ("texts", "what was repaired or left out"),
    **{f"{role}_path": ("text", f"file of the {role} picture (or its shard)") for role in ROLES},
    **{f"{role}_member": ("text", f"name of the {role} picture within the shard") for role in ROLES},
    **{f"{role}_sha256": ("text", f"of the {role} picture's bytes") for role in ROLES},
    "more": ("json", "whatever else the record holds"),
}
STACK_COLUMNS: dict[str, tuple[Kind, str]] = {
    "stack_m": ("numbers", "focus distances of the focal stack, the nearest first"),
    "stack": ("json", "of each of its pictures: focus, signed blur radii, seed of the noise, offset, magnification"),
}

# What `datasets` shows of a pair beside its pictures: text, and numbers that every pair has.
ROW_TEXTS = ("id", "source", "lens")
ROW_NUMBERS = ("focus_m", "f_number", "pixel_um", "field_x", "field_y", "nearest_m", "farthest_m", "largest_blur_px")

_PAIRS = {
    "centre": ("centre_x_px", "centre_y_px"),
    "field": ("field_x", "field_y"),
    "depth_m": ("nearest_m", "farthest_m"),
    "coc_px": ("coc_low_px", "coc_high_px"),
    "noise": ("noise_shot", "noise_read"),
}


def write_metadata(plan: Plan, store: Store, ledger: Ledger, *, sample: bool = True) -> None:
    """Plan, lines, table, sample figure, card and checksums of what is done; the same bytes for the same pairs.

    Records are read once for all of them: reading takes as long as writing.
    """
    ledger.put("metadata", "{}")  # from here until all of them are written, nothing says what they should be
    keep_facts(store, ledger)
    store.write(PLAN, _plan_file(plan, store))
    statistics = PairStatistics()
    with closing(Checksums()) as sums:
        with (
            closing(ledger.done()) as done,
            store.writing(JSON_LINES) as lines,
            store.writing(TABLE) as table,
            _RowFiles(plan, store) as row_files,
        ):
            records = _pass_on(done, lambda one: lines.write(json_line(one)), statistics.add, sums.add)
            write_table(table, records, row_files.add)
        names = [PLAN, JSON_LINES, TABLE, CARD, *row_files.names]
        if statistics.total and sample:
            store.write(SAMPLE, _sample(store, ledger, statistics))
            names.append(SAMPLE)
        store.write(CARD, card_text(plan, statistics, sample=SAMPLE in names).encode())
        with store.writing(CHECKSUMS) as file:
            sums.write(file, store, names)
    digests = {name: store.digest(name) for name in (*names, CHECKSUMS)}
    ledger.put("metadata", json.dumps(digests))  # what differs from these was changed by somebody
    keep_facts(store, ledger)


def _pass_on(records: Iterable[Record], *readers: Callable[[Record], Any]) -> Iterator[Record]:
    """The records, each after all `readers` have had it."""
    for record in records:
        for read in readers:
            read(record)
        yield record


def is_metadata_of(plan: Plan, store: Store, ledger: Ledger) -> bool:
    """Whether all files of `write_metadata` are there, as it wrote them for the same plan."""
    sums = json.loads(ledger.fact("metadata") or "{}")
    digest = hashlib.sha256(_plan_file(plan, store)).hexdigest()
    return sums.get(PLAN) == digest and JSON_LINES in sums and all(store.size(name) for name in sums)


def _plan_file(plan: Plan, store: Store) -> bytes:
    about = {
        "defocus": __version__,
        "fingerprint": plan.fingerprint,
        "plan": published_places(plan.as_json(), store.folder),
    }
    return json.dumps(about, indent=1).encode() + b"\n"


def write_lines(store: Store, ledger: Ledger) -> None:
    """A line of JSON for each pair, keys sorted."""
    sums = json.loads(ledger.fact("metadata") or "{}")
    ledger.put("metadata", json.dumps({name: digest for name, digest in sums.items() if name != JSON_LINES}))
    keep_facts(store, ledger)
    with store.writing(JSON_LINES) as file:
        for record in ledger.done():
            file.write(json_line(record))


def json_line(record: Record) -> bytes:
    """The line of a record."""
    return _compact(record, str(record.get("id", ""))).encode() + b"\n"


class _RowFiles:
    """The rows that `datasets` reads, in the folder of each split; shards hold their own.

    Pictures that lie elsewhere, as DPDD's left and right views do, are left out.
    """

    def __init__(self, plan: Plan, store: Store) -> None:
        self._layout, self._store = plan.output.layout, store
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}  # by their paths

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    @property
    def names(self) -> list[str]:
        """The paths of the files."""
        return list(self._files)

    def add(self, row: Record) -> None:
        if self._layout == "webdataset":
            return
        folder = split_folder(self._layout, row["split"])
        name = f"{folder}/{ROWS}"
        if name not in self._files:
            self._files[name] = self._open.enter_context(self._store.writing(name))
        pictures = {key.removesuffix("_path"): row[key] for key in row if key.endswith("_path")}
        line = {
            f"{role}_file_name": path.removeprefix(f"{folder}/")
            for role, path in pictures.items()
            if path.startswith(f"{folder}/")
        }
        line |= {name: row[name] for name in ROW_TEXTS} | {name: float(row[name]) for name in ROW_NUMBERS}
        line |= {"stack_m": row["stack_m"]} if "stack_m" in row else {}
        self._files[name].write(_compact(line, row["id"]).encode() + b"\n")


# --- the table ---


def table_columns(roles: Iterable[str]) -> dict[str, tuple[Kind, str]]:
    """Columns of the table of a data set whose pairs have these pictures and labels."""
    labels = [role for role in roles if role not in ROLES]
    columns = STACK_COLUMNS if stack_role(0) in labels else {}
    for role in labels:
        parts = {"path": "file of the label (or its shard)", "member": "its name within the shard", "sha256": "its sum"}
        columns = columns | {f"{role}_{part}": ("text", f"{role}: {words}") for part, words in parts.items()}
    return COLUMNS | columns


def _with_columns(records: Iterable[Record]) -> tuple[dict[str, tuple[Kind, str]], Iterator[Record]]:
    """The columns that the table of these records has, by the labels of the first, and the records."""
    records = iter(records)
    head = list(islice(records, 1))
    return table_columns(head[0].get("files", ()) if head else ()), chain(head, records)


def table_rows(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Records as flat rows with the keys of `table_columns`; mappings as JSON text."""
    columns, records = _with_columns(records)
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
            elif key in columns:
                row[key] = _compact(value, identity) if columns[key][0] == "json" else value
            else:
                more[key] = value
        if "coc_px" in record:
            row["largest_blur_px"] = largest_blur_px(record)
        row["more"] = _compact(more, identity) if more else None
        yield row


def write_table(file: BinaryIO, records: Iterable[Record], *readers: Callable[[Record], Any]) -> None:
    """Write the table of the pairs as Parquet; `readers` have each row before."""
    columns, records = _with_columns(records)
    schema, rows = _schema(columns), _pass_on(table_rows(records), *readers)
    from pyarrow import concat_tables, parquet

    parts = (_arrow_table(part, columns, schema) for part in iter(lambda: list(islice(rows, AT_ONCE)), []))
    with parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(parts, ROW_GROUP // AT_ONCE)):
            writer.write_table(concat_tables(group).combine_chunks(), ROW_GROUP)


def is_table_of(file: BinaryIO, records: Iterable[Record]) -> bool:
    """Whether a Parquet file says what the records say, in the columns that it has as we write them today."""
    columns, records = _with_columns(records)
    schema, rows = _schema(columns), table_rows(records)
    from pyarrow import ArrowException, Table, parquet

    try:
        table = parquet.ParquetFile(file)
        common = [field.name for field in schema if field in list(table.schema_arrow)]
        for batch in table.iter_batches(AT_ONCE, columns=common):
            expected = _arrow_table(list(islice(rows, batch.num_rows)), columns, schema)
            if not Table.from_batches([batch]).select(common).equals(expected.select(common)):
                return False
    except (ArrowException, DatasetError, OSError, ValueError, TypeError, KeyError):
        return False
    return next(rows, None) is None


def _schema(columns: Mapping[str, tuple[Kind, str]]) -> pyarrow.Schema:
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
    return pyarrow.schema([(name, types[kind]) for name, (kind, _) in columns.items()])


def _arrow_table(
    rows: Sequence[Record], columns: Mapping[str, tuple[Kind, str]], schema: pyarrow.Schema
) -> pyarrow.Table:
    import pyarrow

    arrays = []
    for name, (kind, _) in columns.items():
        values = [row.get(name) for row in rows]
        try:
            if kind == "integer" and any(isinstance(value, float) for value in values):
                raise TypeError("a number with a fraction")  # which Arrow would cut off
            arrays.append(pyarrow.array(values, schema.field(name).type))
        except (pyarrow.ArrowException, OverflowError, TypeError) as error:
            raise DatasetError(f"the column {name!r} of the table holds what is no {kind}: {error}") from error
    return pyarrow.table(arrays, schema=schema)


def largest_blur_px(record: Record) -> float:
    """Largest radius of the circle of confusion of a pair in pixels, without its sign."""
    return float(max(abs(value) for value in record["coc_px"]))


# --- checksums ---


class Checksums:
    """Lines that `sha256sum --check` reads, of all pictures or shards and of other files; a temporary database sorts
    them."""

    def __init__(self) -> None:
        self._sums = sqlite3.connect("")
        self._sums.execute("CREATE TABLE sums (path TEXT PRIMARY KEY, digest TEXT) WITHOUT ROWID")

    def close(self) -> None:
        self._sums.close()

    def add(self, record: Record) -> None:
        """The sums of a record's pictures; of shards, which are read, there are none yet."""
        files = record.get("files", {}).values()
        rows = ((about["path"], None if "member" in about else about["sha256"]) for about in files)
        self._sums.executemany("INSERT OR REPLACE INTO sums VALUES (?, ?)", rows)

    def write(self, file: BinaryIO, store: Store, others: Iterable[str] = ()) -> None:
        """Write them, in the order of paths; `others` (paths of written files) are read."""
        self._sums.executemany("INSERT OR REPLACE INTO sums VALUES (?, NULL)", ((path,) for path in others))
        for path, digest in self._sums.execute("SELECT path, digest FROM sums ORDER BY path"):
            file.write(f"{digest or store.digest(path)}  {path}\n".encode())


def read_checksums(text: str) -> dict[str, str]:
    """sha256 of each path."""
    lines = (line.partition("  ") for line in text.split("\n") if line)
    return {path: digest for digest, _, path in lines}


# --- the card ---


class PairStatistics:
    """The numbers of a data set's pairs that cards and reports tell, without the records, which are read once."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.values: dict[str, array[float]] = defaultdict(lambda: array("d"))  # of each pair
        self.numbers: dict[str, array[int]] = {split: array("q") for split in SPLITS}
        self.images: dict[str, set[str]] = {split: set() for split in SPLITS}
        self.lenses: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}  # pairs of each
        self.bytes = 0
        self.side_px = 0
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Count one more."""
        values = {
            "blur_px": largest_blur_px(record),
            "focus_m": record["focus_m"],
            "nearest_m": record["depth_m"][0],
            "farthest_m": record["depth_m"][1],
            "field_radius": math.hypot(*record["field"]),
            "f_number": record["f_number"],
            "layers": len(record.get("layer_depth_m", ())),
        }
        for name, value in values.items():
            self.values[name].append(value)
        split = record["split"]
        self.numbers[split].append(record["index"])
        self.images[split].add(record["source"])
        self.lenses[split][record["lens"]] += 1
        self.bytes += sum(file["bytes"] for file in record.get("files", {}).values())
        self.side_px = record["patch_px"]

    @property
    def pairs(self) -> dict[str, int]:
        """How many pairs each split has."""
        return {split: len(numbers) for split, numbers in self.numbers.items()}

    @property
    def total(self) -> int:
        """How many pairs there are."""
        return sum(self.pairs.values())

    @property
    def disjoint(self) -> bool:
        """Whether no image and no lens is in two splits."""
        return all(
            sum(map(len, groups)) == len(set().union(*groups))
            for groups in (list(self.images.values()), list(self.lenses.values()))
        )


def card_text(plan: Plan, statistics: PairStatistics, *, sample: bool = True) -> str:
    """The card (README.md) as Markdown: what is in the data set, how it was made, what its fields mean, how to load it.

    It follows from the plan and the records alone, so that the same plan gives the same card. `sample`: there is a
    sample figure.
    """
    from ..draw.pages import page

    values = statistics.values
    ranges: dict[str, list[float]] = {}
    if statistics.total:
        ranges["blur_px"] = np.percentile(values["blur_px"], [5, 50, 95]).tolist()
        ranges["focus_m"] = [min(values["focus_m"]), max(values["focus_m"])]
        ranges["depth_m"] = [min(values["nearest_m"]), max(values["farthest_m"])]
    return page(
        "dataset_card.md",
        plan=plan,
        output=plan.output,
        blur=_blur_in_words(plan),
        sentences=plan_in_words(plan),
        plan_json=json.dumps(without_places(plan.as_json()), indent=1),
        pairs=statistics.pairs,
        images={split: len(names) for split, names in statistics.images.items()},
        lenses={split: len(names) for split, names in statistics.lenses.items()},
        disjoint=statistics.disjoint,
        ranges=ranges,
        sample=SAMPLE if sample else "",
        folders={split: split_folder(plan.output.layout, split) for split, pairs in statistics.pairs.items() if pairs},
        rows=ROWS,
        row_texts=ROW_TEXTS,
        row_numbers=[name for name in ROW_NUMBERS if name in Recipe.__dataclass_fields__],
        roles=(*ROLES[: 4 if plan.sensor.dual_pixel else 2], *plan.labels.roles),
        suffix=role_suffix,
        planes=[role for role in plan.labels.roles if role in PLANES],
        stack=sum(role not in PLANES for role in plan.labels.roles),
        dpdd=DPDD_SPLITS,
        columns=table_columns(plan.labels.roles),
        lines=JSON_LINES,
        table=TABLE,
        checksums=CHECKSUMS,
        scenes=any(source.kind == "scenes" for source in plan.sources),
        photographs=any(source.kind != "scenes" for source in plan.sources),
    )


def plan_in_words(plan: Plan) -> list[str]:
    """The settings that decide what the pairs look like, a sentence each."""
    from ..draw.pages import page

    augmented = [name for name in plan.splits if plan.split(name).augment]
    return page("plan_sentences.txt", plan=plan, blur=_blur_in_words(plan), augmented=augmented).strip().splitlines()


def _blur_in_words(plan: Plan) -> str:
    bands = "at the d line" if plan.psf.bands == "d" else "for red, green and blue"
    return {
        "lens": f"each depth is blurred with the point spread function of a real lens design, by wave optics {bands}",
        "paper": f"each depth is blurred with the paper's own point spread function of a real lens design {bands}",
        "gaussian": "each depth is blurred with a Gaussian of half the lens's blur radius",
        "disk": "each depth is blurred with a disk of the lens's blur radius",
    }[plan.psf.kind]


def bytes_text(size: float) -> str:
    """A number of bytes in words."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000.0:
            return f"{size:.3g} {unit}"
        size /= 1000.0
    return f"{size:.3g} TB"


def _sample(store: Store, ledger: Ledger, statistics: PairStatistics) -> bytes:
    """The sample figure, of pairs that are spread evenly over all."""
    from ..draw import draw_samples, figure_bytes

    places = ((split, number) for split in SPLITS for number in statistics.numbers[split])
    on_figure = list(islice(places, 0, None, max(1, statistics.total // SAMPLES)))[:SAMPLES]
    records = (record for split, number in on_figure for record in ledger.records(split, [number]))
    pairs = []
    for record, blurred, sharp in both_pictures(store, records):
        words = f"{record['lens']}, focus {record['focus_m']:.3g} m, blur up to {largest_blur_px(record):.1f} px"
        pairs.append((blurred, sharp, words))
    return figure_bytes(draw_samples(pairs), dpi=100.0)


def both_pictures(
    store: Store, records: Iterable[Record]
) -> Iterator[tuple[Record, Shaped[np.ndarray, "h w 3"], Shaped[np.ndarray, "h w 3"]]]:
    """Each record with its blurred and its sharp picture. Raises `DatasetError` for a picture lost or damaged."""
    try:
        for record, files in pictures_of(store, records, ("blurred", "sharp")):
            blurred, sharp = (decode_picture(files[r], record["files"][r]["path"]) for r in ("blurred", "sharp"))
            yield record, blurred, sharp
    except DatasetError as error:
        raise DatasetError(f"{error}: `defocus synth verify --repair` makes it again", file=store.root) from error


def _compact(value: Any, identity: str) -> str:
    try:
        return compact_json(value)
    except ValueError as error:
        raise DatasetError(f"the record of {identity} holds a number that is not finite") from error
