"""Pairs one at a time, without a folder: for training on pairs that are made while the network learns.

Pair `index` is made of the plan's candidate of that number, without ranking by sharpness. Beyond the last candidate,
in later epochs, and where a candidate is rejected, the same photographs are drawn from again with other random numbers,
and in place of one that cannot be read the next ones: a pair is a pure function of plan, seed, epoch and index. Which
photographs and lenses a split has follows from the plan's own seed alone, so that another seed never mixes splits.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ..errors import DatasetError, DefocusError
from ..files.randomness import seed_for
from .candidates import LensChoice, candidate_numbers, draw_candidates
from .engines import leave_room
from .lens_pool import LensPool, find_lenses
from .pairs import Pair, make_pairs
from .plan import Blur, Plan, PlanLike, SplitName, as_plan
from .recipe import Recipe, pair_id
from .sources import Sharp, SourceCache, SourceName, find_sources

ATTEMPTS = 64
IN_ONE_PHOTOGRAPH = 8  # attempts; then the next photograph is tried

BlurLevels = Blur | Callable[[int], Blur] | None


class OnDemandPairs:
    """Makes the pairs of one split. Can be pickled; copies have the sources and lenses of the first.

    `blur` takes the place of the plan's blur levels: one for all, or a function of the epoch. Each copy holds
    `cache_size` photographs: pairs of neighbouring numbers are cut from the same one. `pool`: the plan's lenses, where
    they were found before; `read`: who reads a photograph, such as another process.
    """

    def __init__(
        self,
        plan: PlanLike,
        split: SplitName,
        *,
        seed: int | None = None,
        blur: BlurLevels = None,
        cache_size: int = 16,
        pool: LensPool | None = None,
        read: Callable[[SourceName, Plan], Sharp] | None = None,
    ) -> None:
        plan = as_plan(plan)
        if split not in plan.splits:
            raise DatasetError(f"the plan has no pairs of the split {split!r}; it has {', '.join(plan.splits)}")
        leave_room()
        self.plan, self.split = plan, split
        self.seed = plan.seed if seed is None else seed
        self._blur, self._cache_size, self._read = blur, cache_size, read
        self.sources = {source.name: source for source in find_sources(plan)[split]}
        self._ends = [numbers.stop for numbers in candidate_numbers(plan, split, len(self.sources))]
        pool = pool or find_lenses(plan)
        self.lenses = {name: pool.lenses[name] for name in pool.of_split[split]}
        self._prepare()

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_cache", "_choice", "_warnings")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        leave_room()
        self._prepare()

    def material(self) -> list[str]:
        """A line for each photograph and lens that lies in the plan's folders: names and sizes of a photograph and its
        depth, which are not read, and the sum of a lens's numbers; not where they lie."""
        lines = []
        for source in self.sources.values():
            if source.photo is not None and source.depth is not None:
                photo, depth = source.photo.stat().st_size, source.depth.stat().st_size
                lines.append(f"{source.name} {photo} {source.depth.name} {depth}")
            elif source.textures:
                lines.append(" ".join([source.name, *(f"{p.name} {p.stat().st_size}" for p in source.textures)]))
        if self.plan.lenses.folders:
            lines += [f"{name} {lens.sha256}" for name, lens in self.lenses.items()]
        return lines

    def _prepare(self) -> None:
        """Make what each process has for itself."""
        self._cache = SourceCache(self.plan, self._cache_size, self._read)
        self._warnings: set[str] = set()
        self._choice = LensChoice.of(list(self.lenses.values()))

    def prefetch(self, indices: Sequence[int], threads: int) -> None:
        """Read the photographs of some pairs of the first epoch side by side; what cannot be read is told later."""
        numbers = {bisect_right(self._ends, index % self._ends[-1]) for index in indices}
        sources = list(self.sources.values())
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(self._cache.get, sources[number]) for number in sorted(numbers)]
        for future in futures:
            future.exception()

    def pair(self, index: int, epoch: int = 0) -> Pair:
        """One pair. Raises `DatasetError` with the last reason where no attempt makes one."""
        return self.pairs([index], epoch)[0]

    def pairs(self, indices: Sequence[int], epoch: int = 0) -> list[Pair]:
        """Many at once, which a GPU does faster; each is the same as alone."""
        for index in indices:
            if index < 0:
                raise DatasetError(f"pair {index} of {self.split}; numbers begin at 0")
        pairs: dict[int, Pair] = {}
        reasons: dict[int, str] = {}
        attempts = dict.fromkeys(indices, 0)  # the next one of each
        while missing := [index for index in attempts if index not in pairs]:
            # All recipes before the first pair: what few of them cost, many cost, too.
            recipes = self._first_recipes(missing, epoch, attempts, reasons)
            sharps = {r.source: self._cache.get(self.sources[r.source]) for r in recipes.values()}
            for index, pair in zip(
                recipes, make_pairs(self.plan, list(recipes.values()), sharps, self.lenses), strict=True
            ):
                if pair.refusal:
                    reasons[index] = pair.refusal
                else:
                    pairs[index] = pair
        return [pairs[index] for index in indices]

    def _first_recipes(
        self, indices: Sequence[int], epoch: int, attempts: dict[int, int], reasons: dict[int, str]
    ) -> dict[int, Recipe]:
        """For each index the recipe of its first attempt from its next one on that is not rejected; moves these on.

        Raises `DatasetError` with the last reason where no attempt is left.
        """
        recipes: dict[int, Recipe] = {}
        while missing := [index for index in indices if index not in recipes]:
            attempt = min(attempts[index] for index in missing)
            if attempt == ATTEMPTS:
                raise DatasetError(
                    f"pair {missing[0]} of {self.split}, epoch {epoch}: {ATTEMPTS} attempts failed, the last one: "
                    f"{reasons[missing[0]]}"
                )
            turn = [index for index in missing if attempts[index] == attempt]
            recipes |= self._recipes(turn, epoch, attempt, reasons)
            attempts.update(dict.fromkeys(turn, attempt + 1))
        return {index: recipes[index] for index in indices}

    def _recipes(self, indices: list[int], epoch: int, attempt: int, reasons: dict[int, str]) -> dict[int, Recipe]:
        """Recipes of those not rejected; photographs and random numbers that go together are drawn at once."""
        groups: dict[tuple[int, int], dict[int, int]] = {}
        for index in indices:
            lap, number = divmod(index, self._ends[-1])
            # Where a split has fewer candidates than photographs, laps and epochs come to all of them.
            moved = seed_for(self.seed, "photographs", epoch, lap) if (epoch, lap) != (0, 0) else 0
            source = bisect_right(self._ends, number) + moved + attempt // IN_ONE_PHOTOGRAPH
            again = (epoch, lap, attempt) != (0, 0, 0)
            seed = seed_for(self.seed, "on demand", epoch, lap, attempt) if again else self.seed
            groups.setdefault((source % len(self.sources), seed), {})[number] = index
        blur = self._blur(epoch) if callable(self._blur) else self._blur or self.plan.blur
        recipes: dict[int, Recipe] = {}
        for (source, seed), numbers in groups.items():
            plan = self.plan.model_copy(update={"seed": seed, "blur": blur})
            try:
                sharp = self._cache.get(list(self.sources.values())[source])
            except DefocusError as error:
                reasons.update(dict.fromkeys(numbers.values(), str(error)))
                self._warn(str(error))
                continue
            outcomes = draw_candidates(plan, self.split, list(numbers), sharp, self._choice)
            for index, outcome in zip(numbers.values(), outcomes, strict=True):
                if outcome.record is None:
                    reasons[index] = outcome.reason
                else:
                    recipe = Recipe.from_json(outcome.record)
                    recipes[index] = replace(recipe, id=pair_id(self.split, index), index=index)
        return recipes

    def _warn(self, reason: str) -> None:
        """Warn once for each photograph and process: training goes on without it."""
        if reason not in self._warnings:
            self._warnings.add(reason)
            warnings.warn(f"a photograph is left out: {reason}", stacklevel=2)
