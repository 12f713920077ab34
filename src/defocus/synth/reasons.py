"""Why candidates did not become pairs, told briefly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# A number that stands alone, not part of a name.
_ALONE = re.compile(r"(?<![\w.\-])[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w\-])", re.IGNORECASE)


def merged_reasons(reasons: Iterable[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """Reasons that differ in their numbers alone as one: (text with n for numbers, count, an example), most first."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for reason, count in reasons:
        merged = _ALONE.sub("n", reason) or "no reason given"
        counts[merged] += count
        examples.setdefault(merged, reason)
    return [(text, count, examples[text]) for text, count in counts.most_common()]
