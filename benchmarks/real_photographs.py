"""A sheet of real photographs before and after `defocus deblur`, to look at, with a measure that needs no truth.

    python benchmarks/real_photographs.py PHOTO ... [--weights FILE] [--out FOLDER] [--sheet FILE]
    python benchmarks/real_photographs.py --quick     # a photograph and a network that it makes

Photographs of more than MOST_PX on their longer side are reduced first, as for a page: blur of 16 px is what the
network is for. Of each one the sheet shows the part that changed most, before and after. "Changed" is the RMS change of
the display values in 8-bit steps, over the whole photograph and where that part is; NIQE (less is better) is of the
whole one, where its parameters are to be found (DEFOCUS_NIQE).

Writes real_photographs.json and .md; the sheet only where --sheet says, for it shows other people's photographs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy.ndimage import uniform_filter

from defocus.draw.side_by_side import Panel, draw_comparison
from defocus.errors import DefocusError
from defocus.evaluate.measures import make_measure
from defocus.restore.deblurring import read_for_restoring
from defocus.restore.models import build_model
from defocus.restore.models.checkpoints import load_model
from defocus.restore.shipped import shipped_weights
from defocus.restore.tiles import deblur
from machine import amount, machine, read_arguments, write_report

MOST_PX = amount(1200, quick=120)
PART_PX = amount((300, 200), quick=(60, 40))  # columns and rows
COLUMNS = 6


def reduced(image: np.ndarray) -> np.ndarray:
    """The photograph with at most `MOST_PX` on its longer side."""
    factor = MOST_PX / max(image.shape[:2])
    if factor >= 1.0:
        return image
    size = (round(image.shape[1] * factor), round(image.shape[0] * factor))
    colours = [Image.fromarray(image[..., k]).resize(size, Image.Resampling.LANCZOS) for k in range(3)]
    return np.clip(np.stack(colours, 2), 0.0, 1.0)


def most_changed(change: np.ndarray) -> tuple[slice, slice]:
    """The part of the picture with the largest mean square change."""
    cols, rows = (min(side, own) for side, own in zip(PART_PX, change.shape[1::-1], strict=True))
    mean = uniform_filter(change, (rows, cols), mode="constant")
    inner = mean[rows // 2 : change.shape[0] - (rows - 1) // 2, cols // 2 : change.shape[1] - (cols - 1) // 2]
    top, left = np.unravel_index(inner.argmax(), inner.shape)
    return slice(top, top + rows), slice(left, left + cols)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--sheet", type=Path)
    options = read_arguments(parser)
    if options.quick and not options.photos:
        options.photos = [Path(tempfile.mkdtemp(prefix="quick-")) / "noise.png"]
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (160, 240, 3), np.uint8)).save(options.photos[0])
        network = build_model("nafnet", "small", width=4, encoder_blocks=(1,), decoder_blocks=(1,)).eval()
    else:
        network = load_model(options.weights or shipped_weights())
    try:
        niqe = make_measure("niqe")
    except DefocusError:
        niqe = None
    rows: list[dict[str, Any]] = []
    panels: list[Panel] = []
    for photo in options.photos:
        image = reduced(np.asarray(read_for_restoring(photo)[0], np.float32))
        start = time.perf_counter()
        restored = np.clip(deblur(network, image, tile_px=1024), 0.0, 1.0)
        seconds = time.perf_counter() - start
        change = ((restored - image) ** 2).mean(2)
        part = most_changed(change)
        row = {
            "photograph": photo.name,
            "pixels": [image.shape[1], image.shape[0]],
            "seconds": round(seconds, 2),
            "changed": 255.0 * float(np.sqrt(change.mean())),
            "changed_part": 255.0 * float(np.sqrt(change[part].mean())),
        }
        if niqe is not None and min(image.shape[:2]) >= 192:
            row["niqe"] = [niqe(image, None), niqe(restored, None)]
        rows.append(row)
        print(row, flush=True)
        for name, picture in (("before", image), ("after", restored)):
            shown = np.zeros((PART_PX[1], PART_PX[0], 3), np.float32)
            own = picture[part]
            shown[: own.shape[0], : own.shape[1]] = own
            panels.append(Panel(f"{len(rows)} {name}", photo.name if name == "before" else "", shown))
    if options.sheet is not None:
        draw_comparison(panels, (), "Real photographs, before and after", columns=COLUMNS).savefig(options.sheet)
    write_report(options.out, "real_photographs", {"machine": machine(), "photographs": rows}, markdown(rows))


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Real photographs through the network of `defocus deblur`",
        "",
        f"{len(rows)} photographs, {machine()['cpu']}; change of display values (RMS, of 255) of the whole and of the "
        "part that changed most; NIQE before → after, less is better.",
        "",
        "| | photograph | pixels | changed | in that part | NIQE |",
        "| ---: | --- | --- | ---: | ---: | --- |",
    ]
    for number, row in enumerate(rows, 1):
        niqe = "{:.2f} → {:.2f}".format(*row["niqe"]) if "niqe" in row else ""
        size = "{} × {}".format(*row["pixels"])
        lines.append(
            f"| {number} | {row['photograph']} | {size} | {row['changed']:.1f} | {row['changed_part']:.1f} | {niqe} |"
        )
    both = [row["niqe"] for row in rows if "niqe" in row]
    if both:
        before, after = np.mean(both, axis=0)
        better = sum(a < b for b, a in both)
        lines += ["", f"NIQE, mean of {len(both)}: {before:.2f} → {after:.2f}; {better} became better."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
