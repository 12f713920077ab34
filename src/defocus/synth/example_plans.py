"""Plans to begin with: the commented one that `defocus synth init` writes, and the demo's."""

from __future__ import annotations

from typing import Any

from .plan import Plan, make_plan

TEMPLATE = """\
# A data set of sharp and blurred pairs. Check it:  defocus synth check {name}
# Make it:  defocus synth run {name} --out pairs
# What is left out has the setting of the paper, shown here behind "paper:".

name = "My defocus pairs"
seed = 0                      # another seed, another data set; the same seed, the same bytes

# Sharp photographs with depth. Procedural scenes need no files; for your own photographs take instead
#   kind = "raw" (or "rgb"), folder = "photos", depth = "{{stem}}.npz"
# with metric depth beside each photograph (`defocus depth PHOTO --out FILE` estimates it); for depth in millimetres as
# PNG: depth = "{{stem}}_depth.png", depth_scale_m = 0.001.
[[sources]]
kind = "scenes"
count = 20

[lenses]
builtin = true                # the lenses of `defocus lens list`
folders = []                  # and all lens files in these folders (zmx, seq, Optical Bench, json)
only = []                     # patterns such as "phone-*"; empty: all of them
survey = true                 # keep those that pass the paper's filter
states = "first"              # "all": every zoom and focus state of the prescriptions

# No image and no lens is in two splits. `images` and `lenses` take patterns instead of fractions.
[train]
pairs = 48                    # paper: 40000
augment = true                # turned, scaled, mirrored, exposed otherwise
image_fraction = 0.7
lens_fraction = 0.6

[validation]
pairs = 8                     # paper: 1000
image_fraction = 0.15
lens_fraction = 0.2

[test]
pairs = 8                     # paper: 1000
image_fraction = 0.15
lens_fraction = 0.2

[patch]
size = 256                    # paper: 384
kernel = 64                   # paper: 128; the largest blur radius is a quarter of it
photograph = [840, 560]       # paper: [1680, 1120]; photographs are reduced to it, which decides the pixels

[augment]
rotation_deg = 180.0
scale = [0.7, 1.4]
exposure = [0.7, 1.4]
flip = true

[focus]
nearest_m = 0.2
farthest_m = 250.0
ends = 0.6                    # at least so much of the draws at the patch's nearest or farthest surface

[depth]
mode = "layers"               # "single": one depth for a patch (ablation)
step_px = 1.0                 # layers are closer in blur than this

[limits]
samples = 3072                # paper: 1536, at half this pixel pitch; lenses that would need more are left out
# coc_px = 16.0               # a quarter of the kernel unless given

[blur]                        # a wanted distribution of the largest blur radius, for example for a curriculum:
levels_px = []                # [2, 8, 16]: up to 2 px, from 2 to 8, from 8 to 16
weights = []                  # [1, 1, 2]

[psf]
kind = "lens"                 # "gaussian", "disk" (ablations)
bands = "rgb"                 # paper: "d", one wavelength for all colours
field_radius = 0.7            # how far from the middle of the image the PSFs are taken
exact = false                 # paper: true; false widens diffraction to a twelfth of a pixel, several times faster

[sensor]
isp = true                    # false: blur the sRGB picture, without sensor and noise (ablation)
noise = 1e-5
saturation = 4.0
dual_pixel = false            # true: also what the left and the right half of each pixel see

[select]
surplus = 0.5                 # so many more candidates than pairs; the sharpest are kept
sharpness = true

[output]
layout = "dpdd"               # "pairs": input and target folders; "webdataset": tar shards
bits = 8
pairs_per_shard = 128
licence = ""
"""


# A small data set that shows what there is: procedural scenes, lenses of very different blur.
DEMO: dict[str, Any] = {
    "name": "Defocus demo",
    "seed": 1,
    "sources": [{"kind": "scenes", "count": 6, "names": ["portrait", "street", "twigs", "table", "leaves", "letters"]}],
    # They have passed the survey; measuring them again would take longer than the demo.
    "lenses": {
        "survey": False,
        "only": ["canon-*", "leica-*", "minolta-*", "nikon-*", "sigma-*", "sony-*", "voigtlander-*", "zeiss-*"],
    },
    "train": {"pairs": 8, "image_fraction": 0.66, "lens_fraction": 0.6},
    "validation": {"pairs": 2, "image_fraction": 0.17, "lens_fraction": 0.2},
    "test": {"pairs": 2, "image_fraction": 0.17, "lens_fraction": 0.2},
    "patch": {"size": 192, "kernel": 64, "photograph": [480, 320]},
    "limits": {"samples": 6000},  # few and large pixels: the paper's limit would leave slow lenses only
    "blur": {"levels_px": [3, 8, 15], "weights": [1, 2, 2]},
    "psf": {"bands": "rgb", "exact": False},
    "select": {"surplus": 0.25},
}


def plan_text(name: str) -> str:
    """The commented plan; `name` is the file that it is written to."""
    return TEMPLATE.format(name=name)


def demo_plan() -> Plan:
    """The plan of `defocus demo`."""
    return make_plan(DEMO)
