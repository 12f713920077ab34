"""`defocus scene`: a procedural scene as a picture with exact depth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DefocusError

if TYPE_CHECKING:
    import numpy as np

    from ..scene.procedural import Scene


def scene(
    name: Annotated[
        str | None, typer.Argument(help="The scene; without one, all are listed.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sharp picture: .png, .jpg or .tif; or linear light: .npy or .npz.")
    ] = None,
    depth: Annotated[Path | None, typer.Option(help="Its depth map: .npz, .npy, .pfm, .dpt or .exr.")] = None,
    blurred: Annotated[
        Path | None, typer.Option(help="Also the picture through a finite aperture, by casting rays: as --out.")
    ] = None,
    focus_m: Annotated[
        float | None, typer.Option(help="Focus distance of --blurred; by default on the subject.")
    ] = None,
    pupil_radius_mm: Annotated[
        float | None, typer.Option(help="Its entrance pupil; by default the scene's own.")
    ] = None,
    points: Annotated[int, typer.Option(help="Points of the pupil that --blurred sums over.", min=1, max=65536)] = 1024,
    size: Annotated[str, typer.Option(help="WIDTHxHEIGHT in pixels.")] = "960x640",
    seed: Annotated[int, typer.Option(help="Another seed is another scene of the same kind.", min=0)] = 0,
    bits: Annotated[int, typer.Option(help="8 or 16 bits per colour of a PNG or TIFF.")] = 8,
) -> None:
    """Make a scene with exact depth, to try things on: a picture, its depth map, and its true blur."""
    from ..scene.compositions import COMPOSITIONS
    from ..scene.depth_files import write_depth
    from ..scene.procedural import make_scene

    if name is None:
        for known, composition in COMPOSITIONS.items():
            typer.echo(f"{known:<10}{composition.about}")
        return
    if blurred is None and (focus_m is not None or pupil_radius_mm is not None):
        raise DefocusError("--focus-m and --pupil-radius-mm are for --blurred; the picture of --out is sharp")
    _check(out, depth, blurred, bits)
    made = make_scene(name, _size(size), seed)
    if out is not None or depth is not None:
        sharp = made.picture()
        if out is not None:
            _write(out, sharp.linear, bits)
        if depth is not None:
            write_depth(depth, sharp.depth_m, intrinsics=made.view.intrinsics)
    if blurred is not None:
        _write(blurred, _blurred(made, focus_m, pupil_radius_mm, points), bits)
    typer.echo(
        f"{name}: {made.about}; focal length {made.view.focal_px:.1f} px, {made.focal_length_mm:g} mm on 24×36; "
        f"focus {made.lens.focus_m:g} m"
    )
    for path in (out, depth, blurred):
        if path is not None:
            typer.echo(f"wrote {path}")


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)[x×](\d+)", text)
    if found is None:
        raise DefocusError(f"--size {text}: expected WIDTHxHEIGHT such as 960x640")
    return int(found[1]), int(found[2])


def _check(out: Path | None, depth: Path | None, blurred: Path | None, bits: int) -> None:
    """What can be wrong with the files is said before the long work."""
    from ..photo import check_picture_path
    from ..scene.depth_files import check_depth_path

    if out is None and depth is None and blurred is None:
        raise DefocusError("nothing to write: give --out, --depth or --blurred")
    for path in (out, blurred):
        if path is not None:
            check_picture_path(path, bits=bits)
    if depth is not None and check_depth_path(depth, writable=True) == ".png":
        raise DefocusError(f"{depth}: a PNG cannot hold infinite depth; write an .npz")


def _blurred(made: Scene, focus_m: float | None, pupil_radius_mm: float | None, points: int) -> np.ndarray:
    from ..scene.pupil_points import disc
    from ..scene.thin_lens import ThinLens

    lens = ThinLens(
        made.lens.pupil_radius_mm if pupil_radius_mm is None else pupil_radius_mm,
        made.lens.focus_m if focus_m is None else focus_m,
    )
    with typer.progressbar(length=1000, label="casting rays") as bar:
        return made.truth(lens, disc(points), lambda done: bar.update(int(1000 * done) - bar.pos))


def _write(path: Path, linear: np.ndarray, bits: int) -> None:
    import numpy as np

    from ..photo import SRGB, encode, write_linear, write_picture

    if path.suffix.lower() in (".npy", ".npz"):
        write_linear(path, linear)
    else:
        write_picture(path, np.asarray(encode(linear, SRGB)), bits=bits)


__all__ = ["scene"]
