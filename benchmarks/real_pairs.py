"""Judge networks on real multi-focus photographs: where one picture of a scene is blurred, another is sharp.

    python benchmarks/real_pairs.py PHOTOS [--out FOLDER] [--weights NAME=FILE ...] [--device cuda] [--pictures]
    python benchmarks/real_pairs.py --quick           # a scene of two pictures and a network that it makes

PHOTOS holds folders of pictures whose names differ in their last number alone (c_01_1.png, c_01_2.png; pcb_001.jpg, …):
those are one scene, focused differently. The one before and the one after a picture are registered on it (shift,
rotation, scale) and matched in light, and at each pixel the one with more fine contrast is taken for the truth. A pixel
counts where the truth has at least twice the fine contrast of the picture (a band of σ 1 to 2 pixels, over a
neighbourhood of σ 8), is textured, and lies 12 pixels from where that is not so: near a depth edge the truth holds the
blurred other side. PSNR and SSIM over these pixels, of the picture itself (input), of an unsharp mask, and of what each
network makes of the whole picture. "both sharp" is the PSNR of the same pictures where both are equally sharp: what
noise and registration leave, and so the most that a restoration could reach.

Writes real_pairs.json and .md; with --pictures a strip of each picture: input, restorations, truth where it counts.
Needs torch, numpy, scipy, Pillow, and src/ with its pydantic and jaxtyping on the path.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy import ndimage

from defocus.evaluate.photometry import cell_means, grey_of, to_linear
from defocus.evaluate.registration import Similarity, register, warped
from defocus.restore.models import build_model
from defocus.restore.models.checkpoints import load_model, save_weights
from defocus.restore.similarity import WINDOW_PX, grey, ssim_map
from defocus.restore.tiles import deblur
from machine import amount, machine, read_arguments, write_report

SUFFIXES = (".png", ".jpg", ".jpeg")
BAND_PX = (1.0, 2.0)  # σ of the Gaussians whose difference is fine contrast
NEIGHBOURHOOD_PX = 8.0
CONTRAST_RATIO = 2.0
EQUAL_RATIO = 1.15  # both sharp
TEXTURE = 0.01  # least fine contrast of the truth, display values
MARGIN_PX = 12
LEAST_PIXELS = amount(2000, quick=200)  # of a picture that counts
LIGHT_PX = 16.0  # σ over which light is compared
LARGE_PX = 1024
MOVED_PX = 0.05  # registrations that move nothing by more leave the truth's pixels as they are

Restorer = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Judgement:
    """A picture with its truth: where it counts, where both are equally sharp, and how far the truth was moved."""

    name: str
    image: np.ndarray
    truth: np.ndarray
    blurred: np.ndarray
    both_sharp: np.ndarray
    moved_px: float
    gain: tuple[float, ...]


def scenes(folder: Path) -> dict[str, list[Path]]:
    """Pictures by scene: what their names are without the last number."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(folder.rglob("*")):
        match = re.fullmatch(r"(.+)_\d+", file.stem)
        if match and file.suffix.lower() in SUFFIXES:
            groups[f"{file.parent.name}/{match[1]}"].append(file)
    return {name: files for name, files in groups.items() if len(files) > 1}


def read(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"), np.float32) / 255.0


def fine_contrast(image: np.ndarray) -> np.ndarray:
    """Root mean square of a band of fine detail over a neighbourhood, display values."""
    luma = grey(image) / 255.0
    band = ndimage.gaussian_filter(luma, BAND_PX[0]) - ndimage.gaussian_filter(luma, BAND_PX[1])
    return np.sqrt(ndimage.gaussian_filter(band**2, NEIGHBOURHOOD_PX))


def registered(image: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, float]:
    """The other picture moved onto this one, and by how many pixels at most in the corners and the middle."""
    factor = 2 if min(image.shape[:2]) >= LARGE_PX else 1  # tells as well
    light = (cell_means(grey_of(to_linear(one))[..., None], factor)[..., 0] for one in (other, image))
    whole = register(*light).similarity.scaled(factor)
    moved = _largest(whole, image.shape)
    return (warped(other, whole) if moved > MOVED_PX else other), moved


def _largest(whole: Similarity, shape: tuple[int, ...]) -> float:
    height, width = shape[:2]
    x, y = (np.array(v, np.float64) for v in ([0, width, 0, width, width / 2], [0, 0, height, height, height / 2]))
    return float(np.hypot(*whole.displacement(x, y, ((width - 1) / 2, (height - 1) / 2))).max())


def judgement(name: str, image: np.ndarray, others: list[np.ndarray]) -> Judgement:
    """A picture with the truth that the other pictures of its scene make."""
    pairs = [registered(image, other) for other in others]
    own = fine_contrast(image)
    contrasts = np.stack([fine_contrast(other) for other, _ in pairs])
    best = contrasts.argmax(0)
    truth = np.take_along_axis(np.stack([other for other, _ in pairs]), best[None, ..., None], 0)[0]
    sharpness = contrasts.max(0)
    blurred = (sharpness > CONTRAST_RATIO * own) & (sharpness > TEXTURE)
    both = (sharpness < EQUAL_RATIO * own) & (own < EQUAL_RATIO * sharpness) & (sharpness > TEXTURE)
    blurred, both = (eroded(mask) for mask in (blurred, both))
    gain = []
    for channel in range(3):  # light of the truth as the input has it, over wide neighbourhoods
        a, b = (ndimage.gaussian_filter(one[..., channel], LIGHT_PX)[blurred] for one in (image, truth))
        gain.append(float((a * b).sum() / (b * b).sum()) if blurred.any() else 1.0)
    truth = np.clip(truth * np.array(gain, np.float32), 0.0, 1.0)
    return Judgement(name, image, truth, blurred, both, max(moved for _, moved in pairs), tuple(gain))


def eroded(mask: np.ndarray) -> np.ndarray:
    """A mask less what lies within the margin of its edge, or of the picture's."""
    distance = ndimage.distance_transform_edt(np.pad(mask, 1))[1:-1, 1:-1]
    return distance > MARGIN_PX


def masked_psnr(image: np.ndarray, truth: np.ndarray, mask: np.ndarray) -> float:
    return -10.0 * math.log10(float(np.square(image[mask].astype(np.float64) - truth[mask]).mean()) + 1e-12)


def masked_ssim(image: np.ndarray, truth: np.ndarray, mask: np.ndarray) -> float:
    inner = slice(WINDOW_PX // 2, -(WINDOW_PX // 2))
    return float(ssim_map(image, truth)[mask[inner, inner]].mean())


def unsharp(image: np.ndarray) -> np.ndarray:
    """Twice the detail below 2 pixels."""
    return image + (image - ndimage.gaussian_filter(image, (2.0, 2.0, 0.0)))


def network(file: Path, device: str, tile_px: int) -> Restorer:
    model = load_model(file).to(device)
    return lambda image: deblur(model, image, tile_px=tile_px, device=device)


def strip(judged: Judgement, results: dict[str, np.ndarray], out: Path) -> None:
    """Input, restorations and truth beside each other; the truth is grey where it does not count."""
    shown = np.where(judged.blurred[..., None], judged.truth, 0.5 * judged.truth + 0.25)
    row = np.concatenate([*results.values(), shown], 1)
    Image.fromarray((np.clip(row, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)).save(out, quality=92)


def judgements(folder: Path) -> Iterator[Judgement]:
    """Every picture of every scene, with its neighbours in the series: farther ones are blurred beyond restoring."""
    for name, files in scenes(folder).items():
        for number, file in enumerate(files):
            others = [read(other) for other in files[max(number - 1, 0) : number + 2] if other != file]
            yield judgement(f"{name.partition('/')[0]}/{file.stem}", read(file), others)


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
    rows, left_out = [], []
    for judged in judgements(arguments.photos):
        if judged.blurred.sum() < LEAST_PIXELS:
            left_out.append(judged.name)
            continue
        results = {name: np.clip(restore(judged.image), 0.0, 1.0) for name, restore in restorers.items()}
        row = {"picture": judged.name, "pixels": int(judged.blurred.sum()), "share": float(judged.blurred.mean())}
        row |= {"moved_px": judged.moved_px, "gain": judged.gain}
        if judged.both_sharp.sum() >= LEAST_PIXELS:
            row["both_sharp_psnr"] = masked_psnr(judged.image, judged.truth, judged.both_sharp)
        row["psnr"] = {name: masked_psnr(image, judged.truth, judged.blurred) for name, image in results.items()}
        row["ssim"] = {name: masked_ssim(image, judged.truth, judged.blurred) for name, image in results.items()}
        rows.append(row)
        print(judged.name, {name: round(value, 2) for name, value in row["psnr"].items()}, flush=True)
        if arguments.pictures:
            strip(judged, results, arguments.out / f"{judged.name.replace('/', '-')}.jpg")
    about = machine(("torch", "numpy")) | {"device": arguments.device}
    if arguments.device.startswith("cuda"):
        about["gpu"] = torch.cuda.get_device_name()
    report = {"machine": about, "pictures": rows, "left_out": left_out}
    write_report(arguments.out, "real_pairs", report, markdown(report, list(restorers)))


def make_inputs(folder: Path) -> Path:
    """Two pictures of one scene, each blurred in one half, and the file of a network of random weights."""
    folder.mkdir(parents=True)
    sharp = np.random.default_rng(0).random((96, 144, 3), np.float32)
    soft = ndimage.gaussian_filter(sharp, (1.5, 1.5, 0))
    left = np.arange(144)[None, :, None] < 72
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
        "`benchmarks/real_pairs.py`: PSNR in dB and SSIM where another picture of the scene is sharp; see its head. "
        f"Left out, too little of them is blurred where another is sharp: {', '.join(report['left_out']) or 'none'}.",
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
