"""`defocus develop`: a photograph through the camera's image pipeline alone, without any blur."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import DefocusError

if TYPE_CHECKING:
    from ..photo import Noise, Photo, RawPhoto

PhotoArgument = Annotated[Path, typer.Argument(help="A RAW file, or a PNG, JPEG or TIFF in sRGB.", show_default=False)]


def develop(
    photo: PhotoArgument,
    out: Annotated[
        Path, typer.Option(help="The picture: .png, .jpg or .tif; or linear light: .npy or .npz.", show_default=False)
    ],
    bits: Annotated[int | None, typer.Option(help="8 or 16 bits per colour of a PNG or TIFF. [default: 8]")] = None,
    white_balance: Annotated[
        str, typer.Option(help="as-shot, daylight, grey, or three gains for red, green and blue: 2.1,1,1.5")
    ] = "as-shot",
    exposure_ev: Annotated[float, typer.Option(help="Brighter by this many stops.", min=-20, max=20)] = 0.0,
    response: Annotated[
        str, typer.Option(help="srgb, linear, gamma:2.2, contrast:1.3, or a file of two columns.")
    ] = "srgb",
    noise: Annotated[
        str, typer.Option(help="none; paper: drawn as in the paper; SHOT,READ: variance is SHOT·signal + READ.")
    ] = "none",
    seed: Annotated[int, typer.Option(help="Seed of the noise.", min=0)] = 0,
    demosaic: Annotated[str, typer.Option(help="directional or malvar.")] = "directional",
    orientation: Annotated[
        int | None, typer.Option(help="1 (as stored) to 8, as EXIF counts; by default the file's own.", min=1, max=8)
    ] = None,
    mosaic: Annotated[
        str | None,
        typer.Option(help="The file is a bare mosaic of 16-bit numbers: WIDTH,HEIGHT,PATTERN,BLACK,WHITE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, with the noise it found.")] = False,
) -> None:
    """Develop a photograph: from the RAW file to a picture, or to linear light."""
    import jax
    import numpy as np

    from ..photo import (
        METHODS,
        RawPhoto,
        add_noise,
        check_picture_path,
        encode,
        parse_response,
        read_photo,
        write_linear,
        write_picture,
    )

    check_picture_path(out, bits=bits or 8)
    is_linear = out.suffix.lower() in (".npy", ".npz")
    if demosaic not in METHODS:
        raise DefocusError(f"--demosaic {demosaic}; known are {', '.join(METHODS)}")
    if is_linear and (response != "srgb" or bits is not None):
        raise DefocusError(f"{out}: linear light has no --response and no --bits; write a PNG, JPEG or TIFF for them")
    curve = parse_response(response)
    read = _bare(photo, mosaic) if mosaic else read_photo(photo, orientation=orientation)
    if mosaic and orientation is not None:
        raise DefocusError("--orientation: a bare mosaic is taken as stored")
    given = _gains(white_balance)
    if isinstance(read, RawPhoto):
        read = read.balanced(given)
    elif given != "as-shot":
        raise DefocusError(f"{photo}: --white-balance needs a mosaic, and this file has none")
    added = _noise(noise, seed, read)
    report = _report(read, added)
    if as_json:
        report["noise_estimate"] = _own_noise(read)
    if added is not None and isinstance(read, RawPhoto):
        noisy = add_noise(jax.random.fold_in(jax.random.key(seed), 1), read.mosaic, added)
        read = replace(read, mosaic=np.minimum(np.asarray(noisy), 1.0))
    linear = read.linear(demosaic) * np.float32(2.0**exposure_ev)
    if is_linear:
        write_linear(out, linear, **({"report": json.dumps(report)} if out.suffix.lower() == ".npz" else {}))
    else:
        write_picture(out, np.asarray(encode(linear, curve)), bits=bits or 8)
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    for line in _lines(report):
        typer.echo(line)
    typer.echo(f"wrote {out}")


def _gains(text: str) -> str | tuple[float, float, float]:
    if "," not in text:
        return text
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError as error:
        raise DefocusError(f"--white-balance {text}: expected a name or three numbers such as 2.1,1,1.5") from error
    return red, green, blue


def _bare(path: Path, text: str) -> RawPhoto:
    from ..photo import read_bare_mosaic

    try:
        width, height, pattern, black, white = text.split(",")
        numbers = int(width), int(height), pattern.strip(), float(black), float(white)
    except ValueError as error:
        raise DefocusError(f"--mosaic {text}: expected WIDTH,HEIGHT,PATTERN,BLACK,WHITE") from error
    return read_bare_mosaic(path, *numbers)


def _noise(text: str, seed: int, photo: Photo) -> Noise | None:
    import jax

    from ..photo import Noise, RawPhoto, draw_noise

    if text == "none":
        return None
    if not isinstance(photo, RawPhoto):
        raise DefocusError(f"{photo.file}: --noise is the sensor's; this file has no mosaic to add it to")
    if text == "paper":
        return draw_noise(jax.random.fold_in(jax.random.key(seed), 0))
    try:
        shot, read = (float(part) for part in text.split(","))
    except ValueError as error:
        raise DefocusError(f"--noise {text}: expected none, paper, or two numbers such as 1e-5,1e-5") from error
    return Noise.make(shot, read)


def _report(photo: Photo, noise: Noise | None) -> dict[str, Any]:
    colour = photo.colour
    return {
        "photo": str(photo.file),
        "kind": "sRGB" if colour is None else "RAW" if hasattr(photo, "mosaic") else "RAW, demosaiced",
        "size": list(photo.size),
        "pattern": getattr(photo, "pattern", None),
        "black": list(getattr(photo, "black", ())) or None,
        "white": list(getattr(photo, "white", ())) or None,
        "white_balance": None if colour is None else [round(float(g), 5) for g in colour.white_balance],
        "camera_to_srgb": None if colour is None else [[round(float(v), 5) for v in r] for r in colour.camera_to_srgb],
        "noise_added": None if noise is None else [float(noise.shot), float(noise.read_variance)],
        "exif": asdict(photo.exif),
        "notes": list(photo.notes),
    }


def _own_noise(photo: Photo) -> list[float] | str | None:
    """The noise that the photograph brought with it, or why it cannot be told; None without a mosaic."""
    from ..photo import RawPhoto, estimate_noise

    if not isinstance(photo, RawPhoto):
        return None
    try:
        found = estimate_noise(photo.mosaic)
    except DefocusError as error:
        return str(error)
    return [float(found.shot), float(found.read_variance)]


def _lines(report: dict[str, Any]) -> list[str]:
    exif = {name: value for name, value in report["exif"].items() if value is not None}
    shown = {
        "photo": report["photo"],
        "kind": report["kind"] + (f", {report['pattern']}" if report["pattern"] else ""),
        "size": "×".join(map(str, report["size"])),
        "white balance": " ".join(f"{g:.3f}" for g in report["white_balance"] or ()),
        "noise added": " ".join(f"{n:.3g}" for n in report["noise_added"] or ()),
        "exif": ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in exif.items()),
    }
    lines = [f"{name:<16}{value}" for name, value in shown.items() if value]
    return lines + [f"{'note':<16}{note}" for note in report["notes"]]


__all__ = ["PhotoArgument", "develop"]
