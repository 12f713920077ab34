"""The named scenes, each with the lens that suits it.

Places are given in half heights of the picture at their depth where they frame the picture, so that a composition holds
for upright, square and wide pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import compositions_indoors as indoors
from . import compositions_outdoors as outdoors
from .shapes import SceneShape
from .studio import Studio


@dataclass(frozen=True)
class Composition:
    """A recipe: `build` makes the shapes; the lens is in mm, its focus in metres."""

    about: str
    focal_length_mm: float
    pupil_radius_mm: float
    focus_m: float
    build: Callable[[Studio], tuple[SceneShape, ...]]


COMPOSITIONS = {
    "portrait": Composition(
        "a wooden doll before a picket fence, garden lights behind", 85.0, 30.0, 1.52, outdoors.portrait
    ),
    "wire": Composition("a brick wall with a door seen through chain-link wire", 50.0, 14.0, 3.0, outdoors.wire),
    "twigs": Composition("autumn twigs before hills and a low sun", 85.0, 16.0, 0.9, outdoors.twigs),
    "table": Composition("fruit on an oak table, a curtain behind", 60.0, 17.0, 0.98, indoors.table),
    "letters": Composition("words cut out of sheet metal and wood before bricks", 60.0, 18.0, 1.2, indoors.letters),
    "night": Composition("glass balls on a balcony, the lights of a city behind", 70.0, 18.0, 1.12, indoors.night),
    "street": Composition("a wall running into the distance, a lamp post, a ball", 35.0, 36.0, 2.3, outdoors.street),
    "leaves": Composition("three sprays of leaves with dew before a sunlit wood", 70.0, 16.0, 0.95, outdoors.sprays),
    "swatches": Composition("strips of tartan hung one behind the other", 60.0, 17.0, 1.05, indoors.swatches),
    "marbles": Composition("glass marbles on felt, from near to far", 60.0, 12.0, 0.75, indoors.marbles),
}
