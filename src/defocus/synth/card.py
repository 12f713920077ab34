"""The card of a data set (README.md): what is in it, how it was made, what its fields mean, and how to load it.

It follows from the plan and the records alone, so that the same plan gives the same card.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import PurePath

import numpy as np

from .layouts import DPDD_SPLITS
from .metadata import CHECKSUMS, COLUMNS, JSON_LINES, SAMPLE, TABLE, Record, largest_blur_px
from .places import without_places
from .plan import Plan, Source, SplitName


def card_text(plan: Plan, records: Iterable[Record], *, sample: bool = True) -> str:
    """The card as Markdown; `sample`: there is a sample figure."""
    seen = _Seen(plan, records)
    parts = [
        f"# {plan.name}",
        f"{seen.total:,} pairs of a sharp and a blurred picture, {plan.patch.size}×{plan.patch.size} pixels, "
        f"{plan.output.bits}-bit PNG, made with Defocus: {_blur_words(plan)}.",
        f"![Some of the pairs]({SAMPLE})" if sample else "",
        "## What is in it",
        seen.table(),
        "No image and no lens is in two splits." if seen.disjoint() else "Some images or lenses are in two splits.",
        seen.ranges(),
        "## Files",
        _files(plan),
        "## How it was made",
        "\n".join(f"- {line}" for line in made_in_words(plan)),
        "The whole plan (also in `plan.json`); with the same sources, lenses and version of the program it gives the "
        "same bytes:",
        f"```json\n{json.dumps(without_places(plan.as_json()), indent=1)}\n```",
        "## Fields",
        f"`{JSON_LINES}` holds a line of JSON for each pair, with every number that the pair was made of; `{TABLE}` "
        "holds the same as a table. Lengths without a unit in their name are pixels of the pictures. Its columns:",
        "| column | kind | meaning |\n| --- | --- | --- |\n"
        + "\n".join(f"| `{name}` | {kind} | {words} |" for name, (kind, words) in COLUMNS.items()),
        "## Loading",
        _loading(plan),
        "## Checking",
        f"```sh\nsha256sum --quiet --check {CHECKSUMS}\ndefocus synth verify .\n```",
        "## Licence",
        _licence(plan),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def made_in_words(plan: Plan) -> list[str]:
    """The settings that decide what the pairs look like, a sentence each."""
    lines = [
        "Sources: " + "; ".join(_source_words(source) for source in plan.sources) + ".",
        f"Photographs are reduced to {plan.patch.photograph[0]}×{plan.patch.photograph[1]} pixels, which decides the "
        f"pixel pitch behind each lens; patches are cut of them. Depths lie between {plan.depth.nearest_m:g} and "
        f"{plan.depth.farthest_m:g} m.",
        _lens_words(plan),
        f"A lens is taken for a patch if, at the worst focus distance that may be drawn, its blur radius stays within "
        f"{plan.coc_limit_px:g} px and its PSF needs at most {plan.limits.samples:g} samples.",
        f"Focus: at least {plan.focus.ends:.0%} of the draws at the patch's nearest and farthest depth, the others at "
        f"what stands between, from {plan.focus.nearest_m:g} to {plan.focus.farthest_m:g} m.",
        f"Blur: {_blur_words(plan)}; kernels of {plan.patch.kernel} px, field points within {plan.psf.field_radius:g} "
        "of the image radius; "
        + (
            f"one layer for each {plan.depth.step_px:g} px of blur radius, composed from back to front."
            if plan.depth.mode == "layers"
            else "one depth for the whole patch."
        ),
    ]
    if plan.blur.levels_px:
        shares = np.asarray(plan.blur.weights) / sum(plan.blur.weights)
        levels = [f"{share:.0%} up to {end:g} px" for share, end in zip(shares, plan.blur.levels_px, strict=True)]
        lines.append("Wanted largest blur radii: " + ", ".join(levels) + ".")
    if plan.sensor.isp:
        noise = f"noise of reference {plan.sensor.noise:g}" if plan.sensor.noise else "no noise"
        lines.append(
            "Blurred in the sensor's linear light and developed by the same camera pipeline as the sharp picture; "
            f"{noise}, saturation up to a power of {plan.sensor.saturation:g}."
        )
    else:
        lines.append("Blurred as display values (sRGB), without a sensor and without noise.")
    if plan.sensor.dual_pixel:
        lines.append("Also what the left and the right half of each pixel see.")
    augmented = [name for name in plan.splits if plan.split(name).augment]
    if augmented:
        a = plan.augment
        lines.append(
            f"Augmented ({', '.join(augmented)}): turned by up to {a.rotation_deg:g}°, scaled by {a.scale[0]:g} to "
            f"{a.scale[1]:g}, exposed by {a.exposure[0]:g} to {a.exposure[1]:g}{', mirrored' if a.flip else ''}."
        )
    if plan.select.sharpness and plan.select.surplus:
        lines.append(f"{plan.select.surplus:.0%} more candidates than pairs were drawn; the sharpest were kept.")
    return lines


class _Seen:
    """What the records hold, by split, without keeping them."""

    def __init__(self, plan: Plan, records: Iterable[Record]) -> None:
        self.splits = plan.splits
        self.pairs: dict[str, int] = dict.fromkeys(self.splits, 0)
        self.lenses: dict[str, set[str]] = {name: set() for name in self.splits}
        self.images: dict[str, set[str]] = {name: set() for name in self.splits}
        self.blur_px: list[float] = []
        self.focus_m: list[float] = []
        self.depth_m: list[float] = []
        for record in records:
            split = record["split"]
            self.pairs[split] += 1
            self.lenses[split].add(record["lens"])
            self.images[split].add(record["source"])
            self.blur_px.append(largest_blur_px(record))
            self.focus_m.append(record["focus_m"])
            self.depth_m += record["depth_m"]

    @property
    def total(self) -> int:
        return sum(self.pairs.values())

    def disjoint(self) -> bool:
        def apart(sets: dict[str, set[str]]) -> bool:
            return sum(map(len, sets.values())) == len(set().union(*sets.values()))

        return apart(self.lenses) and apart(self.images)

    def table(self) -> str:
        rows = [
            f"| {name} | {self.pairs[name]:,} | {len(self.images[name]):,} | {len(self.lenses[name]):,} |"
            for name in self.splits
        ]
        return "\n".join(["| split | pairs | images | lenses |", "| --- | ---: | ---: | ---: |", *rows])

    def ranges(self) -> str:
        if not self.total:
            return ""
        low, middle, high = np.percentile(self.blur_px, [5, 50, 95])
        return (
            f"Largest blur radius of a pair: {middle:.1f} px in the middle, from {low:.1f} to {high:.1f} px in nine of "
            f"ten. Focus from {min(self.focus_m):.3g} to {max(self.focus_m):.3g} m; depths {min(self.depth_m):.3g} "
            f"to {max(self.depth_m):.3g} m."
        )


def _blur_words(plan: Plan) -> str:
    bands = "at the d line" if plan.psf.bands == "d" else "for red, green and blue"
    return {
        "lens": f"each depth is blurred with the point spread function of a real lens design, by wave optics {bands}",
        "gaussian": "each depth is blurred with a Gaussian of half the lens's blur radius",
        "disk": "each depth is blurred with a disk of the lens's blur radius",
    }[plan.psf.kind]


def _source_words(source: Source) -> str:
    if source.kind == "scenes":
        which = f" ({', '.join(source.names)})" if source.names else ""
        return f"{source.count} procedural scenes with exact depth{which}"
    kind = "RAW photographs" if source.kind == "raw" else "developed photographs"
    return f"{kind} with their depth, from the folder {_last(source.folder)}"


def _lens_words(plan: Plan) -> str:
    lenses = plan.lenses
    places = (["the built-in collection"] if lenses.builtin else []) + [
        f"the folder {_last(f)}" for f in lenses.folders
    ]
    only = f", of these {', '.join(lenses.only)}" if lenses.only else ""
    survey = (
        f"; surveyed: f-number up to {lenses.max_f_number:g}, numerical aperture up to {lenses.max_na:g}, wavefront "
        f"range below {lenses.max_phase_range_waves:g} waves, spot on the axis up to {lenses.max_axial_rms:.2%} of the "
        "image radius"
        if lenses.survey
        else "; not surveyed"
    )
    return f"Lenses: {' and '.join(places)}{only}{survey}."


def _files(plan: Plan) -> str:
    layout, splits = plan.output.layout, plan.splits
    extra = plan.sensor.dual_pixel
    if layout == "dpdd":
        names = ", ".join(f"`{DPDD_SPLITS[name]}_c`" for name in splits)
        eyes = "; `_l/source` and `_r/source` hold the left and right views" if extra else ""
        return f"As the DPDD data set: {names}, each with `source` (blurred) and `target` (sharp){eyes}. Names agree."
    if layout == "pairs":
        names = ", ".join(f"`{name}`" for name in splits)
        views = ", `left` and `right` (views of the half pixels)" if extra else ""
        return f"{names}, each with `input` (blurred) and `target` (sharp){views}. Names agree."
    views = ", `.left.png`, `.right.png`" if extra else ""
    return (
        f"Shards of up to {plan.output.pairs_per_shard} pairs, such as `{splits[0]}/shard-000000.tar`, as WebDataset "
        f"reads them: `.blurred.png`, `.sharp.png`{views} and `.json` of each pair."
    )


def _loading(plan: Plan) -> str:
    split: SplitName = plan.splits[0]
    ours = (
        "With Defocus and PyTorch (`pip install 'defocus[train]'`):\n\n```python\n"
        "from defocus.restore import PairDataset\n\n"
        f'pairs = PairDataset(".", "{split}", crop={min(256, plan.patch.size)}, augment=True)\n```\n\n'
    )
    if plan.output.layout == "webdataset":
        return ours + (
            "With WebDataset:\n\n```python\nfrom glob import glob\n\nimport webdataset\n\n"
            f'pairs = webdataset.WebDataset(sorted(glob("{split}/shard-*.tar")), shardshuffle=False)\n'
            'pairs = pairs.decode("torchrgb").to_tuple("blurred.png", "sharp.png")\n```'
        )
    folder = f"{DPDD_SPLITS[split]}_c/source" if plan.output.layout == "dpdd" else f"{split}/input"
    target = folder.replace("source", "target").replace("input", "target")
    return ours + (
        "With PyTorch and Pillow alone:\n\n```python\nfrom pathlib import Path\n\nimport numpy as np\nimport torch\n"
        "from PIL import Image\n\n\nclass Pairs(torch.utils.data.Dataset):\n"
        f'    def __init__(self, blurred="{folder}", sharp="{target}"):\n'
        '        self.files = [(path, Path(sharp) / path.name) for path in sorted(Path(blurred).glob("*.png"))]\n\n'
        "    def __len__(self):\n        return len(self.files)\n\n"
        "    def __getitem__(self, index):\n"
        "        pictures = [np.asarray(Image.open(path)) for path in self.files[index]]\n"
        "        return [torch.from_numpy(p.copy()).permute(2, 0, 1).float() / 255 for p in pictures]\n```"
        + ("\n\nPillow reads pictures of 16 bits with 8." if plan.output.bits == 16 else "")
    )


def _licence(plan: Plan) -> str:
    lines = [f"Of this data set: {plan.output.licence}." if plan.output.licence else "None was stated in the plan."]
    if any(source.kind == "scenes" for source in plan.sources):
        lines.append("Pictures of procedural scenes are made by the program; nobody else has rights in them.")
    if any(source.kind != "scenes" for source in plan.sources):
        lines.append(
            "Pictures made of photographs stay under the licences of those photographs and of their depth maps; the "
            "field `source` names them. Before passing them on, check that they allow it, and name the authors."
        )
    lines.append("Lens prescriptions are not part of the data set; their names are.")
    return "\n".join(f"- {line}" for line in lines)


def _last(folder: PurePath | None) -> str:
    return f"`{folder.name}`" if folder is not None else ""
