"""Judge networks on real multi-focus photographs: where one picture of a scene is blurred, another is sharp.

    python benchmarks/real_pairs.py PHOTOS [--out FOLDER] [--weights NAME=FILE ...] [--device cuda] [--pictures]
    python benchmarks/real_pairs.py --quick           # a scene of two pictures and a network that it makes

PHOTOS holds folders of pictures whose names differ in their last number alone (c_01_1.png, c_01_2.png; pcb_001.jpg, …):
those are one scene, focused differently. `defocus/evaluate/multi_focus.py` says what is taken for the truth, and where
it counts. PSNR and SSIM there, of the picture itself (input), of an unsharp mask, and of what each network makes of the
whole picture. "both sharp" is the PSNR of the same pictures where both are equally sharp: what noise and registration
leave, and so the most that a restoration could reach.

`defocus evaluate` judges networks on the same photographs (kind = "multi_focus"), with intervals and figures, as they
are saved; here pictures are measured as the network makes them, beside an unsharp mask.

Writes real_pairs.json and .md; with --pictures a strip of each picture: input, restorations, truth where it counts.
Needs torch, numpy, scipy, Pillow, and src/ with its pydantic and jaxtyping on the path.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

from defocus.evaluate.measures import make_measure
from defocus.evaluate.multi_focus import MultiFocusTruth
from defocus.evaluate.test_sets import TestImage, open_test_set
from defocus.restore.models import build_model
from defocus.restore.models.checkpoints import load_model, save_weights
from defocus.restore.tiles import deblur
from machine import machine, read_arguments, write_report

Restorer = Callable[[np.ndarray], np.ndarray]


def unsharp(image: np.ndarray) -> np.ndarray:
    """Twice the detail below 2 pixels."""
    return image + (image - ndimage.gaussian_filter(image, (2.0, 2.0, 0.0)))


def network(file: Path, device: str, tile_px: int) -> Restorer:
    model = load_model(file).to(device)
    return lambda image: deblur(model, image, tile_px=tile_px, device=device)


def judged(picture: TestImage, restorers: dict[str, Restorer], out: Path | None) -> dict:
    """The measures of a picture and of its restorations; `out`: where a strip of them goes."""
    truth, mask, image = picture.truth, picture.mask, picture.input.read()
    assert isinstance(truth, MultiFocusTruth)
    values, fit = truth.read(), truth.fit
    results = {name: np.clip(restore(image), 0.0, 1.0) for name, restore in restorers.items()}
    folder = Path(picture.input.place).parent.name
    row = {"picture": f"{folder}/{picture.id}", "pixels": fit.pixels, "share": truth.share}
    row |= {"moved_px": truth.moved_px, "gain": fit.gains}
    if fit.both_sharp_db is not None:
        row["both_sharp_psnr"] = fit.both_sharp_db
    for metric in ("psnr", "ssim"):
        measure = make_measure(metric)
        row[metric] = {name: measure(one, values, mask) for name, one in results.items()}
    if out is not None:  # the truth is grey where it does not count
        strip = np.concatenate([*results.values(), np.where(mask[..., None], values, 0.5 * values + 0.25)], 1)
        Image.fromarray((strip * 255.0 + 0.5).astype(np.uint8)).save(out / f"{folder}-{picture.id}.jpg", quality=92)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="?", type=Path)
    parser.add_argument("--weights", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tile", type=int, default=2048, help="side of the tiles in pixels; larger pictures are cut")
    parser.add_argument("--pictures", action="store_true")
    arguments = read_arguments(parser)
    if arguments.quick and arguments.photos is None:
        arguments.photos, arguments.pictures = arguments.out / "photos", True
        arguments.weights = [f"network={make_inputs(arguments.photos)}"]
    elif arguments.photos is None:
        parser.error("PHOTOS is missing")
    restorers: dict[str, Restorer] = {"input": lambda image: image, "unsharp mask": unsharp}
    for text in arguments.weights:
        name, _, file = text.rpartition("=")
        restorers[name or Path(file).stem] = network(Path(file), arguments.device, arguments.tile)
    photos = open_test_set("multi_focus", arguments.photos)
    rows = []
    for picture in photos.images:
        row = judged(picture, restorers, arguments.out if arguments.pictures else None)
        rows.append(row)
        print(row["picture"], {name: round(value, 2) for name, value in row["psnr"].items()}, flush=True)
    about = machine(("torch", "numpy")) | {"device": arguments.device}
    if arguments.device.startswith("cuda"):
        about["gpu"] = torch.cuda.get_device_name()
    report = {"machine": about, "pictures": rows, "notes": photos.notes}
    write_report(arguments.out, "real_pairs", report, markdown(report, list(restorers)))


def make_inputs(folder: Path) -> Path:
    """Two pictures of one scene, each blurred in one half, and the file of a network of random weights."""
    folder.mkdir(parents=True)
    sharp = np.random.default_rng(0).random((96, 192, 3), np.float32)
    soft = ndimage.gaussian_filter(sharp, (1.5, 1.5, 0))
    left = np.arange(192)[None, :, None] < 96
    for number, picture in enumerate((np.where(left, sharp, soft), np.where(left, soft, sharp))):
        Image.fromarray((255 * picture).astype(np.uint8)).save(folder / f"scene_{number}.png")
    model = build_model("nafnet", "small", width=4, encoder_blocks=(1,), decoder_blocks=(1,))
    save_weights(folder / "network.pt", "nafnet", model.options.model_dump(), model.state_dict())
    return folder / "network.pt"


def markdown(report: dict, names: list[str]) -> str:
    """Means over the pictures of each folder, then every picture."""
    rows = report["pictures"]
    folders = sorted({row["picture"].partition("/")[0] for row in rows})
    lines = [
        "# Real pictures of one scene, focused differently",
        "",
        "`benchmarks/real_pairs.py`: PSNR in dB and SSIM where another picture of the scene is sharp; see its head.",
        "",
        *(f"- {note}" for note in report["notes"]),
        "",
        f"On {report['machine'].get('gpu', report['machine']['cpu'])}, torch {report['machine']['torch']}.",
        "",
        "| pictures | " + " | ".join(names) + " | both sharp |",
        "| --- |" + " ---: |" * (len(names) + 1),
    ]
    for folder in folders:
        part = [row for row in rows if row["picture"].startswith(f"{folder}/")]
        lines.append(_line(f"{folder}: mean of {len(part)}", part, names))
    lines += [_line(row["picture"], [row], names) for row in rows]
    return "\n".join(lines) + "\n"


def _line(title: str, rows: list[dict], names: list[str]) -> str:
    def mean(values: list[float]) -> float:
        return float(np.mean(values)) if values else math.nan

    cells = [
        f"{mean([r['psnr'][name] for r in rows]):.2f} / {mean([r['ssim'][name] for r in rows]):.4f}" for name in names
    ]
    ceiling = mean([row["both_sharp_psnr"] for row in rows if "both_sharp_psnr" in row])
    return f"| {title} | " + " | ".join(cells) + f" | {'' if math.isnan(ceiling) else f'{ceiling:.2f}'} |"


if __name__ == "__main__":
    main()
