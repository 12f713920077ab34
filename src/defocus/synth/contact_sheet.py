"""The contact sheet of a report: pairs side by side, a viewer to compare them, and what each was made of."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping

import numpy as np

from ..files.pair_png import read_png
from .folder import PairFolder, pictures_of
from .metadata import Record, largest_blur_px

SHOWN = 64
LARGEST_PX = 512  # side of the pictures in the page

VIEWER = (
    '<dialog><div class="view"><div class="stage"><img alt="blurred">'
    '<img class="over" alt="sharp">'
    "<em>blurred</em><em>sharp</em>"
    '<input type="range" min="0" max="100" step="0.1" value="50" aria-label="blurred or sharp"></div>'
    '<div class="about"><button class="close" aria-label="close">×</button><h3></h3><dl></dl>'
    "<p>Move over the picture to wipe between blurred and sharp; arrow keys go to the next pair.</p>"
    "</div></div></dialog>"
)


def contact_sheet(opened: PairFolder, ids: list[str]) -> str:
    """The section of the page with up to 64 of the pairs."""
    by_split: dict[str, list[str]] = {}
    for identity in ids:
        by_split.setdefault(identity.rpartition("-")[0], []).append(identity)
    wanted = set(chosen_ids(by_split))
    records = [record for record in opened.records() if record["id"] in wanted]
    cards = [_pair(r, files) for r, files in pictures_of(opened.store, records, ("blurred", "sharp"))]
    return (
        f"<h2>Pairs</h2><p>{len(cards)} of {len(ids):,}, evenly spread: blurred on the left, sharp on the "
        'right. Click one to compare and to see what it was made of.</p><div class="sheet">' + "".join(cards) + "</div>"
    )


def _pair(record: Record, files: Mapping[str, bytes]) -> str:
    facts = pair_facts(record)
    below = f"{record['id']} · blur {facts['largest blur']} · focus {facts['focus']}"
    pictures = "".join(
        f'<img alt="{role}" loading="lazy" src="{_data_uri(files[role], record["files"][role]["path"])}">'
        for role in ("blurred", "sharp")
    )
    told = "".join(f"<dt>{html.escape(key)}</dt><dd>{html.escape(value)}</dd>" for key, value in facts.items())
    hover = html.escape("\n".join(f"{key}: {value}" for key, value in facts.items()), quote=True)
    return (
        f'<figure class="pair" tabindex="0" role="button" data-id="{html.escape(record["id"])}" title="{hover}">'
        f'<div class="two">{pictures}</div>'
        f'<figcaption class="cap"><span>{html.escape(facts["lens"])}</span><span>{html.escape(below)}</span>'
        f"</figcaption><dl>{told}</dl></figure>"
    )


def pair_facts(record: Record) -> dict[str, str]:
    """What a pair was made of, in words."""
    shot, read = record["noise"]
    low, high = record["coc_px"]
    depths = len(record.get("layer_depth_m", ()))
    facts = {
        "lens": record["lens"] + (f" ({record['state']})" if record.get("state") else ""),
        "aperture": f"f/{record['f_number']:.3g}",
        "focus": _metres(record["focus_m"]),
        "depth": f"{_metres(record['depth_m'][0])} to {_metres(record['depth_m'][1])}",
        "largest blur": f"{largest_blur_px(record):.1f} px",
        "blur range": f"{low:+.1f} to {high:+.1f} px".replace("-", "−"),
        "field": f"({record['field'][0]:.2f}, {record['field'][1]:.2f}) of the image radius".replace("-", "−"),
        "pixel": f"{record['pixel_um']:.3g} µm",
        "layers": str(depths) if depths else "",
        "PSF": str(record.get("psf", {}).get("kind", "")),
        "noise": f"shot {shot:.2g}, read {read:.2g}" if shot or read else "none",
        "saturation": f"{record['saturation']:.2g}",
        "source": record["source"],
        "turned": f"{math.degrees(record['rotation_rad']):.0f}°, scale {record['scale']:.2f}, exposure "
        f"{record['exposure']:.2f}" + (", mirrored" if record["flip"] else ""),
        "notes": "; ".join(record.get("notes", ())),
    }
    return {key: value for key, value in facts.items() if value}


def _data_uri(data: bytes, file: str) -> str:
    """A JPEG of a picture, full colour resolution, reduced where it is large."""
    from PIL import Image

    values = read_png(data, file)
    if values.dtype == np.uint16:
        values = (values >> 8).astype(np.uint8)
    picture = Image.fromarray(values)
    picture.thumbnail((LARGEST_PX, LARGEST_PX), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=90, subsampling=0, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def chosen_ids(ids_by_split: Mapping[str, list[str]], wanted: int = SHOWN) -> list[str]:
    """Evenly spread pairs: as many of each split as its share, but at least an eighth of the room."""
    total = sum(map(len, ids_by_split.values()))
    least = wanted // 8
    room = {s: min(len(ids), max(least, round(wanted * len(ids) / max(total, 1)))) for s, ids in ids_by_split.items()}
    while sum(room.values()) > wanted:
        room[max(room, key=lambda s: room[s])] -= 1
    return [ids[i * len(ids) // room[s]] for s, ids in ids_by_split.items() for i in range(room[s])]


def _metres(value: float) -> str:
    return f"{100.0 * value:.3g} cm" if value < 1.0 else f"{value:.3g} m"
