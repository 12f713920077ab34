"""The road of docs/reproducing.md from DPDD's RAW files to table 1: its own commands, on files of a few pixels."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")

from defocus.cli import run
from defocus.scene.depth_maps import complete_depth
from defocus.scene.depth_models import DepthEstimate
from defocus.synth.plan import SPLITS, load_plan

from ..dng import write_dng

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reproducing.md"
ROWS, COLS = 80, 120
SCENES = {"train": 4, "val": 1, "test": 2}
# What `init --paper` writes, made small. All else is the paper's: its PSFs, samples, compositing, noise and selection.
SMALL_PLAN = {
    "lenses": {"only": ["leica-summicron-50-f2", "canon-rf-50-f1.2", "*-planar-50*"]},
    "train": {"pairs": 2},
    "validation": {"pairs": 1},
    "test": {"pairs": 2},
    "patch": {"size": 64, "kernel": 32, "photograph": [COLS, ROWS]},
    "limits": {"coc_px": 8.0},  # a quarter of the kernel, as in the paper
    "sensor": {"circle_px": 2019.0},  # the paper's pixels, of which a small photograph has fewer
}
SMALL_TRAINING = (
    "steps=2", "crop=32", "batch=1", "data.workers=0", "validation.every=1", "validation.images=1",
    "model.overrides={width=4,kernels=3}",
)  # fmt: skip


def command(beginning: str) -> list[str]:
    """Words of the one command of the page that begins so, without its remark."""
    text = PAGE.read_text()
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).splitlines()
    commands = {line for line in [*blocks, *re.findall(r"`(defocus [^`]+)`", text)] if line.startswith(beginning + " ")}
    (line,) = commands
    program, *words = shlex.split(line, comments=True)
    assert program == "defocus"
    return words


def dpdd(root: Path) -> None:
    """DPDD as the page wants it: pictures with names of their own in source and target, and the sharp RAW files."""
    rng = np.random.default_rng(0)
    number = 0
    for split, count in SCENES.items():
        for _ in range(count):
            sharp = gaussian_filter(rng.random((ROWS, COLS, 3)), (1, 1, 0))
            sharp = (sharp - sharp.min()) / np.ptp(sharp)
            for side, picture in (("source", gaussian_filter(sharp, (2, 2, 0))), ("target", sharp)):
                number += 1
                file = root / "dpdd" / f"{split}_c" / side / f"1P0A{number:04d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray((picture * 255).astype(np.uint8)).save(file)
            raw = root / "dpdd_raw" / f"{split}_c" / f"{file.stem}.CR2"
            raw.parent.mkdir(parents=True, exist_ok=True)
            mosaic = sharp[..., 1].copy()
            mosaic[0::2, 0::2], mosaic[1::2, 1::2] = sharp[0::2, 0::2, 0], sharp[1::2, 1::2, 2]
            write_dng(raw, 600 + 9000 * mosaic)  # LibRaw goes by what is in a file


class Slant:
    """A wall that runs away to the right, instead of Depth Pro, whose weights a test does not have."""

    def __init__(self, model: str, *, weights: str | None) -> None:
        assert (model, weights) == ("depth-pro", None)

    def estimate(self, srgb: np.ndarray, focal_px: float | None) -> DepthEstimate:
        depth = np.linspace(4.0, 6.0, srgb.shape[1], dtype=np.float32)
        return DepthEstimate(complete_depth(np.tile(depth, (srgb.shape[0], 1))), focal_px, "given", "slant")


def shorten(file: Path) -> None:
    """Set the keys of `SMALL_PLAN`, and where the depth maps lie, in the plan that `init` wrote."""
    text = file.read_text()
    changes = [("sources", "depth", re.search(r'depth = (".*?")', PAGE.read_text())[1])]  # type: ignore[index]
    changes += [(part, key, json.dumps(value)) for part, keys in SMALL_PLAN.items() for key, value in keys.items()]
    for part, key, value in changes:
        head, table, rest = re.split(rf"^(\[+{part}\]+\n)", text, maxsplit=1, flags=re.MULTILINE)
        own, *others = re.split(r"^(?=\[)", rest, maxsplit=1, flags=re.MULTILINE)
        own = re.sub(rf"^{key} = .*\n", "", own, flags=re.MULTILINE)
        text = "".join([head, table, f"{key} = {value}\n", own, *others])
    file.write_text(text)


def test_from_dpdd_to_table_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("defocus.scene.depth_models.DepthNetwork", Slant)
    dpdd(tmp_path / "data")
    for split in SCENES:
        assert run(command(f"defocus depth data/dpdd_raw/{split}_c")) == 0
    init = command("defocus synth init")
    assert run(init) == 0
    file = Path(init[2])
    assert [load_plan(file).split(name).pairs for name in SPLITS] == [40_000, 1_000, 1_000]
    shorten(file)
    assert run(command("defocus synth check")) == 0
    assert "train: 2 pairs of 3 candidates, 4 images," in capsys.readouterr().out
    assert run(command("defocus synth run")) == 0
    records = [json.loads(line) for line in Path("data/cldefocus/pairs.jsonl").read_text().splitlines()]
    assert [record["split"] for record in records] == ["train", "train", "validation", "test", "test"]
    parts = dict(zip(SPLITS, SCENES, strict=True))
    for record in records:
        assert record["source"].startswith(f"{parts[record['split']]}_c/1P0A")
        assert (record["source_kind"], record["psf"]["kind"]) == ("raw", "paper")
        assert record["pixel_um"] == pytest.approx(21.4, rel=0.05)
    changes = [part for change in SMALL_TRAINING for part in ("--set", change)]
    assert run([*command("defocus train nrknet --data data/cldefocus"), *changes]) == 0
    table = [*command("defocus evaluate --paper 1"), "--metrics", "psnr,ssim", "--device", "cpu"]
    out = Path(table[table.index("--out") + 1])
    capsys.readouterr()
    assert run(table) == 2
    assert "2 pairs; DPDD has 76 for testing" in capsys.readouterr().err
    assert run([*table, "--partial"]) == 0
    captured = capsys.readouterr()
    assert "left out: NRKNet (DPDD): no weights" in captured.err
    assert "left out: RTF: no folder" in captured.err
    text = (out / "results.md").read_text()
    assert "Ours / the paper's:" in text
    assert "restored pictures: 2 whole" in text
    for row, number in (("cldefocus", 32.16), ("dpdd", 24.73)):
        ours = json.loads((out / "summary.json").read_text())["tests"][row]["rows"]["nrknet-cldefocus"]
        assert ours["paper"]["psnr"] == number
        assert f"{ours['metrics']['psnr']['mean']:.2f} / {number}" in text
