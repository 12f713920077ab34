"""Contact sheets to look at: photographs with measured depth, three lenses, three focus distances; a RAW file's sweep.

    python benchmarks/contact_sheets.py PHOTOS_FOLDER --out FOLDER [--only NAME ...] [--width 560] [--parts N]
    python benchmarks/contact_sheets.py PHOTOS_FOLDER --out FOLDER --prepare
    python benchmarks/contact_sheets.py --quick                 # one photograph that it makes, one lens

PHOTOS_FOLDER holds NAME.png with NAME.npz (`depth_m`, NaN where unknown) and the RAW file. Each picture is cut to 3 : 2
about its middle and reduced, so that one set of compiled programs serves all. Focus is at the 5th, 50th and 95th
percentile of the depths that were measured; holes take the nearest depth, and the sheet shows them in red. A lens
whose blur no kernel of 256 px holds is stopped down as far as it takes. The RAW file has no depth: its sky is put at
infinity and its building on a ramp from 6 m (left) to 2.5 m (right), which is made up. `--prepare` only writes the cut
pictures to --out, for a machine that has no reader of RAW files: they serve as PHOTOS_FOLDER there.

Writes NAME.png, one row for each lens, NAME.json and a table of it as NAME.md: blur radii, layers, kernels, seconds,
notes, and numbers that a wrong border, seam or colour would show in.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from defocus import Camera
from defocus.errors import DefocusError
from defocus.lens import load_lens
from defocus.photo import SensorColour
from defocus.render.photograph import MOST_KERNEL_PX
from machine import ONE_PSF, SMALL_CAMERA, SMALL_LENS, SMALL_PX, amount, read_arguments, write_report

MADE = "noise"  # the photograph of --quick
PHOTOS = amount(("middlebury_adirondack", "nyu_1", "kitti_1", "sintel_market_2", "slambook_1"), quick=(MADE,))
RAW = "canon_30d_IMG_0848"
LENSES = amount(("canon-rf-85-f1.2", "leica-summilux-35-f1.4", "kodak-aero-ektar-152-f3.5"), quick=(SMALL_LENS,))
SWEEP_LENSES, SWEEP_M = ("canon-rf-85-f1.2", "zeiss-tessar-50-f3.5"), (2.5, 4.0, float("inf"))
CAPTION_PX = 18


@dataclass(frozen=True)
class Sharp:
    """A sharp picture in linear light, cut and reduced, with its depth."""

    linear: np.ndarray
    depth_m: np.ndarray
    filled: np.ndarray
    notes: tuple[str, ...]
    colour: SensorColour | None = None


def cut(size: tuple[int, int]) -> tuple[slice, slice]:
    """The middle of a picture of (width, height) with sides of 3 : 2."""
    width, height = min(size[0], size[1] * 3 // 2), min(size[1], size[0] * 2 // 3)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return slice(top, top + height), slice(left, left + width)


def prepared(folder: Path, name: str, width: int) -> Sharp:
    """Read a picture that was prepared, or prepare it."""
    stored = folder / f"{name}.npz"
    if stored.exists():
        with np.load(stored) as data:
            if "linear" in data:
                colour = None
                if "pattern" in data:
                    colour = SensorColour.make(
                        str(data["pattern"]), tuple(data["white_balance"].tolist()), data["camera_to_srgb"]
                    )
                return Sharp(data["linear"], data["depth_m"], data["filled"], tuple(data["notes"].tolist()), colour)
    from defocus.photo import read_photo, reduced
    from defocus.scene.depth_files import read_depth
    from defocus.scene.depth_maps import DepthMap

    raw = next(folder.glob(f"{name}.[Cc][Rr]2"), None)
    photo = read_photo(raw or folder / f"{name}.png")
    depth = None if raw else read_depth(stored).fitted(photo.size)
    part, size = amount((cut(photo.size), (width, width * 2 // 3)), quick=((slice(None), slice(None)), SMALL_PX))
    linear = reduced(photo.linear()[part], size)
    if depth is None:
        made = made_up_depth(linear)
        nothing = np.zeros(made.shape, bool)
        return Sharp(linear, made, nothing, (*photo.notes, "the depth is made up: none is known"), photo.colour)
    found = DepthMap(depth.depth_m[part], depth.filled[part]).fitted(size, resize=True)
    return Sharp(linear, found.depth_m, found.filled, (*photo.notes, *depth.notes))


def made_up_depth(linear: np.ndarray) -> np.ndarray:
    """Blue sky at infinity, and what is joined to the lower right corner on a ramp in inverse depth."""
    from scipy.ndimage import label

    things, _ = label(linear[..., 2] < 1.6 * linear[..., 0])
    ramp = 1.0 / np.linspace(1.0 / 6.0, 1.0 / 2.5, linear.shape[1])
    return np.where(things == things[-1, -1], np.broadcast_to(ramp, things.shape), np.inf).astype(np.float32)


def camera_for(name: str, focus_m: float, depth_m: np.ndarray) -> Camera:
    """At full aperture, or stopped down as far as the largest kernel asks for."""
    size = (depth_m.shape[1], depth_m.shape[0])
    camera = Camera(load_lens(name), focus_m=focus_m, **amount({"pixels": size}, quick=SMALL_CAMERA))
    widest = float(np.abs(camera.circle_of_confusion_px(depth_m)).max())
    allowed = (MOST_KERNEL_PX - 6.0) / 2.4
    if widest <= allowed:
        return camera
    f_number = float(camera.first_order.f_number) * widest / allowed * 1.02
    return Camera(load_lens(name), focus_m=focus_m, pixels=size, f_number=f_number)


def signs(sharp: np.ndarray, blurred: np.ndarray) -> dict[str, Any]:
    """Numbers in which a dark frame, a colour cast or lost light would show."""
    ring = np.ones(sharp.shape[:2], bool)
    ring[4:-4, 4:-4] = False
    return {
        "finite": bool(np.isfinite(blurred).all()),
        "least": float(blurred.min()),
        "mean_light_ratio": [round(float(v), 4) for v in blurred.mean((0, 1)) / sharp.mean((0, 1))],
        "border_light_ratio": [round(float(v), 4) for v in blurred[ring].mean(0) / sharp[ring].mean(0)],
    }


def captioned(picture: np.ndarray, text: str) -> np.ndarray:
    """Display values 0..1 with a line of text below."""
    shown = Image.fromarray((np.clip(picture, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8))
    framed = Image.new("RGB", (shown.width + 4, shown.height + CAPTION_PX + 4), "white")
    framed.paste(shown, (2, 0))
    ImageDraw.Draw(framed).text((4, shown.height + 2), text, "black", ImageFont.load_default(CAPTION_PX - 5))
    return np.asarray(framed)


def depth_picture(sharp: Sharp) -> np.ndarray:
    """Inverse depth from far (black) to near (white); filled holes in red."""
    inverse = 1.0 / sharp.depth_m
    grey = (inverse - inverse.min()) / max(float(np.ptp(inverse)), 1e-9)
    return np.where(sharp.filled[..., None], grey[..., None] * np.array([1.0, 0.25, 0.25]), grey[..., None])


def sheet(out: Path, name: str, sharp: Sharp, lenses: tuple[str, ...], distances: list[float], parts: int) -> None:
    """All lenses and distances of one photograph."""
    rows: list[list[np.ndarray]] = []
    told: list[dict[str, Any]] = []
    extra: dict[str, Any] = amount({} if parts == 0 else {"parts": parts}, quick=ONE_PSF)
    for lens in lenses:
        rows.append([])
        for focus in distances:
            start = time.perf_counter()
            camera = camera_for(lens, focus, sharp.depth_m)
            try:
                made = camera.photograph(
                    sharp.linear, sharp.depth_m, colour=sharp.colour, sensor=sharp.colour is not None, **extra
                )
            except DefocusError as error:
                print(name, lens, focus, error, flush=True)
                told.append({"lens": lens, "focus_m": str(focus), "error": str(error)})
                rows[-1].append(captioned(np.zeros_like(sharp.linear), str(error)[:80]))
                continue
            report = made.report
            low, high = report["coc_px"]
            text = f"{lens} f/{report['f_number']:.2g}  focus {focus:.3g} m  blur {low:.0f} … {high:.0f} px"
            rows[-1].append(captioned(made.blurred.srgb, text))
            kept = {key: report[key] for key in ("f_number", "coc_px", "layers", "kernel_px", "psfs_computed", "notes")}
            told.append(
                {"lens": lens, "focus_m": str(focus), **kept, **signs(sharp.linear, made.blurred.linear)}
                | {"seconds": round(time.perf_counter() - start, 1), "refused": len(report["psfs_refused"])}
            )
            print(name, text, told[-1]["seconds"], "s", report["seconds"], flush=True)
        first = [captioned(made.sharp.srgb, f"{name}, sharp"), captioned(depth_picture(sharp), "inverse depth")]
        first.append(np.full_like(first[0], 255))
        Image.fromarray(np.concatenate([np.concatenate(row, 1) for row in [first, *rows]])).save(out / f"{name}.png")
        written = {"photo": name, "notes": sharp.notes, "filled": float(sharp.filled.mean()), "pictures": told}
        write_report(out, name, written, table(name, told))


def table(name: str, told: list[dict[str, Any]]) -> str:
    """The numbers of a sheet in Markdown."""
    columns = list(dict.fromkeys(key for row in told for key in row))
    lines = [f"# {name}", "", f"| {' | '.join(columns)} |", "| --- |" + " --- |" * (len(columns) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(str(row.get(c, '')) for c in columns)} |" for row in told)]) + "\n"


def store(path: Path, sharp: Sharp) -> None:
    """A prepared picture."""
    held = {"linear": sharp.linear, "depth_m": sharp.depth_m, "filled": sharp.filled, "notes": np.array(sharp.notes)}
    if sharp.colour is not None:
        held["pattern"] = np.array(sharp.colour.pattern)
        held["white_balance"] = np.asarray(sharp.colour.white_balance)
        held["camera_to_srgb"] = np.asarray(sharp.colour.camera_to_srgb)
    np.savez(path, **held)


def make_photograph(folder: Path) -> Path:
    """A folder with the photograph of --quick."""
    width, height = SMALL_PX
    Image.effect_noise(SMALL_PX, 64.0).convert("RGB").save(folder / f"{MADE}.png")
    np.savez(folder / f"{MADE}.npz", depth_m=np.where(np.arange(width) < 32, 2.0, 4.0) * np.ones((height, 1)))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path, nargs="?")
    parser.add_argument("--only", nargs="+", default=amount([*PHOTOS, RAW], quick=[MADE]))
    parser.add_argument("--width", type=int, default=560)
    parser.add_argument("--parts", type=int, default=0, help="0: the default of Camera.photograph")
    parser.add_argument("--prepare", action="store_true")
    options = read_arguments(parser)
    if options.quick and options.photos is None:
        options.photos = make_photograph(Path(tempfile.mkdtemp()))
    elif options.photos is None:
        parser.error("PHOTOS_FOLDER is missing")
    for name in options.only:
        sharp = prepared(options.photos, name, options.width)
        if options.prepare:
            store(options.out / f"{name}.npz", sharp)
        elif name == RAW:
            sheet(options.out, name, sharp, SWEEP_LENSES, list(SWEEP_M), options.parts)
        else:
            measured = sharp.depth_m[~sharp.filled]
            distances = [float(f"{d:.3g}") for d in np.percentile(measured, [5, 50, 95])]
            sheet(options.out, name, sharp, LENSES, distances, options.parts)


if __name__ == "__main__":
    main()
