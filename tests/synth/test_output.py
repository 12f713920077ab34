"""What a data set is written as: files that appear whole, PNG, shards, tables, checksums, the card."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import tarfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from defocus.errors import DatasetError
from defocus.files.pair_folders import read_jsonl, shard_index
from defocus.files.stores import open_store
from defocus.photo import add_noise
from defocus.synth.dataset_card import card_text
from defocus.synth.layouts import member_name, pair_paths, shard_bytes, shard_path
from defocus.synth.metadata import COLUMNS, checksums_text, jsonl_bytes, table_bytes, table_rows
from defocus.synth.pairs import _noise_of
from defocus.synth.parquet import PAGE_ROWS, parquet_bytes
from defocus.synth.plan import make_plan

from .fake_folder import fake_folder, fake_plan, fake_record

# --- layouts ---


def test_paths_of_the_layouts() -> None:
    roles = ("blurred", "sharp", "left", "right")
    assert pair_paths("dpdd", "validation-000123", roles) == {
        "blurred": "val_c/source/000123.png",
        "sharp": "val_c/target/000123.png",
        "left": "val_l/source/000123.png",
        "right": "val_r/source/000123.png",
    }
    assert pair_paths("pairs", "train-000007", ("blurred", "sharp")) == {
        "blurred": "train/input/000007.png",
        "sharp": "train/target/000007.png",
    }
    assert shard_path("test", 7) == "test/shard-000007.tar"
    assert member_name("test-000123", "sharp") == "000123.sharp.png"
    with pytest.raises(DatasetError, match="no file for each picture"):
        pair_paths("webdataset", "train-000001", roles)


def test_shards_are_plain_tar_files_of_the_same_bytes(tmp_path: Path) -> None:
    members = [
        (f"train-{n:06d}", {"sharp": b"s" * n, "blurred": b"b" * 700}, {"id": n, "files": {}, "ü": 0.1}) for n in (1, 5)
    ]
    data, index = shard_bytes(members)
    assert (data, index) == shard_bytes(members)
    assert index["train-000005"]["sharp"] == {
        "member": "000005.sharp.png",
        "sha256": hashlib.sha256(b"sssss").hexdigest(),
        "bytes": 5,
    }
    store = open_store(tmp_path)
    store.write("a.tar", data)
    members = {name: data[at : at + size] for name, (at, size) in shard_index(store, "a.tar").items()}
    assert list(members)[:3] == ["000001.blurred.png", "000001.sharp.png", "000001.json"]
    assert json.loads(members["000005.json"]) == {"id": 5, "ü": 0.1}
    listed = subprocess.run(["tar", "tvf", tmp_path / "a.tar"], capture_output=True, text=True, check=True).stdout
    assert listed.count("1970-01-01") == 6
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert {(m.uid, m.gid, m.uname, m.mode) for m in tar} == {(0, 0, "", 0o644)}
    for damaged in (data[:900], b"no tar" * 200):
        store.write("b.tar", damaged)
        with pytest.raises(DatasetError, match=r"b\.tar: the shard cannot be read"):
            shard_index(store, "b.tar")


# --- Parquet ---


def read_table(data: bytes) -> pyarrow.Table:
    return pyarrow.parquet.read_table(pyarrow.BufferReader(data))


@pytest.mark.parametrize("rows", [0, 1, 8, 9, 10_000, PAGE_ROWS + 3])
def test_parquet_as_arrow_reads_it(rows: int) -> None:
    rng = np.random.default_rng(rows)
    made = [
        {
            "text": None if rng.random() < 0.2 else f"zeile {n} – Ω🙂" * int(rng.integers(3)),
            "whole": None if n % 3 == 0 else int(rng.integers(-(2**62), 2**62)),
            "real": float(rng.normal()) if n % 2 else None,
            "yes": bool(rng.integers(2)) if n % 5 else None,
            "full": n,
            "nested": json.dumps({"a": [n, None]}),
        }
        for n in range(rows)
    ]
    kinds = {"text": "text", "whole": "integer", "real": "number", "yes": "flag", "full": "integer", "nested": "json"}
    data = parquet_bytes(made, kinds | {"never": "number"})
    table = read_table(data)
    assert table.to_pylist() == [row | {"never": None} for row in made]
    types = [str(field.type) for field in table.schema]
    assert types == ["string", "int64", "double", "bool", "int64", *types[5:6], "double"]
    assert pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data)).metadata.num_row_groups == (1 if rows else 0)


def test_parquet_keeps_odd_numbers_and_many_columns() -> None:
    odd = [math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    kinds = {f"column {n}": "number" for n in range(40)}
    table = read_table(parquet_bytes([dict.fromkeys(kinds, value) for value in odd], kinds))
    assert table.num_columns == 40
    assert [math.copysign(1.0, v) for v in table["column 39"].to_pylist()] == [1.0, -1.0, -1.0, 1.0, 1.0]
    assert table["column 17"].to_pylist() == odd
    assert math.isnan(read_table(parquet_bytes([{"a": math.nan}], {"a": "number"}))["a"][0].as_py())


def test_parquet_refuses_what_is_not_of_a_column() -> None:
    for kind, value in (("integer", 1.5), ("integer", 2**63), ("text", 3), ("number", "x")):
        with pytest.raises(DatasetError, match="the column 'a' of the table"):
            parquet_bytes([{"a": value}], {"a": kind})


# --- metadata ---


def test_lines_and_table_hold_the_records() -> None:
    rng = np.random.default_rng(2)
    records = [fake_record(f"train-{n:06d}", rng) for n in range(5)]
    records[3]["files"] = {"blurred": {"path": "a.tar", "member": "m", "sha256": "ff", "bytes": 3}}
    records[4]["novel"] = {"a": 1}
    lines = jsonl_bytes(records)
    assert lines.count(b"\n") == 5
    assert list(read_jsonl(lines)) == records
    rows = read_table(table_bytes(records)).to_pylist()
    assert list(rows[0]) == list(COLUMNS)
    for row, record in zip(rows, records, strict=True):
        assert [row["nearest_m"], row["farthest_m"]] == record["depth_m"]
        assert row["largest_blur_px"] == max(map(abs, record["coc_px"]))
        assert json.loads(row["layer_coc_px"]) == record["layer_coc_px"]
        assert row["flip"] is record["flip"]
        assert (row["psf_kind"], row["seed"]) == ("lens", record["seed"])
    assert [rows[3][f"blurred_{part}"] for part in ("path", "member", "sha256")] == ["a.tar", "m", "ff"]
    assert rows[3]["sharp_path"] is None
    assert json.loads(rows[4]["more"]) == {"novel": {"a": 1}}
    assert set().union(*table_rows(records)) <= set(COLUMNS)


def test_metadata_that_cannot_be_written_or_read_is_told() -> None:
    with pytest.raises(DatasetError, match="train-000001 holds a number that is not finite"):
        jsonl_bytes([{"id": "train-000001", "focus_m": math.inf}])
    with pytest.raises(DatasetError, match=r"pairs\.jsonl: line 2 is no JSON"):
        list(read_jsonl(b'{"id": 1}\n{"id": \n'))


@pytest.mark.parametrize("layout", ["dpdd", "webdataset"])
def test_checksums_as_sha256sum_reads_them(tmp_path: Path, layout: str) -> None:
    folder = fake_folder(tmp_path / "set", layout, pairs=(5, 0, 1))
    run = ["sha256sum", "--strict", "--quiet", "--check", "checksums.sha256"]
    subprocess.run(run, cwd=folder, check=True)
    listed = {line.split("  ")[1] for line in (folder / "checksums.sha256").read_text().splitlines()}
    unlisted = {path for path in open_store(folder).listing() if path not in listed}
    assert unlisted == {"checksums.sha256", "ledger.sqlite"}
    victim = next(path for path in listed if path.endswith((".png", ".tar")))
    (folder / victim).write_bytes(b"x")
    assert subprocess.run(run, cwd=folder, check=False, capture_output=True).returncode == 1


def test_checksums_need_no_second_look_at_pictures(tmp_path: Path) -> None:
    record = {"files": {"sharp": {"path": "a/b.png", "sha256": "ab", "bytes": 1}}}
    assert checksums_text(open_store(tmp_path), [record]) == "ab  a/b.png\n"


# --- the card ---


def test_the_card_says_what_is_in_the_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    plan = fake_plan(pairs=(6, 2, 0))
    records = [fake_record(f"{s}-{n:06d}", rng) for s, count in (("train", 6), ("validation", 2)) for n in range(count)]
    card = card_text(plan, records)
    assert card == card_text(plan, records)
    assert card.startswith("# Fake <pairs>\n")
    images, lenses = (len({r[key] for r in records if r["split"] == "train"}) for key in ("source", "lens"))
    assert f"| train | 6 | {images} | {lenses} |" in card
    assert "| test |" not in card
    assert "No image and no lens is in two splits." in card
    assert "CC0" in card
    assert "train_c/source" in card
    assert all(f"| `{name}` |" in card for name in COLUMNS)
    records[-1]["lens"] = records[0]["lens"]
    assert "Some images or lenses are in two splits." in card_text(plan, records)


def test_the_card_hides_where_folders_lay_and_names_their_licences(tmp_path: Path) -> None:
    raw = {"kind": "raw", "folder": str(tmp_path / "holiday")}
    plan = make_plan({"sources": [raw], "psf": {"kind": "gaussian"}, "output": {"layout": "webdataset"}})
    card = card_text(plan, [])
    assert "holiday" in card
    assert str(tmp_path) not in card
    assert "stay under the licences of those photographs" in card
    assert "Gaussian" in card
    assert 'glob("train/shard-*.tar")' in card


def test_the_card_s_loader_loads(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", "pairs", pairs=(3, 0, 0))
    card = (folder / "README.md").read_text()
    assert 'PairDataset(".", "train", crop=48, augment=True)' in card
    code = card.split("```python\n")[2].split("```")[0].replace("torch.utils.data.Dataset", "object")
    code = code.replace("import torch\n", "").replace(
        "torch.from_numpy(p.copy()).permute(2, 0, 1).float() / 255", "p / 255"
    )
    found: dict[str, object] = {}
    exec(code, found)
    pairs = found["Pairs"](folder / "train/input", folder / "train/target")  # type: ignore[operator]
    assert len(pairs) == 3
    blurred, sharp = pairs[2]
    assert blurred.shape == sharp.shape == (48, 48, 3)
    assert np.abs(np.diff(blurred, axis=0)).mean() < np.abs(np.diff(sharp, axis=0)).mean()


def test_noise_of_half_pixels() -> None:
    """Both halves together have the electrons of the whole pixel, and were read out twice."""
    shot, read = np.array([2e-4], np.float32), np.array([1e-4], np.float32)
    grey = jnp.full((400, 400), 0.25, jnp.float32)
    seen = {}
    for number, role in enumerate(("blurred", "left", "right")):
        noise = jax.tree.map(lambda leaf: leaf[0], _noise_of(role, shot, read))
        seen[role] = np.asarray(add_noise(jax.random.key(number), grey, noise), float)
    mean = (seen["left"] + seen["right"]) / 2.0
    assert mean.mean() == pytest.approx(0.25, abs=2e-4)
    assert seen["blurred"].var() == pytest.approx(2e-4 * 0.25 + 1e-4, rel=0.02)
    assert mean.var() == pytest.approx(2e-4 * 0.25 + 2e-4, rel=0.02)
