"""The gallery of built-in lenses for the site: a page for each with its card, its bokeh, and its MTF at two stops.

`python tools/lens_gallery.py docs/generated/gallery --lenses all` draws what is missing: figures that are there stay
as long as the lens, this script and the version of the package are the same. `few` draws six lenses of different kinds
and lists the others, `none` lists all. A lens takes a few seconds; those that are killed half-way are drawn again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

import defocus
from defocus import Camera, list_lenses, load_lens
from defocus.errors import DefocusError
from defocus.lens.library import DATA, LibraryEntry
from defocus.psf.window import CLOSE_UP
from site_pages import write

FEW = (
    "canon-rf-85-f1.2",
    "leica-summicron-50-f2",
    "nikon-fisheye-10.5-f2.8",
    "phone-us11668898",
    "sony-fe-14-f1.8",
    "zeiss-tessar-50-f3.5",
)
FIELDS = (0.0, 0.5, 0.85)
BLUR_PX = 40.0  # of the bokeh: the larger blur radius in tiles of CLOSE_UP pixels
STOPS = 2.0  # by how many the second MTF is stopped down


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lenses", choices=("none", "few", "all"), default="few")
    arguments = parser.parse_args()
    every = tuple(entry.name for entry in list_lenses())
    draw_gallery(arguments.folder, {"none": (), "few": FEW, "all": every}[arguments.lenses])


def draw_gallery(folder: Path, chosen: tuple[str, ...]) -> None:
    """Draw what is missing of the lenses and write the pages."""
    entries = list_lenses()
    for number, name in enumerate(chosen, 1):
        began = time.monotonic()
        if draw_lens(name, folder):
            message = f"{number} of {len(chosen)}: {name} drawn in {time.monotonic() - began:.1f} s"
            print(message, file=sys.stderr, flush=True)
    for entry in entries:
        if entry.name in chosen:
            write(folder / f"{entry.name}.md", lens_page(entry, folder))
        else:
            (folder / f"{entry.name}.md").unlink(missing_ok=True)
    write(folder / "index.md", index_page(entries, chosen, folder))


def stamp(name: str) -> str:
    """What decides the figures of a lens, in few letters."""
    parts = [(DATA / f"{name}.json").read_bytes(), Path(__file__).read_bytes(), defocus.__version__.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def draw_lens(name: str, folder: Path) -> bool:
    """Draw the figures of a lens unless they are there; what cannot be drawn is noted in their stamp."""
    note = folder / name / "stamp.json"
    if note.exists() and json.loads(note.read_text())["stamp"] == stamp(name):
        return False
    from defocus.analysis import Analysis
    from defocus.draw import compute_psf_grid, draw_card, draw_psf_grid, plot_curves, save

    (folder / name).mkdir(parents=True, exist_ok=True)
    lens = load_lens(name)
    problems: dict[str, str] = {}

    def mtf(camera: Camera) -> object:
        return plot_curves(Analysis(camera).mtf())

    def bokeh() -> object:
        camera, depths = out_of_focus(Camera(lens))
        return draw_psf_grid(compute_psf_grid(camera, fields=FIELDS, depths_m=depths, size=CLOSE_UP))

    open_camera = Camera(lens)
    figures = {
        "card": lambda: draw_card(lens),
        "bokeh": bokeh,
        "mtf-open": lambda: mtf(open_camera),
        "mtf-stopped": lambda: mtf(open_camera.stopped(float(open_camera.f_number) * 2.0 ** (STOPS / 2.0))),
    }
    for kind, figure in figures.items():
        try:
            save(figure(), folder / name / f"{kind}.png")
        except DefocusError as error:
            problems[kind] = str(error)
    facts = {"stamp": stamp(name), "f_number": float(open_camera.f_number), "problems": problems}
    note.write_text(json.dumps(facts))
    return True


def out_of_focus(camera: Camera) -> tuple[Camera, tuple[float, float]]:
    """The camera focused at forty focal lengths, two depths around that, and pixels that show both blurs.

    Where aberrations blur more than defocus, pixels are as coarse as the largest of all PSFs asks for.
    """
    focus = float(f"{0.04 * abs(float(camera.first_order.focal_length)):.2g}")
    camera, depths = camera.focused(focus), (0.75 * focus, 2.0 * focus)
    largest = max(abs(float(camera.circle_of_confusion_px(depth))) for depth in depths)
    camera = camera.with_pixels(pixel_um=float(camera.pixel_um) * largest / BLUR_PX)
    pitches = [float(camera.close_up(depth, (0.0, field)).pixel_um) for depth in depths for field in FIELDS]
    return camera.with_pixels(pixel_um=max(float(camera.pixel_um), *pitches)), depths


def lens_page(entry: LibraryEntry, folder: Path) -> str:
    """The page of a lens whose figures are drawn."""
    facts = json.loads((folder / entry.name / "stamp.json").read_text())
    stops = facts["f_number"], facts["f_number"] * 2.0 ** (STOPS / 2.0)
    rows = {
        "name": f"`{entry.name}`",
        "patent": entry.patent,
        "year": str(entry.year or ""),
        "maker": entry.maker,
        "kind": entry.type if entry.category in entry.type else f"{entry.type}, {entry.category}",
        "focal length": f"{entry.focal_length_mm:.4g} mm",
        "f-number": f"{entry.f_number:.3g}",
        "image radius": f"{entry.image_radius_mm:.4g} mm",
        "states": ", ".join(f"`{state}`" for state in entry.states),
        "remark": entry.remark,
    }
    lines = [f"# {entry.title or entry.name}", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in rows.items() if text]
    bokeh = "points nearer and farther than the focus, over the field; each colour at its own wavelength"
    captions = {
        "card": ("Card", "layout with ray bundles, first-order data, spot diagrams"),
        "bokeh": ("Bokeh", bokeh),
        "mtf-open": (f"MTF at f/{stops[0]:.3g}", "solid sagittal, dashed tangential"),
        "mtf-stopped": (f"MTF at f/{stops[1]:.3g}", "two stops down"),
    }
    for kind, (heading, text) in captions.items():
        picture = f"![{heading}: {text}]({entry.name}/{kind}.png)"
        lines += ["", f"## {heading}", "", facts["problems"].get(kind, f"{text.capitalize()}.\n\n{picture}")]
    command = f"defocus blur scene:portrait --lens {entry.name} --out portrait.png"
    return "\n".join([*lines, "", "## Use it", "", f"```\n{command}\n```", ""])


def index_page(entries: tuple[LibraryEntry, ...], chosen: tuple[str, ...], folder: Path) -> str:
    """All lenses in a table; those that are drawn lead to their page."""
    lines = ["# Gallery of lenses", "", f"All {len(entries)} built-in lenses, from patents: [how they were read]"]
    lines[-1] += "(../../lenses.md)."
    if len(chosen) < len(entries):
        lines[-1] += f" This build has pages of {len(chosen)}; `make docs GALLERY=all` draws every one."
    lines += ["", "| lens | focal\u00a0length, mm | f-number | kind | year |", "| --- | --: | --: | --- | --: |"]
    for e in entries:
        link = f"[{e.title or e.name}]({e.name}.md)" if e.name in chosen else f"{e.title or e.name}"
        lines.append(f"| {link} | {e.focal_length_mm:.4g} | {e.f_number:.3g} | {e.type} | {e.year or ''} |")
    members = "\n".join(name for name in (e.name for e in entries) if name in chosen)
    return "\n".join([*lines, "", f"```{{toctree}}\n:hidden:\n\n{members}\n```" if chosen else "", ""])


if __name__ == "__main__":
    main()
