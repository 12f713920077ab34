"""Focus distances for a patch, as the paper draws them (its section 4.2; facts of its implementation).

Distances are counted in t = 1 / (d − d₀ + 1) with d₀ the nearest focus, in which near and far are equally fine. The
patch's own depths, merged into clusters of width `cluster`, are the places that can be in focus. At least `ends` of the
draws go to the two outermost, the rest evenly to those between, and the two ends share their part so that the mean of
t stays in the middle of the range: neither foreground nor background is preferred. Each draw is then moved evenly by up
to half the gap to its nearest neighbour, so that focus falls between surfaces, too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from .plan import Focus, Plan


def to_t(depth_m: Float[np.ndarray, "*n"] | float, plan: Focus) -> Float[np.ndarray, "*n"]:
    """Where a distance lies on the scale of the draws; near is large."""
    return np.asarray(1.0 / (np.asarray(depth_m, np.float64) - plan.nearest_m + 1.0))


def from_t(t: Float[np.ndarray, "*n"] | float, plan: Focus) -> Float[np.ndarray, "*n"]:
    """The distance in metres."""
    return np.asarray(1.0 / np.asarray(t, np.float64) - 1.0 + plan.nearest_m)


def focus_places(depth_m: tuple[float, float], cells: Int[np.ndarray, " k"], plan: Focus) -> Float[np.ndarray, " n"]:
    """The depths of a patch as ascending places on the scale: its two ends, and the clusters between.

    `depth_m` are the nearest and the farthest depth, `cells` the clusters that hold any, counted from the farthest; of
    these the middles count that lie more than a cluster away from both ends.
    """
    low, high = to_t(np.clip(depth_m[::-1], plan.nearest_m, plan.farthest_m), plan)
    inner = low + (cells + 0.5) * plan.cluster
    inner = inner[(inner > low + plan.cluster) & (inner < high - plan.cluster)]
    return np.array([low, *inner, high])


def weights(places: Float[np.ndarray, " k"], plan: Focus) -> Float[np.ndarray, " k"]:
    """How likely each place is."""
    low, high = places[0], places[-1]
    inner = places[1:-1]
    mass = 1.0 - plan.ends if len(inner) else 0.0
    half = (high - low) / 2.0
    # Ends that balance the inner places: w_high − w_low = −mass (mean − middle) / half.
    lean = 0.0 if half <= 0.0 or not len(inner) else -mass * (inner.mean() - (low + high) / 2.0) / half
    ends = 1.0 - mass
    return np.array([(ends - lean) / 2.0, *(mass / len(inner) for _ in inner), (ends + lean) / 2.0])


def gaps(places: Float[np.ndarray, " k"], plan: Focus) -> Float[np.ndarray, " k"]:
    """Distance of each place to its nearest neighbour, and no less than a cluster."""
    steps = np.diff(places)
    nearest = np.minimum(np.concatenate([[np.inf], steps]), np.concatenate([steps, [np.inf]]))
    return np.maximum(np.where(np.isfinite(nearest), nearest, 0.0), plan.cluster)


@dataclass(frozen=True)
class FocusDistribution:
    """The focus distances that may be drawn for one patch."""

    places: Float[np.ndarray, " k"]
    cumulative: Float[np.ndarray, " k"]  # how likely a place up to this one is
    gaps: Float[np.ndarray, " k"]
    plan: Focus

    @classmethod
    def of(cls, places: Float[np.ndarray, " k"], plan: Focus) -> FocusDistribution:
        """The distribution over the places of a patch."""
        cumulative = weights(places, plan).cumsum()
        return cls(places, cumulative / cumulative[-1], gaps(places, plan), plan)

    @property
    def reach_m(self) -> tuple[float, float]:
        """The nearest and the farthest distance that may be drawn."""
        ends = np.array([self.places[-1] + self.gaps[-1] / 2.0, self.places[0] - self.gaps[0] / 2.0])
        near, far = from_t(np.clip(ends, *_range(self.plan)), self.plan)
        return float(near), float(far)

    def distances_m(self, even: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
        """Focus distances in metres; each of a pair of even numbers below 1, for the place and for the way from it."""
        index = self.cumulative.searchsorted(even[:, 0], side="right")
        t = self.places[index] + (even[:, 1] - 0.5) * self.gaps[index]
        return from_t(np.clip(t, *_range(self.plan)), self.plan)


def stack_distances(plan: Plan, depth_m: tuple[float, float]) -> tuple[float, ...]:
    """Focus distances (m) of a patch's focal stack, the nearest first: those of the plan, or from its nearest depth to
    its farthest in even steps of 1/d, which are steps of equal blur."""
    near, far = np.clip(depth_m, plan.focus.nearest_m, plan.focus.farthest_m)
    even = 1.0 / np.linspace(1.0 / near, 1.0 / far, plan.labels.focal_stack)
    return plan.labels.focal_stack_m or tuple(even.tolist())


@functools.lru_cache(maxsize=8)
def _range(plan: Focus) -> tuple[float, float]:
    return float(to_t(plan.farthest_m, plan)), float(to_t(plan.nearest_m, plan))
