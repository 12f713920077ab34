"""`defocus develop`, `depth` and `scene`: photographs without blur, their depth, and procedural scenes."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import DefocusError
from .blur import paper_noise
from .options import (
    BitsOption,
    JsonOption,
    PhotoArgument,
    check_outputs,
    json_text,
    numbers,
    print_files,
    print_result,
    whole_pair,
    write_photo,
)
from .progress import ProgressBar, status_line

if TYPE_CHECKING:
    import numpy as np

    from ..photo import Noise, Photo, RawPhoto
    from ..scene.depth_models import DepthEstimate, DepthNetwork


def develop(
    photo: PhotoArgument,
    out: Annotated[Path, "The picture: .png, .jpg or .tif; or linear light: .npy or .npz."],
    bits: Annotated[int | None, "8 or 16 bits per colour of a PNG or TIFF. [default: 8]"] = None,
    white_balance: Annotated[
        str, "as-shot, daylight, grey, or three gains for red, green and blue: 2.1,1,1.5"
    ] = "as-shot",
    exposure_ev: Annotated[float, typer.Option(help="Brighter by this many stops.", min=-20, max=20)] = 0.0,
    response: Annotated[str, "srgb, linear, gamma:2.2, contrast:1.3, or a file of two columns."] = "srgb",
    noise: Annotated[str, "none; paper: drawn as in the paper; SHOT,READ: variance is SHOT·signal + READ²."] = "none",
    seed: Annotated[int, typer.Option(help="Seed of the noise.", min=0)] = 0,
    demosaic: Annotated[Literal["directional", "malvar"], "How colours are filled in."] = "directional",
    orientation: Annotated[
        int | None, typer.Option(help="1 (as stored) to 8, as EXIF counts; by default the file's own.", min=1, max=8)
    ] = None,
    mosaic: Annotated[
        str | None, "The file is a bare mosaic of 16-bit numbers: WIDTH,HEIGHT,PATTERN,BLACK,WHITE"
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON, with the noise it found.")] = False,
) -> None:
    """Develop a photograph: from the RAW file to a picture, or to linear light."""
    import jax
    import numpy as np

    from ..photo import RawPhoto, add_noise, check_picture_path, copied_metadata, encode, parse_response, read_photo

    check_outputs((out, partial(check_picture_path, bits=bits or 8)), inputs=[photo, response])
    is_linear = out.suffix.lower() in (".npy", ".npz")
    if is_linear and (response != "srgb" or bits is not None):
        raise DefocusError(f"{out}: linear light has no --response and no --bits; write a PNG, JPEG or TIFF for them")
    curve = parse_response(response)
    with status_line("developing"):
        light = _bare(photo, mosaic) if mosaic else read_photo(photo, orientation=orientation)
    if mosaic and orientation is not None:
        raise DefocusError("--orientation: a bare mosaic is taken as stored")
    gains = _gains(white_balance)
    if isinstance(light, RawPhoto):
        light = light.balanced(gains)
    elif gains != "as-shot":
        raise DefocusError(f"{photo}: --white-balance needs a mosaic, and this file has none")
    addition = _noise(noise, seed, light)
    report = _report(light, addition)
    with status_line("developing"):
        if as_json:
            report["noise_estimate"] = _own_noise(light)
        if addition is not None and isinstance(light, RawPhoto):
            noisy = add_noise(jax.random.fold_in(jax.random.key(seed), 1), light.mosaic, addition)
            light = replace(light, mosaic=np.minimum(np.asarray(noisy), 1.0))
        linear = light.linear(demosaic) * np.float32(2.0**exposure_ev)
        if out.suffix.lower() == ".npz":
            from ..photo import write_linear

            write_linear(out, linear, report=json_text(report))
        else:
            metadata = copied_metadata(light, (linear.shape[1], linear.shape[0]))
            if response != "srgb":
                metadata = replace(metadata, profile=None)  # these values are not sRGB's
            write_photo(out, linear, bits or 8, None if is_linear else np.asarray(encode(linear, curve)), metadata)
    exif = {name: value for name, value in report["exif"].items() if value is not None}
    lines = {
        "photo": report["photo"],
        "kind": report["kind"] + (f", {report['pattern']}" if report["pattern"] else ""),
        "size": "×".join(map(str, report["size"])),
        "white balance": " ".join(f"{g:.3f}" for g in report["white_balance"] or ()),
        "noise added": " ".join(f"{n:.3g}" for n in report["noise_added"] or ()),
        "exif": ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in exif.items()),
    }
    print_result(report, out, as_json=as_json, lines=lines)


def _gains(text: str) -> str | tuple[float, float, float]:
    if "," not in text:
        return text
    red, green, blue = numbers("--white-balance", text, "a name or three numbers such as 2.1,1,1.5", 3)
    return red, green, blue


def _bare(path: Path, text: str) -> RawPhoto:
    from ..photo import read_bare_mosaic

    try:
        width, height, pattern, black, white = text.split(",")
        layout = int(width), int(height), pattern.strip(), float(black), float(white)
    except ValueError as error:
        raise DefocusError(f"--mosaic {text}: expected WIDTH,HEIGHT,PATTERN,BLACK,WHITE") from error
    return read_bare_mosaic(path, *layout)


def _noise(text: str, seed: int, photo: Photo) -> Noise | None:
    from ..photo import Noise, RawPhoto

    if text == "none":
        return None
    if not isinstance(photo, RawPhoto):
        raise DefocusError(f"{photo.file}: --noise is the sensor's; this file has no mosaic to add it to")
    if text == "paper":
        return paper_noise(seed)
    return Noise.make(*numbers("--noise", text, "none, paper, or two numbers such as 1e-5,1e-5", 2))


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
        "noise_added": None if noise is None else [float(noise.shot), float(noise.read_deviation)],
        "exif": asdict(photo.exif),
        "notes": list(photo.notes),
    }


def _own_noise(photo: Photo) -> list[float] | str | None:
    """The noise that the photograph brought with it, or why it cannot be measured; None without a mosaic."""
    from ..photo import RawPhoto, estimate_noise

    if not isinstance(photo, RawPhoto):
        return None
    try:
        noise = estimate_noise(photo.mosaic)
    except DefocusError as error:
        return str(error)
    return [float(noise.shot), float(noise.read_deviation)]


def depth(
    photo: Annotated[Path, typer.Argument(help="A RAW file, or a PNG, JPEG or TIFF in sRGB; or a folder of them.")],
    out: Annotated[Path, "The depth map: .npz, .npy, .png, .pfm, .dpt or .exr; of a folder, a folder for .npz files."],
    model: Annotated[str, "depth-pro, depth-anything-indoor or depth-anything-outdoor."] = "depth-pro",
    weights: Annotated[str | None, "A folder with the model, or another name in the cache."] = None,
    focal_px: Annotated[float | None, "Focal length in pixels; by default from EXIF, else the network's guess."] = None,
    scale_m: Annotated[float | None, "Metres of one step of a .png, such as 0.001."] = None,
    plot: Annotated[Path | None, "Also draw photograph and depth side by side: .png, .svg or .pdf."] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the depth of a photograph, or of each of a folder, with a network, in metres.

    Of a folder, depth maps that are there are kept: the same command goes on after a stop.
    """
    if photo.is_dir():
        if plot is not None or as_json or scale_m is not None:
            raise DefocusError("--plot, --json and --scale-m are for one photograph")
        _depth_folder(photo, out, model, weights, focal_px)
        return
    import numpy as np

    from ..photo import SRGB, encode, read_photo
    from ..scene.depth_files import check_depth_path, write_depth
    from ..scene.depth_models import DepthNetwork

    check_outputs((out, partial(check_depth_path, writable=True)), (plot, "figure"), inputs=[photo])
    if out.suffix.lower() == ".png" and scale_m is None:
        raise DefocusError(f"{out}: a PNG holds whole numbers; say with --scale-m how many metres one is")
    with status_line(model):
        light = read_photo(photo)
        linear = light.linear()
        estimate = estimated_depth(light, linear, DepthNetwork(model, weights=weights), focal_px)
    depth_map = estimate.depth
    write_depth(out, depth_map.depth_m, intrinsics=depth_map.intrinsics, scale_m=scale_m)
    origin = "EXIF" if estimate.focal_from == "given" and focal_px is None else estimate.focal_from
    report = {
        "photo": str(photo),
        "model": estimate.model,
        "size": list(depth_map.size),
        "focal_px": estimate.focal_px,
        "focal_from": origin,
        "nearest_m": float(depth_map.depth_m.min()),
        "median_m": float(np.median(depth_map.depth_m)),
        "farthest_m": float(depth_map.depth_m.max()),
        "notes": [*light.notes, *depth_map.notes],
    }
    if plot is not None:
        from ..draw import draw_depth, save

        srgb = np.asarray(encode(linear, SRGB), dtype=np.float32)
        save(draw_depth(srgb, depth_map.depth_m, photo.name, f"{model}, focal length from {origin}"), plot)
    print_result(report, out, plot, as_json=as_json)


def _depth_folder(source: Path, out: Path, model: str, weights: str | None, focal_px: float | None) -> None:
    """Depth maps of all photographs of a folder, by one loaded network; what was made by other means is made anew."""
    from ..files.journal import Journal
    from ..files.ownership import OwnedFolder, file_sum
    from ..photo import read_photo
    from ..restore.deblurring import find_photos
    from ..scene.depth_files import depth_bytes
    from ..scene.depth_models import DepthNetwork, check_model

    check_model(model)
    names = {photo: f"{photo.stem}.npz" for photo in find_photos(source)}
    for photo, name in names.items():
        if twins := [other.name for other in names if other != photo and names[other] == name]:
            raise DefocusError(f"{photo}: and {twins[0]} would both become {name}; move one of them away")
    folder = OwnedFolder(out, "depth folder")
    with folder.locked(), ProgressBar() as bar:
        journal = Journal(folder.path / ".depths.jsonl", "name")
        by = {"model": model, "weights": weights, "focal_px": focal_px}
        about = {photo: {"by": by, "photo": file_sum(photo)} for photo in names}
        missing = [p for p, name in names.items() if not (journal.is_done(name, **about[p]) and folder.owns(name))]
        folder.require(*(names[photo] for photo in missing))
        network = DepthNetwork(model, weights=weights) if missing else None
        failures = []
        for number, photo in enumerate(missing):
            assert network is not None
            bar(f"{photo.name} ({number + 1} of {len(missing)})", number / len(missing))
            try:
                light = read_photo(photo)
                estimate = estimated_depth(light, light.linear(), network, focal_px)
                folder.write(names[photo], depth_bytes(estimate.depth.depth_m, estimate.depth.intrinsics))
            except DefocusError as error:
                failures.append(str(error))
                continue
            journal.write(names[photo], **about[photo])
    for failure in failures:
        typer.echo(f"failed: {failure}", err=True)
    there = len(names) - len(missing)
    typer.echo(f"{len(missing) - len(failures)} of {len(names)} depth maps made, {there} were there already")
    if failures:
        raise typer.Exit(1)


def estimated_depth(
    photo: Photo, linear: np.ndarray, network: DepthNetwork, focal_px: float | None = None
) -> DepthEstimate:
    """A network's depth of a photograph; its focal length from EXIF, where it is not given."""
    import numpy as np

    from ..photo import SRGB, encode
    from ..scene.depth_models import focal_length_px

    exif = photo.exif
    if focal_px is None:
        lengths = {"focal_mm": exif.focal_mm, "focal_35mm": exif.focal_35mm, "pixel_um": exif.pixel_um}
        focal_px = focal_length_px(photo.size, **lengths)
    srgb = np.clip(np.asarray(encode(linear, SRGB), dtype=np.float32), 0.0, 1.0)
    return network.estimate(srgb, focal_px)


def scene(
    name: Annotated[str | None, typer.Argument(help="The scene; without one, all are listed.")] = None,
    out: Annotated[Path | None, "The sharp picture: .png, .jpg or .tif; or linear light: .npy or .npz."] = None,
    depth: Annotated[Path | None, "Its depth map: .npz, .npy, .pfm, .dpt or .exr."] = None,
    blurred: Annotated[Path | None, "Also the picture through a finite aperture, by casting rays: as --out."] = None,
    focus_m: Annotated[float | None, "Focus distance of --blurred; by default on the subject."] = None,
    pupil_radius_mm: Annotated[float | None, "Its entrance pupil; by default the scene's own."] = None,
    points: Annotated[int, typer.Option(help="Points of the pupil that --blurred sums over.", min=1, max=65536)] = 1024,
    size: Annotated[str, "WIDTHxHEIGHT in pixels."] = "960x640",
    seed: Annotated[int, typer.Option(help="Another seed is another scene of the same kind.", min=0)] = 0,
    bits: BitsOption = 8,
) -> None:
    """Make a scene with exact depth, to try things on: a picture, its depth map, and its true blur."""
    from ..photo import check_picture_path
    from ..scene.compositions import COMPOSITIONS
    from ..scene.depth_files import check_depth_path, write_depth
    from ..scene.procedural import make_scene
    from ..scene.raysampled import disc
    from ..scene.thin_lens import ThinLens

    if name is None:
        for kind, composition in COMPOSITIONS.items():
            typer.echo(f"{kind:<10}{composition.about}")
        return
    if blurred is None and (focus_m is not None or pupil_radius_mm is not None):
        raise DefocusError("--focus-m and --pupil-radius-mm are for --blurred; the picture of --out is sharp")
    if out is None and depth is None and blurred is None:
        raise DefocusError("nothing to write: give --out, --depth or --blurred")
    pictures = [(path, partial(check_picture_path, bits=bits)) for path in (out, blurred)]
    check_outputs(*pictures, (depth, partial(check_depth_path, writable=True)))
    if depth is not None and depth.suffix.lower() == ".png":
        raise DefocusError(f"{depth}: a PNG cannot hold infinite depth; write an .npz")
    view = make_scene(name, whole_pair("--size", size, "WIDTHxHEIGHT such as 960x640"), seed)
    if out is not None or depth is not None:
        with status_line("making the scene"):
            sharp = view.picture()
            if out is not None:
                write_photo(out, sharp.linear, bits)
            if depth is not None:
                write_depth(depth, sharp.depth_m, intrinsics=view.view.intrinsics)
    if blurred is not None:
        lens = ThinLens(
            view.lens.pupil_radius_mm if pupil_radius_mm is None else pupil_radius_mm,
            view.lens.focus_m if focus_m is None else focus_m,
        )
        with ProgressBar() as bar:
            light = view.truth(lens, disc(points), lambda done: bar("casting rays", done))
        write_photo(blurred, light, bits)
    typer.echo(
        f"{name}: {view.about}; focal length {view.view.focal_px:.1f} px, {view.focal_length_mm:g} mm on 24×36; "
        f"focus {view.lens.focus_m:g} m"
    )
    print_files(out, depth, blurred)
