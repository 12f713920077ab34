"""Checking finished and foreign folders, and the page and figure that show them."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet
from scipy.ndimage import gaussian_filter

from defocus.draw import draw_samples, save
from defocus.errors import DatasetError, DefocusError, OwnershipError
from defocus.files.pair_folders import find_pairs
from defocus.files.pictures import quantise
from defocus.files.png import png_bytes
from defocus.files.stores import open_store
from defocus.synth.ledger import merged_reasons
from defocus.synth.report import sheet_ids, write_report
from defocus.synth.verify import verify_folder

from .fake_folder import fake_folder, texture

# --- verify ---


@pytest.mark.parametrize(("layout", "bits"), [("dpdd", 8), ("pairs", 16), ("webdataset", 8)])
def test_a_finished_folder_is_sound(tmp_path: Path, layout: str, bits: int) -> None:
    folder = fake_folder(tmp_path / "set", layout, bits, roles=("blurred", "sharp", "left", "right"))
    steps: list[tuple[int, int]] = []
    verdict = verify_folder(folder, progress=lambda done, of: steps.append((done, of)))
    assert verdict.problems == []
    assert verdict.sound
    files = 4 if layout == "webdataset" else 40
    assert verdict.counts == {
        "pairs": 10,
        "files": files,
        "pictures decoded": 40,
        "train pairs": 6,
        "validation pairs": 2,
        "test pairs": 2,
    }
    assert steps[-1] == (len(steps), len(steps))
    assert len(steps) == (4 if layout == "webdataset" else 10)


def _png(side: int, bits: int = 8) -> bytes:
    return png_bytes(quantise(texture(np.random.default_rng(9), side), bits))


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def _drop_line(folder: Path) -> None:
    lines = (folder / "pairs.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "pairs.jsonl").write_bytes(b"".join(lines[:-1]))


def _drop_row(folder: Path) -> None:
    parquet.write_table(parquet.read_table(folder / "pairs.parquet").slice(1), folder / "pairs.parquet")


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: (f / "train_c/source/000003.png").unlink(), r"train_c/source/000003\.png: missing"),
        (lambda f: _damage(f / "train_c/target/000003.png"), r"train_c/target/000003\.png: its sha256 is not"),
        (lambda f: (f / "test_c/target/000003.png").write_bytes(b"x"), r"000003\.png: 1 bytes; expected [\d,]+"),
        (lambda f: (f / "train_c/source/999.png").write_bytes(b""), r"train_c/source/999\.png: belongs to no pair"),
        (_drop_line, r"pairs\.jsonl: does not say what the ledger says"),
        (_drop_row, r"pairs\.parquet: does not say what the ledger says"),
        (lambda f: (f / "pairs.parquet").unlink(), r"pairs\.parquet: missing"),
        (lambda f: _damage(f / "README.md"), r"README\.md: not what checksums\.sha256 says"),
        (lambda f: (f / "checksums.sha256").unlink(), r"checksums\.sha256: missing"),
        (lambda f: (f / "checksums.sha256").write_text("ab  plan.json\n"), r"does not list train_c/source/000000\.png"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: Change, problem: str) -> None:
    folder = fake_folder(tmp_path / "set", pairs=(2, 0, 2))
    change(folder)
    problems = verify_folder(folder).problems
    assert any(re.search(problem, line) for line in problems), problems


def _edit_record(folder: Path, identity: str, edit: Callable[[dict], object]) -> None:
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        (text,) = db.execute("SELECT record FROM items WHERE id = ?", (identity,)).fetchone()
        record = json.loads(text)
        edit(record)
        db.execute("UPDATE items SET record = ? WHERE id = ?", (json.dumps(record), identity))
    db.close()


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda r: r.update(lens="test <lens> & 1"), "the lens test <lens> & 1 is in several splits: test, train"),
        (lambda r: r.update(source="test-scene-0"), "the image test-scene-0 is in several splits"),
        (lambda r: r.update(patch_px=64), "the blurred picture has 48×48 pixels; expected 64×64"),
        (lambda r: r["files"].pop("sharp"), r"train-000003: its record is damaged: files\.sharp: "),
        (lambda r: r["files"]["sharp"].pop("bytes"), r"train-000003: its record is damaged: files\.sharp\.bytes: "),
        (lambda r: r.update(focus_m=math.nan), "train-000003: its record is damaged: focus_m: "),
        (lambda r: r.pop("lens"), "train-000003: its record is damaged: lens: "),
        (lambda r: r.update(psf=[1]), "train-000003: its record is damaged: psf: "),
        (
            lambda r: r["files"]["sharp"].update(path="a\0"),
            r"train-000003: its record is damaged: files\.sharp\.path: ",
        ),
    ],
)
def test_records_that_contradict_are_named(tmp_path: Path, edit: Callable[[dict], object], problem: str) -> None:
    folder = fake_folder(tmp_path / "set", pairs=(2, 0, 8))
    _edit_record(folder, "train-000003", edit)
    problems = verify_folder(folder).problems
    assert any(re.search(problem, line) for line in problems), problems


def test_a_ledger_with_text_that_is_none(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 in any column, and pictures of no role, are refused with the file's name."""
    folder = fake_folder(tmp_path / "set", pairs=(2, 0, 0))
    _edit_record(folder, "train-000003", lambda r: r["files"].update(x=r["files"].pop("blurred")))
    with pytest.raises(DatasetError, match=r"set: the record of 'train-000003' is damaged: pictures \['sharp', 'x'\]"):
        find_pairs(folder, "train")
    for column in ("status", "record"):
        folder = fake_folder(tmp_path / column, pairs=(2, 0, 0))
        with sqlite3.connect(folder / "ledger.sqlite") as db:
            change = f"UPDATE items SET {column} = CAST(x'22{'c3a9' * 40}ac' AS TEXT) WHERE id = 'train-000003'"
            db.execute(change)
        db.close()
        with pytest.raises(DatasetError, match=r"ledger\.sqlite: the ledger (is damaged|cannot be read)"):
            verify_folder(folder)


def test_bits_that_were_not_promised_and_pairs_that_lack(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", pairs=(2, 0, 0))
    with sqlite3.connect(folder / "ledger.sqlite") as db:
        plan = json.loads(db.execute("SELECT value FROM facts WHERE key = 'plan'").fetchone()[0])
        plan["output"]["bits"], plan["train"]["pairs"] = 16, 5
        db.execute("UPDATE facts SET value = ? WHERE key = 'plan'", (json.dumps(plan),))
    db.close()
    problems = verify_folder(folder).problems
    assert "train: 2 of the 5 planned pairs" in problems
    assert "train_c/source/000000.png: a PNG of 8 bits; the plan promises 16" in problems


def test_a_plan_or_record_without_what_is_needed_is_refused(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", pairs=(2, 0, 0))
    (folder / "ledger.sqlite").unlink()
    plan = json.loads((folder / "plan.json").read_text())
    del plan["plan"]["output"]
    (folder / "plan.json").write_text(json.dumps(plan))
    for refused in (verify_folder, write_report):
        with pytest.raises(DatasetError, match="plan"):
            refused(folder)


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", "webdataset")
    shard = folder / "train/shard-000001.tar"
    _damage(shard)
    assert verify_folder(folder).problems[0] == "train/shard-000001.tar: not what checksums.sha256 says"
    shard.write_bytes(shard.read_bytes()[:700])
    assert "train/shard-000001.tar: 700 bytes; expected 30,720" in verify_folder(folder).problems
    shard.unlink()
    assert verify_folder(folder).problems == ["train/shard-000001.tar: missing"]


def test_without_its_ledger_the_lines_of_json_count(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", "pairs")
    (folder / "ledger.sqlite").unlink()
    assert verify_folder(folder).problems == []
    (folder / "ledger.sqlite").write_bytes(b"no database, but long enough to be taken for one" * 40)
    with pytest.raises(DatasetError, match="ledger"):
        verify_folder(folder)


# --- folders that others made ---


def _foreign(folder: Path, blurred: str, sharp: str, names: list[tuple[str, str]]) -> Path:
    rng = np.random.default_rng(4)
    for a, b in names:
        picture = texture(rng)
        for path, values in ((f"{blurred}/{a}", gaussian_filter(picture, (3, 3, 0))), (f"{sharp}/{b}", picture)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(png_bytes(quantise(values, 8)))
    return folder


@pytest.mark.parametrize(
    ("blurred", "sharp", "names"),
    [
        ("train_c/source", "train_c/target", [("1P0A0917.png", "1P0A0916.png"), ("1P0A0919.png", "1P0A0918.png")]),
        ("input", "target", [("a.png", "a.png"), ("b.png", "b.png")]),
        ("val/input", "val/target", [("a.png", "a.png"), ("b.png", "b.png")]),
    ],
)
def test_foreign_folders_are_sound(tmp_path: Path, blurred: str, sharp: str, names: list[tuple[str, str]]) -> None:
    verdict = verify_folder(_foreign(tmp_path, blurred, sharp, names))
    assert verdict.problems == []
    assert verdict.counts == {"pairs": 2, "folders": 1, "pictures decoded": 4}


def test_what_is_wrong_with_a_foreign_folder_is_named(tmp_path: Path) -> None:
    names = [(f"{n}.png", f"{n}.png") for n in range(6)]
    folder = _foreign(tmp_path, "train_c/source", "train_c/target", names)
    (folder / "train_c/target/0.png").unlink()
    (folder / "train_c/source/1.png").unlink()
    (folder / "train_c/source/2.png").write_bytes(_png(40))
    blurred, sharp = folder / "train_c/source/3.png", folder / "train_c/target/3.png"
    swapped = blurred.read_bytes(), sharp.read_bytes()
    blurred.write_bytes(swapped[1])
    sharp.write_bytes(swapped[0])
    (folder / "train_c/target/4.png").write_bytes(b"no picture")
    (folder / "train_c/source/5.png").write_bytes((folder / "train_c/target/5.png").read_bytes())
    (folder / "test_c/target").mkdir(parents=True)
    (folder / "test_c/target/0.png").write_bytes(_png(48))
    problems = verify_folder(folder).problems
    expected = (
        r"source/0\.png: no sharp picture",
        r"target/1\.png: no blurred picture",
        "test_c/target: there is no folder with its blurred",
        r"source/2\.png: 40×40 pixels, but train_c/target/2\.png has 48×48",
        r"source/3\.png: \d\.\d\d times the fine contrast .* exchanged",
        r"target/4\.png: cannot be decoded",
        r"source/5\.png: the same picture",
    )
    assert len(problems) == len(expected), problems
    for pattern, line in zip(expected, problems, strict=True):
        assert re.search(pattern, line), (pattern, line)
    assert len(verify_folder(folder, pictures=False).problems) == 3


def test_folders_without_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no pairs here"):
        verify_folder(tmp_path)
    with pytest.raises(DatasetError, match="there is no such folder"):
        verify_folder(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="no data set made by"):
        write_report(tmp_path)


# --- the report ---


@pytest.mark.parametrize(("layout", "bits"), [("dpdd", 16), ("pairs", 8), ("webdataset", 8)])
def test_the_report_shows_pairs_and_numbers(tmp_path: Path, layout: str, bits: int) -> None:
    folder = fake_folder(tmp_path / "set", layout, bits)
    out = write_report(folder)
    assert out == folder / "report.html"
    text = out.read_text(encoding="utf-8")
    pictures = [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), float)
        for data in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', text)
    ]
    assert [picture.shape for picture in pictures] == [(48, 48, 3)] * 20
    blurred, sharp = (np.abs(np.diff(picture, axis=0)).mean() for picture in pictures[:2])
    assert blurred < sharp, "blurred comes first"
    assert text.count("<svg") == 6
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(""", text)
    assert "<lens>" not in text
    assert "<pairs>" not in text
    words = html.unescape(text)
    for part in ("Fake <pairs>", "train <lens> & ", "no lens keeps n px within the kernel", "2 pairs/s", "stopped"):
        assert part in words
    assert "blur 6.25 s" in words
    assert "train.pairs: 40000 -> 6" in words
    assert write_report(folder, tmp_path / "again.html").read_text(encoding="utf-8") == text
    assert write_report(folder) == out, "the page that was written here is replaced"
    out.write_text("my own page")
    with pytest.raises(OwnershipError, match="is not the page that was written here"):
        write_report(folder)
    assert out.read_text() == "my own page"


def test_reasons_that_differ_in_numbers_are_one() -> None:
    reasons = [
        ("the blur of 12.5 px exceeds 32 px", 3),
        ("the blur of 1e-3 px exceeds 32 px", 2),
        ("lens phone-26mm-f18: no light", 4),
        ("lens phone-28mm-f18: no light", 1),
        ("", 1),
    ]
    assert merged_reasons(reasons) == [
        ("the blur of n px exceeds n px", 5, reasons[0][0]),
        ("lens phone-26mm-f18: no light", 4, reasons[2][0]),
        ("lens phone-28mm-f18: no light", 1, reasons[3][0]),
        ("no reason given", 1, ""),
    ]


def test_the_sheet_shows_every_split() -> None:
    ids = {s: range(count) for s, count in (("train", 40_000), ("validation", 1000), ("test", 3))}
    sheet = sheet_ids(ids)
    assert len(sheet) == len(set(sheet)) == 64
    assert sum(c.startswith("validation") for c in sheet) == 8
    assert sum(c.startswith("test") for c in sheet) == 3
    assert sheet_ids({"train": range(5)}) == [f"train-{n:06d}" for n in range(5)]


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "set", pairs=(1, 0, 0))
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="a file stands where a folder is needed"):
        write_report(folder, tmp_path / "file" / "report.html")
    assert open_store(folder).listing()


# --- the sample figure ---


def test_the_sample_figure_is_the_same_every_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    sharp = [quantise(texture(rng), bits) for bits in (8, 16, 8, 8, 8)]
    pairs = [(s, s, f"pair {n} at $2 m") for n, s in enumerate(sharp)]
    for name in ("a.png", "b.png"):
        save(draw_samples(pairs), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as figure:
        assert not {"Creation Time", "date", "Software"} & set(figure.info)
        wide, high = figure.size
    assert wide > 900
    assert high > 600
    with pytest.raises(DefocusError, match="no pairs to draw"):
        draw_samples([])
