"""Pairs of scenes composed of photographs, and splits that keep relatives together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from defocus.errors import PlanError
from defocus.lens import Lens, list_lenses, load_lens
from defocus.synth.lens_families import lens_families, maker_of, patent_number
from defocus.synth.on_demand import OnDemandPairs
from defocus.synth.plan import Plan, make_plan
from defocus.synth.sources import find_sources, read_source


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    for number in range(8):
        values = np.random.default_rng(number).integers(0, 256, (10, 16, 3), dtype=np.uint8)
        Image.fromarray(values).resize((160, 100), Image.Resampling.BICUBIC).save(folder / f"photo_{number}.jpg")
    return folder


@pytest.fixture
def plan(tiny_plan: dict[str, Any], photographs: Path) -> Plan:
    tiny_plan["sources"] = [{"kind": "composed", "folder": str(photographs), "count": 8, "prefilter_px": 0.4}]
    return make_plan(tiny_plan)


def test_no_photograph_is_in_two_splits(plan: Plan) -> None:
    files = {split: {file for source in own for file in source.textures} for split, own in find_sources(plan).items()}
    assert set(files) == {"train", "validation", "test"}
    assert all(files.values())
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not files[one] & files[other]


def test_a_pair_is_a_function_of_plan_seed_and_number(plan: Plan) -> None:
    """The same bytes alone, from another maker, as among others."""

    def pictures(numbers: list[int]) -> dict[int, bytes]:
        pairs = OnDemandPairs(plan, "train", seed=5).pairs(numbers)
        return {p.recipe.index: p.pictures["blurred"].tobytes() + p.pictures["sharp"].tobytes() for p in pairs}

    first = pictures([0, 1])
    assert first[0] != first[1]
    assert pictures([1])[1] == first[1]


def test_what_is_seen_is_the_stack(plan: Plan) -> None:
    source = find_sources(plan)["train"][0]
    sharp = read_source(source, plan)
    assert sharp.stack is not None
    np.testing.assert_array_equal(sharp.linear, np.asarray(sharp.stack.picture(), np.float32))
    assert sharp.linear.shape[:2] == sharp.depth_m.shape == (80, 120)
    assert sharp.depth_m.min() >= plan.depth.nearest_m
    assert sharp.depth_m.max() <= plan.depth.farthest_m


def test_what_composed_sources_refuse(tiny_plan: dict[str, Any], tmp_path: Path) -> None:
    tiny_plan["sources"] = [{"kind": "composed", "folder": str(tmp_path), "count": 2}]
    with pytest.raises(PlanError, match="no photographs in"):
        find_sources(make_plan(tiny_plan))
    tiny_plan["sources"][0]["folder"] = str(tmp_path / "nowhere")
    with pytest.raises(PlanError, match="is not a folder"):
        find_sources(make_plan(tiny_plan))
    tiny_plan["sources"] = [{"count": 2, "prefilter_px": 0.4}]
    with pytest.raises(PlanError, match="prefilter_px is for kind"):
        make_plan(tiny_plan)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("US 2011/0090576 A1 Example 2", "US20110090576"),
        ("US20110090576A1", "US20110090576"),
        ("US 2,645,156 Fig. 3", "US2645156"),
        ("", ""),
        ("Example 12", ""),
    ],
)
def test_the_number_of_a_patent(text: str, number: str) -> None:
    assert patent_number(text) == number


@pytest.mark.parametrize(
    ("name", "maker"),
    [
        ("Canon RF 50mm f/1.2", "CANON"),
        ("canon-fd-24mm-f28", "CANON"),
        ("Carl Zeiss Planar 50/2", "ZEISS"),
        ("Mamiya-Sekor 80/2.8", "MAMIYA"),
        ("US2645156-1", ""),
    ],
)
def test_the_maker_of_a_lens(name: str, maker: str) -> None:
    assert maker_of(name) == maker


def test_families_join_patents_states_and_equal_lenses_of_a_maker() -> None:
    some_lens = load_lens(list_lenses()[0].name)

    def lens(name: str, patent: str = "") -> Lens:
        return replace(some_lens, name=name, patent=patent)

    lenses = {
        "a": lens("Nikon 50mm f/1.4", "US 1234567 Example 1"),
        "b": lens("Nikon 85mm f/1.8", "US 1,234,567 Example 2"),  # the patent of a
        "c": lens("Nikon 86mm f/1.8"),  # the numbers of b: through it a's relative
        "d": lens("Canon 85mm f/1.8"),  # another maker
        "e@near": lens("Nikon 200mm f/4"),
        "e@far": lens("Nikon 200mm f/5.6"),  # a state of one lens
        "f": lens("US7654321-1"),
        "g": lens("US7654322-1"),  # no maker: equal numbers join nothing
    }
    numbers = {"a": (50.0, 1.4), "b": (85.0, 1.8), "c": (86.0, 1.8), "d": (85.0, 1.8), "e@near": (200.0, 4.0),
               "e@far": (200.0, 5.6), "f": (50.0, 1.4), "g": (50.0, 1.4)}  # fmt: skip
    families = lens_families(lenses, numbers)
    assert families == {"a": "a", "b": "a", "c": "a", "d": "d", "e@near": "e@far", "e@far": "e@far", "f": "f", "g": "g"}


def test_a_family_is_in_one_split(tiny_plan: dict[str, Any]) -> None:
    """Two families of four lenses each: whatever the seed, no split has a part of one."""
    from defocus.synth import lens_pool

    family = {name: "odd" if number % 2 else "even" for number, name in enumerate("abcdefgh")}
    shares = {"pairs": 2, "lens_fraction": 0.5}
    tiny_plan |= {"train": shares, "validation": {"pairs": 0}, "test": shares}
    for seed in range(4):
        plan = make_plan(tiny_plan | {"seed": seed})
        division = lens_pool.divide(plan, sorted(family), "lenses", families=family)
        assert sorted(name for names in division.values() for name in names) == sorted(family)
        assert all(len({family[name] for name in names}) == 1 for names in division.values())
