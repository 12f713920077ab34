"""The card of a data set (README.md): what is in it, how it was made, what its fields mean, and how to load it.

It follows from the plan and the records alone, so that the same plan gives the same card.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from ..files.pair_folders import JSON_LINES, Record
from .layouts import DPDD_SPLITS
from .metadata import CHECKSUMS, COLUMNS, SAMPLE, TABLE, largest_blur_px
from .places import without_places
from .plan import SPLITS, Plan


class PairStatistics:
    """The numbers of a data set's pairs that cards and reports tell, without the records, which are read once."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.ids: list[str] = []
        self.values: dict[str, list[float]] = defaultdict(list)  # of each pair
        self.images: dict[str, set[str]] = {split: set() for split in SPLITS}
        self.lenses: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}  # pairs of each
        self.pairs: dict[str, int] = dict.fromkeys(SPLITS, 0)
        self.bytes = 0
        self.side_px = 0
        for record in records:
            values = {
                "blur_px": largest_blur_px(record),
                "focus_m": record["focus_m"],
                "nearest_m": record["depth_m"][0],
                "farthest_m": record["depth_m"][1],
                "field_radius": math.hypot(*record["field"]),
                "f_number": record["f_number"],
                "layers": len(record.get("layer_depth_m", ())),
            }
            for name, value in values.items():
                self.values[name].append(value)
            split = record["split"]
            self.ids.append(record["id"])
            self.images[split].add(record["source"])
            self.lenses[split][record["lens"]] += 1
            self.pairs[split] += 1
            self.bytes += sum(file["bytes"] for file in record.get("files", {}).values())
            self.side_px = record["patch_px"]

    @property
    def disjoint(self) -> bool:
        """Whether no image and no lens is in two splits."""
        return all(
            sum(map(len, groups)) == len(set().union(*groups))
            for groups in (list(self.images.values()), list(self.lenses.values()))
        )


def card_text(plan: Plan, records: Iterable[Record], *, sample: bool = True) -> str:
    """The card as Markdown; `sample`: there is a sample figure."""
    from ..draw.pages import page

    statistics = PairStatistics(records)
    values = statistics.values
    ranges = values and {
        "blur_px": np.percentile(values["blur_px"], [5, 50, 95]).tolist(),
        "focus_m": [min(values["focus_m"]), max(values["focus_m"])],
        "depth_m": [min(values["nearest_m"]), max(values["farthest_m"])],
    }
    return page(
        "dataset_card.md",
        plan=plan,
        output=plan.output,
        blur=_blur_in_words(plan),
        sentences=plan_in_words(plan),
        plan_json=json.dumps(without_places(plan.as_json()), indent=1),
        pairs=statistics.pairs,
        images={split: len(names) for split, names in statistics.images.items()},
        lenses={split: len(names) for split, names in statistics.lenses.items()},
        disjoint=statistics.disjoint,
        ranges=ranges,
        sample=SAMPLE if sample else "",
        dpdd=DPDD_SPLITS,
        columns=COLUMNS,
        lines=JSON_LINES,
        table=TABLE,
        checksums=CHECKSUMS,
        scenes=any(source.kind == "scenes" for source in plan.sources),
        photographs=any(source.kind != "scenes" for source in plan.sources),
    )


def plan_in_words(plan: Plan) -> list[str]:
    """The settings that decide what the pairs look like, a sentence each."""
    from ..draw.pages import page

    augmented = [name for name in plan.splits if plan.split(name).augment]
    return page("plan_sentences.txt", plan=plan, blur=_blur_in_words(plan), augmented=augmented).strip().splitlines()


def _blur_in_words(plan: Plan) -> str:
    bands = "at the d line" if plan.psf.bands == "d" else "for red, green and blue"
    return {
        "lens": f"each depth is blurred with the point spread function of a real lens design, by wave optics {bands}",
        "gaussian": "each depth is blurred with a Gaussian of half the lens's blur radius",
        "disk": "each depth is blurred with a disk of the lens's blur radius",
    }[plan.psf.kind]
