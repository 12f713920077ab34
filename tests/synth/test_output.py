"""What a data set is written as: files that appear whole, PNG, shards, tables, checksums, the card."""

from __future__ import annotations

import hashlib
import io
import json
import math
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from defocus.errors import DatasetError
from defocus.files.pair_folders import read_lines, role_suffix, shard_index
from defocus.files.stores import open_store
from defocus.photo import add_noise
from defocus.synth.layouts import expected_files, member_name, pair_paths, picture_number, shard_bytes, shard_path
from defocus.synth.metadata import (
    COLUMNS,
    Checksums,
    PairStatistics,
    card_text,
    is_table_of,
    json_line,
    table_rows,
    write_table,
)
from defocus.synth.pairs import role_noise
from defocus.synth.plan import make_plan
from defocus.synth.verify import verify_folder

from .fake_folder import LABELS, fake_folder, fake_plan, fake_record

# --- layouts ---


def test_paths_of_the_layouts() -> None:
    roles = ("blurred", "sharp", "left", "right", "depth", "stack_03")
    assert pair_paths("dpdd", "validation-000123", roles) == {
        "blurred": "val_c/source/000123.png",
        "sharp": "val_c/target/000123.png",
        "left": "val_l/source/000123.png",
        "right": "val_r/source/000123.png",
        "depth": "val_c/depth/000123.tif",
        "stack_03": "val_c/stack_03/000123.png",
    }
    assert pair_paths("pairs", "train-000007", ("blurred", "sharp", "blur_radius")) == {
        "blurred": "train/input/000007.png",
        "sharp": "train/target/000007.png",
        "blur_radius": "train/blur_radius/000007.tif",
    }
    for layout in ("dpdd", "pairs"):
        for path in pair_paths(layout, "test-000123", roles).values():
            assert picture_number(path, layout) == ("test", 123)
            assert picture_number(path.replace("png", "jpg").replace("tif", "png"), layout) is None
    assert shard_path("test", 7) == "test/shard-000007.tar"
    assert member_name("test-000123", "sharp") == "000123.sharp.png"
    assert picture_number("val_l/source/000123.png", "dpdd") == ("validation", 123)
    assert picture_number("test/shard-000007.tar", "webdataset") == ("test", 7)
    assert picture_number("train/input/000007.png", "dpdd") is None
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
    files = [
        record | {"files": {r: a | {"path": "a.tar"} for r, a in index[one].items()}} for one, _, record in members
    ]
    assert expected_files(files) == {"a.tar": len(data)}
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


# --- metadata ---


def table_bytes(records: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    write_table(file, records)
    return file.getvalue()


def read_table(data: bytes) -> pyarrow.Table:
    return pyarrow.parquet.read_table(pyarrow.BufferReader(data))


def test_lines_and_table_hold_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    records = [fake_record(f"train-{n:06d}", rng) for n in range(5)]
    for record in records:
        record["files"] = {"blurred": {"path": "a.tar", "member": "m", "sha256": "ff", "bytes": 3}}
    records[4]["novel"] = {"a": 1}
    open_store(tmp_path).write("pairs.jsonl", b"".join(map(json_line, records)))
    assert list(read_lines(open_store(tmp_path))) == records
    monkeypatch.setattr("defocus.synth.metadata.ROW_GROUP", 2)
    monkeypatch.setattr("defocus.synth.metadata.AT_ONCE", 1)
    assert pyarrow.parquet.ParquetFile(io.BytesIO(table_bytes(records))).num_row_groups == 3
    rows = read_table(table_bytes(records)).to_pylist()
    assert list(rows[0]) == list(COLUMNS)
    for row, record in zip(rows, records, strict=True):
        assert [row["nearest_m"], row["farthest_m"]] == record["depth_m"]
        assert row["largest_blur_px"] == max(map(abs, record["coc_px"]))
        assert row["layer_coc_px"] == record["layer_coc_px"]
        assert row["sharpness"] == list(record["sharpness"])
        assert row["notes"] == ["nothing — to note"]
        assert json.loads(row["psf"]) == record["psf"]
        assert row["flip"] is record["flip"]
        assert (row["psf_kind"], row["seed"]) == ("lens", record["seed"])
    assert [rows[3][f"blurred_{part}"] for part in ("path", "member", "sha256")] == ["a.tar", "m", "ff"]
    assert rows[3]["sharp_path"] is None
    assert json.loads(rows[4]["more"]) == {"novel": {"a": 1}}
    assert set().union(*table_rows(records)) <= set(COLUMNS)


def test_columns_of_the_table_have_real_types() -> None:
    table = read_table(table_bytes([fake_record("train-000000", np.random.default_rng(2))]))
    types = {field.name: str(field.type).replace("element", "item") for field in table.schema}
    assert types["layer_depth_m"] == types["offset_px"] == "list<item: double>"
    assert types["notes"] == "list<item: string>"
    assert (types["psf"], types["flip"], types["seed"], types["scale"]) == ("string", "bool", "int64", "double")
    assert read_table(table_bytes([])).num_rows == 0
    for key, value in (("seed", 1.5), ("seed", 2**63), ("lens", 3), ("scale", "x"), ("layer_coc_px", 3.0)):
        with pytest.raises(DatasetError, match=f"the column '{key}' of the table"):
            table_bytes([{"id": "train-000000", key: value}])


def test_a_table_is_compared_by_what_it_says() -> None:
    records = [fake_record(f"train-{n:06d}", np.random.default_rng(n)) for n in range(3)]
    data = table_bytes(records)
    assert is_table_of(io.BytesIO(data), records)
    assert not is_table_of(io.BytesIO(data), records[:2])
    assert not is_table_of(io.BytesIO(data), [*records[:2], records[2] | {"lens": "another"}])
    assert not is_table_of(io.BytesIO(data[:100]), records)
    out = pyarrow.BufferOutputStream()  # of an older version, with lists as text
    older = read_table(data)
    older = older.set_column(older.column_names.index("layer_coc_px"), "layer_coc_px", pyarrow.array(["[1.0]"] * 3))
    pyarrow.parquet.write_table(older, out, compression="none")
    assert is_table_of(io.BytesIO(out.getvalue().to_pybytes()), records)


def test_metadata_that_cannot_be_written_is_told() -> None:
    with pytest.raises(DatasetError, match="train-000001 holds a number that is not finite"):
        json_line({"id": "train-000001", "focus_m": math.inf})


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
    file, sums = io.BytesIO(), Checksums()
    sums.add(record)
    sums.write(file, open_store(tmp_path))
    sums.close()
    assert file.getvalue() == b"ab  a/b.png\n"


# --- the card ---


def test_the_card_says_what_is_in_the_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    plan = fake_plan(pairs=(6, 2, 0))
    records = [fake_record(f"{s}-{n:06d}", rng) for s, count in (("train", 6), ("validation", 2)) for n in range(count)]
    card = card_text(plan, PairStatistics(records))
    assert "---\n\n# Fake &lt;pairs&gt;\n" in card
    images, lenses = (len({r[key] for r in records if r["split"] == "train"}) for key in ("source", "lens"))
    assert f"| train | 6 | {images} | {lenses} |" in card
    assert "| test |" not in card
    assert "No image and no lens is in two splits." in card
    assert "CC0" in card
    assert "train_c/source" in card
    assert all(f"| `{name}` |" in card for name in COLUMNS)
    records[-1]["lens"] = records[0]["lens"]
    assert "Some images or lenses are in two splits." in card_text(plan, PairStatistics(records))


@pytest.mark.parametrize("layout", ["dpdd", "pairs", "webdataset"])
def test_hugging_face_s_rows(tmp_path: Path, layout: str) -> None:
    """The head of the card and the rows beside the pictures; `benchmarks/readers.py` has the real readers."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    roles = ("blurred", "sharp", "left", "right", *LABELS)
    folder = fake_folder(tmp_path / "set", layout, pairs=(3, 0, 2), roles=roles)
    assert verify_folder(folder).sound
    table = read_table((folder / "pairs.parquet").read_bytes()).to_pylist()
    assert table[0]["depth_path"] == table[0]["stack_01_path"] or layout != "webdataset"
    assert all(row["stack_m"] == [row["nearest_m"], row["farthest_m"]] for row in table)
    head = yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])
    assert head["pretty_name"] == "Fake <pairs>"
    splits = {entry["split"]: entry["path"] for entry in head["configs"][0]["data_files"]}
    assert list(splits) == ["train", "test"]
    if layout == "webdataset":
        assert {path for pattern in splits.values() for path in folder.glob(pattern)} == set(folder.rglob("*.tar"))
        *pictures, rest = head["dataset_info"]["features"]
        assert {feature["name"] for feature in pictures} >= {f"{role}{role_suffix(role)}" for role in LABELS}
        names = {feature["name"] for feature in rest["struct"]}
        with tarfile.open(folder / "train/shard-000000.tar") as shard:
            assert names <= json.load(shard.extractfile("000000.json")).keys()  # type: ignore[arg-type]
        assert not list(folder.rglob("metadata.jsonl"))
        return
    records = {record["id"]: record for record in read_lines(open_store(folder))}
    rows = {}
    for pattern in splits.values():
        home = folder / pattern.removesuffix("/**")
        for row in map(json.loads, (home / "metadata.jsonl").read_text().splitlines()):
            record = rows[row["id"]] = records[row["id"]]
            names = {key.removesuffix("_file_name") for key in row if key.endswith("_file_name")}
            assert names == set((*roles[:2], *LABELS) if layout == "dpdd" else roles)
            assert row["stack_m"] == record["stack_m"]
            assert all(home / row[f"{role}_file_name"] == folder / record["files"][role]["path"] for role in names)
            assert (row["lens"], row["focus_m"]) == (record["lens"], record["focus_m"])
    assert rows == records


def test_the_card_hides_where_folders_lay_and_names_their_licences(tmp_path: Path) -> None:
    raw = {"kind": "raw", "folder": str(tmp_path / "holiday")}
    plan = make_plan({"sources": [raw], "psf": {"kind": "gaussian"}, "output": {"layout": "webdataset"}})
    card = card_text(plan, PairStatistics([]))
    assert "holiday" in card
    assert str(tmp_path) not in card
    assert "stay under the licences of those photographs" in card
    assert "Gaussian" in card
    assert 'glob("train/shard-*.tar")' in card


def test_the_card_s_loader_loads(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", "pairs", pairs=(3, 0, 0))
    card = (folder / "README.md").read_text()
    assert 'PairDataset(".", "train", crop=48, augment=True)' in card
    code = card.split("```python\n")[3].split("```")[0].replace("torch.utils.data.Dataset", "object")
    code = code.replace("import torch\n", "").replace(
        "torch.from_numpy(p.copy()).permute(2, 0, 1).float() / 255", "p / 255"
    )
    namespace: dict[str, object] = {}
    exec(code, namespace)
    pairs = namespace["Pairs"](folder / "train/input", folder / "train/target")  # type: ignore[operator]
    assert len(pairs) == 3
    blurred, sharp = pairs[2]
    assert blurred.shape == sharp.shape == (48, 48, 3)
    assert np.abs(np.diff(blurred, axis=0)).mean() < np.abs(np.diff(sharp, axis=0)).mean()


def test_role_noise_half_pixels() -> None:
    """Both halves together have the electrons of the whole pixel, and were read out twice."""
    shot, read = np.array([2e-4], np.float32), np.array([1e-2], np.float32)
    grey = jnp.full((400, 400), 0.25, jnp.float32)
    pictures = {}
    for number, role in enumerate(("blurred", "left", "right")):
        noise = jax.tree.map(lambda leaf: leaf[0], role_noise(role, shot, read))
        pictures[role] = np.asarray(add_noise(jax.random.key(number), grey, noise), float)
    mean = (pictures["left"] + pictures["right"]) / 2.0
    assert mean.mean() == pytest.approx(0.25, abs=2e-4)
    assert pictures["blurred"].var() == pytest.approx(2e-4 * 0.25 + 1e-2**2, rel=0.02)
    assert mean.var() == pytest.approx(2e-4 * 0.25 + 2 * 1e-2**2, rel=0.02)
