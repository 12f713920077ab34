"""Which lenses are relatives, so that a split of lenses keeps families together.

Examples of one patent are variations of one design. A maker's lenses with the same focal length and F-number are
often the same formula under several names or in several patents. Both are joined, and whatever is joined through a
third lens as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ..lens.prescription import Lens

EXAMPLE = re.compile(r"\b(example|embodiment|claim|fig|numerical|no\.)\b.*|\(.*\)", re.IGNORECASE)
KIND_CODE = re.compile(r"(?<=\d)[AB]\d?$")  # of a publication: application or grant
FOCAL_STEP, F_NUMBER_STEP = math.log(1.06), math.log(1.12)  # that count as the same
MAKERS = {"CARL": "ZEISS", "SMC": "PENTAX", "HD": "PENTAX", "MAMIYA-SEKOR": "MAMIYA"}


def patent_number(text: str) -> str:
    """The publication's number alone, "" where there is none: "US 2011/0090576 A1 Example 2" is US20110090576."""
    number = re.sub(r"[^0-9A-Z]", "", EXAMPLE.sub("", text.upper()))
    number = KIND_CODE.sub("", number)
    return number if sum(c.isdigit() for c in number) >= 5 else ""


def maker_of(name: str) -> str:
    """The maker in a lens's title or file name, upper case; "" for a name that is a patent's number."""
    first = re.split(r"[\s/_]|-(?!sekor)", name.strip(), maxsplit=1, flags=re.IGNORECASE)[0].upper()
    return "" if any(c.isdigit() for c in first) else MAKERS.get(first, first)


def lens_families(lenses: Mapping[str, Lens], numbers: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """The family of each lens, named by its first member. `numbers`: focal length in mm and F-number of each."""
    root = {name: name for name in lenses}

    def top(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    def join(one: str, other: str) -> None:
        first, second = sorted((top(one), top(other)))
        root[second] = first

    by_patent: dict[str, str] = {}
    by_maker: dict[str, list[str]] = {}
    for name in sorted(lenses):
        lens = lenses[name]
        base = name.partition("@")[0]
        join(name, by_patent.setdefault(f"name {base}", name))  # states of one lens
        number = patent_number(lens.patent)
        if number:
            join(name, by_patent.setdefault(number, name))
        maker = maker_of(lens.name)
        for other in by_maker.get(maker, ()) if maker else ():
            steps = [abs(math.log(a / b)) for a, b in zip(numbers[name], numbers[other], strict=True)]
            if steps[0] <= FOCAL_STEP and steps[1] <= F_NUMBER_STEP:
                join(name, other)
        by_maker.setdefault(maker, []).append(name)
    return {name: top(name) for name in lenses}
