"""Do the readers that people have open our data sets? Hugging Face's datasets, WebDataset, pyarrow, Polars, DuckDB.

    python benchmarks/readers.py make FOLDER                   # needs defocus: 40 pairs in each layout
    python benchmarks/readers.py read FOLDER [--out FOLDER]    # needs the readers and Pillow, no defocus
    python benchmarks/readers.py --quick                       # both, with 4 pairs, by the readers that are here

The second runs in an environment of its own, as the machine of somebody who was passed a data set. Every reader must
give all pairs of each split, with the pixels of pictures and labels that the records name by their checksums, the lens,
the focus and the focus distances of the focal stack. Writes readers.json and readers.md.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import SMALL_PLAN, amount, machine, read_arguments, require, write_report

LAYOUTS = ("dpdd", "pairs", "webdataset")
PAIRS = amount({"train": 28, "validation": 6, "test": 6}, quick={"train": 2, "validation": 1, "test": 1})
PACKAGES = ("datasets", "webdataset", "pyarrow", "polars", "duckdb", "pillow")
PLAN: dict[str, Any] = SMALL_PLAN | {
    "name": "Readers",
    "seed": 5,
    "labels": {"depth": True, "blur_radius": True, "focal_stack": 2},
    **{split: {"pairs": count} for split, count in PAIRS.items()},
}
ROLES = {"blurred": "png", "sharp": "png", "depth": "tif", "blur_radius": "tif", "stack_00": "png", "stack_01": "png"}
Rows = dict[str, tuple[Any, ...]]  # by id: lens, focus, those of the stack, sums of the pixels of each role


def make(folder: Path) -> None:
    """Make the data sets."""
    from defocus.synth.engines.local import LocalEngine
    from defocus.synth.plan import make_plan
    from defocus.synth.run import run_plan

    for layout in LAYOUTS:
        output = {"layout": layout, "pairs_per_shard": 10}
        assert run_plan(make_plan(PLAN | {"output": output}), folder / layout, LocalEngine(1)).complete


def pixels(picture: Any) -> str:
    """A sum of the pixels of a Pillow picture or of the bytes of a file."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)) if isinstance(picture, bytes) else picture
    return hashlib.sha256(repr((image.size, image.mode)).encode() + image.tobytes()).hexdigest()


def expected_rows(folder: Path, layout: str) -> dict[str, Rows]:
    """What readers should give, from the records and from the files whose sums they hold."""
    import tarfile

    rows: dict[str, Rows] = {split: {} for split in PAIRS}
    for line in (folder / layout / "pairs.jsonl").read_text().splitlines():
        record = json.loads(line)
        sums = []
        for role in ROLES:
            about = record["files"][role]
            file = folder / layout / about["path"]
            if "member" in about:
                with tarfile.open(file) as shard:
                    data = shard.extractfile(about["member"]).read()  # type: ignore[union-attr]
            else:
                data = file.read_bytes()
            assert hashlib.sha256(data).hexdigest() == about["sha256"]
            sums.append(pixels(data))
        rows[record["split"]][record["id"]] = (record["lens"], record["focus_m"], record["stack_m"], *sums)
    return rows


def read_datasets(folder: Path, layout: str) -> dict[str, Rows]:
    """As the card says it; the same rows streamed."""
    from datasets import load_dataset

    rows: dict[str, Rows] = {}
    for streaming in (False, True):
        with tempfile.TemporaryDirectory() as cache:
            sets = load_dataset(str(folder / layout), cache_dir=cache, streaming=streaming)
            for split in sets:
                pairs = sets[split]
                if layout == "webdataset":
                    pairs = pairs.rename_columns({f"{role}.{suffix}": role for role, suffix in ROLES.items()})
                    pairs = pairs.map(lambda pair: pair["json"], remove_columns=["json"])
                found = {
                    pair["id"]: (pair["lens"], pair["focus_m"], pair["stack_m"], *(pixels(pair[r]) for r in ROLES))
                    for pair in pairs
                }
                assert rows.setdefault(split, found) == found
    return rows


def read_webdataset(folder: Path, layout: str) -> dict[str, Rows]:
    """Shards by WebDataset."""
    import webdataset

    rows: dict[str, Rows] = {}
    for split in PAIRS:
        shards = sorted(map(str, (folder / layout / split).glob("shard-*.tar")))
        rows[split] = {}
        for pair in webdataset.WebDataset(shards, shardshuffle=False):
            record = json.loads(pair["json"])
            sums = [pixels(pair[f"{role}.{suffix}"]) for role, suffix in ROLES.items()]
            rows[split][record["id"]] = (record["lens"], record["focus_m"], record["stack_m"], *sums)
    return rows


def table_reader(read: Callable[[Path], list[dict[str, Any]]]) -> Callable[[Path, str], dict[str, Rows]]:
    """A reader of the table alone: pictures are opened by the paths that it says."""

    def reader(folder: Path, layout: str) -> dict[str, Rows]:
        import tarfile

        rows: dict[str, Rows] = {split: {} for split in PAIRS}
        for row in read(folder / layout / "pairs.parquet"):
            sums = []
            for role in ROLES:
                file = folder / layout / row[f"{role}_path"]
                if row[f"{role}_member"]:
                    with tarfile.open(file) as shard:
                        sums.append(pixels(shard.extractfile(row[f"{role}_member"]).read()))  # type: ignore[union-attr]
                else:
                    sums.append(pixels(file.read_bytes()))
            rows[row["split"]][row["id"]] = (row["lens"], row["focus_m"], row["stack_m"], *sums)
        return rows

    return reader


def by_pyarrow(file: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    return parquet.read_table(file).to_pylist()


def by_polars(file: Path) -> list[dict[str, Any]]:
    import polars

    return polars.read_parquet(file).to_dicts()


def by_duckdb(file: Path) -> list[dict[str, Any]]:
    import duckdb

    answer = duckdb.sql(f"SELECT * FROM '{file}'")
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]


READERS: dict[str, tuple[Callable[[Path, str], dict[str, Rows]], tuple[str, ...]]] = {
    "datasets": (read_datasets, LAYOUTS),
    "webdataset": (read_webdataset, ("webdataset",)),
    "pyarrow": (table_reader(by_pyarrow), LAYOUTS),
    "polars": (table_reader(by_polars), LAYOUTS),
    "duckdb": (table_reader(by_duckdb), LAYOUTS),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("make", "read"))
    parser.add_argument("folder", nargs="?", type=Path)
    arguments = read_arguments(parser)
    if arguments.quick:
        arguments.folder = arguments.out / "sets"
    elif arguments.folder is None:
        parser.error("expected make FOLDER, or read FOLDER")
    if arguments.mode == "read":
        require(*READERS)
    if arguments.mode != "read":
        make(arguments.folder)
    if arguments.mode == "make":
        return
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")
    readers = {name: reader for name, reader in READERS.items() if importlib.util.find_spec(name)}
    results: dict[str, dict[str, str]] = {}
    for layout in LAYOUTS:
        expected = expected_rows(arguments.folder, layout)
        assert {split: len(rows) for split, rows in expected.items()} == PAIRS
        for name, (reader, layouts) in readers.items():
            if layout not in layouts:
                continue
            try:
                rows = reader(arguments.folder, layout)
                verdict = "equal" if rows == expected else "differs"
            except Exception as error:  # a reader may raise anything
                verdict = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            results.setdefault(name, {})[layout] = verdict
            print(f"{name} {layout}: {verdict}", flush=True)
    place = machine(PACKAGES)
    report = {"machine": place, "pairs": PAIRS, "results": results}
    lines = [
        "# Readers of data sets",
        "",
        f"`benchmarks/readers.py`: {sum(PAIRS.values())} pairs of 48×48 pixels in each layout "
        f"({', '.join(f'{count} for {split}' for split, count in PAIRS.items())}) with depth, blur radius and a focal "
        "stack of two, read in an environment without defocus. Equal: all pairs of all splits, pixels of pictures and "
        "labels, lens and focus distances as the records say; `datasets` twice, loaded and streamed.",
        "",
        ", ".join(f"{name} {place[name]}" for name in (*PACKAGES, "python") if place[name]) + ".",
        "",
        "| reader | " + " | ".join(LAYOUTS) + " |",
        "| --- |" + " --- |" * len(LAYOUTS),
        *(
            f"| {name} | " + " | ".join(row.get(layout, "") for layout in LAYOUTS) + " |"
            for name, row in results.items()
        ),
    ]
    write_report(arguments.out, "readers", report, "\n".join(lines) + "\n")
    sys.exit(any(verdict != "equal" for row in results.values() for verdict in row.values()))


if __name__ == "__main__":
    main()
