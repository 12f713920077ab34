"""Write the table of built-in lenses' MTF into docs/lenses.md: contrast at 10 and 30 lp/mm, wide open and at f/5.6.

python tools/mtf_table.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from defocus import Camera, list_lenses, load_lens
from defocus.analysis import Analysis

PAGE = Path(__file__).resolve().parents[1] / "docs" / "lenses.md"
FIELDS, FREQUENCIES, STOPPED = (0.0, 0.7), (10.0, 30.0), 5.6


def cells(camera: Camera) -> list[str]:
    """Contrast on the axis and at 0.7, at each frequency; sagittal / tangential off the axis."""
    mtf = Analysis(camera, fields=FIELDS).mtf(FREQUENCIES)
    texts = []
    for row in range(len(FIELDS)):
        for column in range(len(FREQUENCIES)):
            pair = mtf.sagittal[row, column], mtf.tangential[row, column]
            numbers = pair[:1] if row == 0 else pair
            texts.append("dark" if np.isnan(pair).any() else " / ".join(f"{100.0 * value:.0f}" for value in numbers))
    return texts


def main() -> None:
    """Replace what stands between the marks."""
    lines = [
        "| name | F | axis 10 | 30 | 0.7: 10 | 30 | f/5.6: axis 10 | 30 | 0.7: 10 | 30 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for entry in list_lenses():
        camera = Camera(load_lens(entry.name))
        widest = float(camera.f_number)
        stopped = cells(camera.stopped(STOPPED)) if widest < 0.97 * STOPPED else ["–"] * 4
        lines.append("| " + " | ".join([f"`{entry.name}`", f"{widest:.3g}", *cells(camera), *stopped]) + " |")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- mtf -->")
    after = rest.partition("<!-- /mtf -->")[2]
    PAGE.write_text(f"{before}<!-- mtf -->\n" + "\n".join(lines) + f"\n<!-- /mtf -->{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
