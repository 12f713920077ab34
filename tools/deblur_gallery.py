"""What the network of `defocus deblur` makes of scenes through unseen lenses: docs/images/deblurred.jpg.

    python tools/deblur_gallery.py [FILE]

Each row is a procedural scene, blurred, restored and sharp, with PSNR in dB; the last rows are where it fails.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from defocus import Camera, load_lens
from defocus.draw.side_by_side import Panel, draw_comparison
from defocus.draw.style import figure_bytes
from defocus.restore.models.checkpoints import load_model
from defocus.restore.shipped import shipped_weights
from defocus.restore.similarity import psnr
from defocus.restore.tiles import deblur
from defocus.scene import make_scene

SIZE = (420, 280)
ROWS = (  # scene, lens, f-number, focus in metres (None: on the subject)
    ("letters", "zeiss-tessar-50-f3.5", None, 1.6),
    ("swatches", "sony-planar-50-f1.4", 2.8, None),
    ("street", "zeiss-sonnar-180-f2.8", 5.6, None),
    ("table", "sigma-40-f1.4", 2.0, None),
    ("leaves", "sony-planar-50-f1.4", 2.0, None),
    ("night", "canon-rf-85-f1.2", 4.0, None),
)


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images" / "deblurred.jpg")
    network = load_model(shipped_weights())
    panels = []
    for name, lens, f_number, focus_m in ROWS:
        scene = make_scene(name, SIZE)
        picture = scene.picture()
        camera = Camera(load_lens(lens), f_number=f_number, focus_m=focus_m or scene.lens.focus_m)
        photograph = camera.photograph(picture.linear, picture.depth_m)
        blurred, sharp = photograph.blurred.srgb, photograph.sharp.srgb
        restored = np.clip(deblur(network, blurred), 0.0, 1.0)
        near, far = (abs(float(radius)) for radius in photograph.report["coc_px"])
        about = f"{lens}, f/{float(camera.f_number):.2g}, up to {max(near, far):.0f} px"
        panels += [
            Panel(about, f"{psnr(blurred, sharp):.1f} dB", blurred),
            Panel("restored", f"{psnr(restored, sharp):.1f} dB", restored),
            Panel("sharp", "", sharp),
        ]
        print(about, f"{psnr(blurred, sharp):.2f} → {psnr(restored, sharp):.2f} dB", flush=True)
    figure = draw_comparison(
        panels, (), "Scenes through unseen lenses, and what defocus deblur makes of them", columns=3
    )
    with Image.open(io.BytesIO(figure_bytes(figure))) as image:
        image.convert("RGB").save(out, quality=88)


if __name__ == "__main__":
    main()
