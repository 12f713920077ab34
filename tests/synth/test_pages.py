"""Pages: what is given is escaped, charts count all values and their numbers can be told apart."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from defocus.draw.pages import histogram, markdown_words, page
from defocus.synth.metadata import PairStatistics, card_text
from defocus.synth.plan import make_plan


def _ticks(svg: str) -> list[str]:
    return re.findall(r'class="tick" [^>]*>([^<]*)<', svg)


def test_names_are_escaped() -> None:
    text = page("base.html", title="<script> & co")
    assert "&lt;script&gt; &amp; co" in text
    assert "<script>" not in text
    ElementTree.fromstring(histogram({"<a & b>": [1.0]}, "<m>"))


@pytest.mark.parametrize("log", [False, True])
def test_bars_of_a_histogram_count_all_values(log: bool) -> None:
    values = np.exp(np.random.default_rng(0).normal(size=500)).tolist()
    counts = re.findall(r"<title>pairs: .*?: ([\d,]+)</title>", histogram({"pairs": values}, "m", log=log))
    assert sum(int(count.replace(",", "")) for count in counts) == 500


@pytest.mark.parametrize("values", [[], [3.0], [0.0, 0.0], [1e-3, 1e3], [float("nan"), 2.0], [0.7] * 9])
@pytest.mark.parametrize("log", [False, True])
def test_histograms_of_odd_values(values: list[float], log: bool) -> None:
    chart = histogram({"pairs": values}, "m", log=log)
    ElementTree.fromstring(chart)
    assert "nan" not in chart
    assert "inf" not in chart
    assert ">-" not in chart


def test_numbers_of_an_axis_are_round_and_differ() -> None:
    """As many digits as the step needs, in the numbers of a bar, too; no more over a wide range."""
    narrow = histogram({"pairs": [1.4681, 1.4712]}, "pixels")
    assert _ticks(narrow) == ["1.468", "1.469", "1.47", "1.471", "1.472"]
    for begin, end in re.findall("<title>pairs: (.*?) to (.*?): 1</title>", narrow):
        assert float(begin) < float(end)
    wide = histogram({"pairs": [3.0, 27000.0]}, "pixels")
    assert _ticks(wide) == ["0", "5,000", "10,000", "15,000", "20,000", "25,000", "30,000"]
    assert _ticks(histogram({"pairs": [123400.0, 123412.0]}, "pixels"))[1] == "123,402"
    assert len(set(_ticks(histogram({"pairs": [1.4681, 1.4712]}, "pixels", log=True)))) >= 3
    assert _ticks(histogram({"pairs": [0.3, 12.0]}, "pixels", log=True)) == ["0.5", "1", "2", "5", "10"]


def test_names_in_markdown_are_words() -> None:
    assert markdown_words("<b> [a](b)\n*c* | `d` \\") == "&lt;b&gt; \\[a\\](b) \\*c\\* \\| \\`d\\` \\\\"
    plan = make_plan({"name": "<script>x</script>", "train": {"pairs": 1}, "output": {"licence": "<b>CC0"}})
    text = card_text(plan, PairStatistics([]), sample=False)
    assert "<script>" not in text.split("```json")[0]
    assert "&lt;script&gt;" in text
    assert "<b>" not in text.split("## Licence")[1]
