"""One compiled program for many lenses: same numbers as one at a time, whatever the padding, and no recompilation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from defocus.lens.prescription import D_LINE_NM
from defocus.optics.batch import any_lens, over_lenses
from defocus.optics.system import COMMON_BUCKETS, Bucket, bucket_of, group_by_bucket, pack
from defocus.optics.trace import BLOCK, Rays, trace

from .harness import LARGE, LENSES, MEDIUM, RAYS, SMALL, first_order_batch, trace_batch, trace_items
from .samples import all_samples, double_gauss, phone


def close(a, b, tolerance: float = 1e-12) -> None:  # type: ignore[no-untyped-def]
    assert (a.alive == b.alive).all()
    for name in ("position", "direction", "path"):
        assert np.abs(getattr(a, name) - getattr(b, name)).max() <= tolerance, name
    count = min(a.clips.shape[1], b.clips.shape[1])
    one, other = (np.nan_to_num(c.clips[:, :count], posinf=-2.0) for c in (a, b))
    assert np.abs(one - other).max() <= 100 * tolerance


def test_a_batch_is_its_lenses(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """Five lenses together, and each of them alone in a batch of copies of itself."""
    items = [(one, D_LINE_NM) for one in sample_rays.lenses]
    rays = [v[:, 1] for v in (sample_rays.position, sample_rays.direction, sample_rays.path)]
    together = trace_items(items, *rays)
    for i, item in enumerate(items):
        alone = trace_items([item], *(v[i : i + 1] for v in rays))
        for name, got in vars(alone).items():
            assert np.array_equal(got[0], getattr(together, name)[i], equal_nan=True), (item[0].name, name)


def test_padding_does_not_matter(sample_rays) -> None:  # type: ignore[no-untyped-def]
    """The same lens in the bucket that just holds it and in larger ones."""
    items = [(one, D_LINE_NM) for one in sample_rays.lenses]
    rays = [v[:, 2] for v in (sample_rays.position, sample_rays.direction, sample_rays.path)]
    small = trace_items(items, *rays, bucket=SMALL)
    passes = small.passes
    assert passes.sum() > 20
    close(small, trace_items(items, *rays, bucket=LARGE))
    # Without odd terms three of them fit into a bucket that has none.
    even = [i for i, (one, _) in enumerate(items) if bucket_of(one).odd == 0]
    chosen = [v[even] for v in rays]
    close(trace_items([items[i] for i in even], *chosen), trace_items([items[i] for i in even], *chosen, bucket=MEDIUM))


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Names of the programs that JAX compiles while a test runs."""
    seen: list[str] = []

    def listen(event: str, duration: float, **more: object) -> None:
        if event.endswith("backend_compile_duration"):
            seen.append(str(more.get("fun_name", event)))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.clear_event_listeners() if hasattr(jax.monitoring, "clear_event_listeners") else None


def test_twenty_lenses_of_a_bucket_compile_nothing_new(compilations: list[str]) -> None:
    """After the first lens of a bucket, others of any shape, number of surfaces or stop are traced as they are."""
    base = [*all_samples()] * 4
    lenses = [
        replace(one, surfaces=tuple(replace(s, thickness=s.thickness * (1 + 0.01 * i)) for s in one.surfaces))
        for i, one in enumerate(base)
    ]
    assert len(lenses) == 20
    systems = [pack([one] * LENSES, bucket=SMALL) for one in lenses]
    flat = np.zeros((LENSES, 3, RAYS))
    forwards = flat.copy()
    forwards[:, 2] = 1.0
    rays = Rays(jnp.asarray(flat), jnp.asarray(forwards), jnp.zeros((LENSES, RAYS)))
    trace_batch(systems[0], rays, record=True)
    first_order_batch(systems[0])
    compilations.clear()
    for system in systems:
        assert bool(jnp.all(trace_batch(system, rays, record=True).alive[:, 0]))
        first_order_batch(system)
    assert [name for name in compilations if "trace" in name or "first_order" in name] == []


def test_a_new_bucket_does_compile(compilations: list[str]) -> None:
    """The counter of the test above counts."""
    system = pack([double_gauss()] * 3, bucket=Bucket(16, 0, 0))
    position = jnp.zeros((3, 3, 2))
    rays = Rays(position, position.at[:, 2].set(1.0), jnp.zeros((3, 2)))
    compilations.clear()
    trace_batch(system, rays)
    assert compilations


def test_groups_cover_all_lenses_once() -> None:
    lenses = [*all_samples(), double_gauss(), phone()]
    for fewest in (1, 2, 100):
        groups = group_by_bucket(lenses, fewest=fewest)
        members = [i for _, some in groups for i in some]
        assert sorted(members) == list(range(len(lenses)))
        for bucket, some in groups:
            assert all(bucket.holds(bucket_of(lenses[i])) for i in some)
    assert len(group_by_bucket(lenses, fewest=1)) > len(group_by_bucket(lenses, fewest=100))
    assert {bucket for bucket, _ in group_by_bucket(lenses, fewest=100)} <= set(COMMON_BUCKETS)


def test_as_an_accelerator_takes_a_batch(sample_rays, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """All lenses in one step, with branches that the whole batch takes or leaves: the same as one after the other."""
    lenses = list(sample_rays.lenses)
    system = pack(lenses, D_LINE_NM, LARGE)
    assert system.surfaces % BLOCK == 0
    used = np.asarray(system.active).any(0).reshape(-1, BLOCK).any(1)
    assert used[0]
    assert not used.all()  # a block that no lens has is skipped
    rays = Rays(*(jnp.asarray(v[:, 1]) for v in (sample_rays.position, sample_rays.direction, sample_rays.path)))
    one_by_one = trace_batch(system, rays, record=True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    at_once = jax.jit(jax.vmap(lambda s, r: trace(s, r, record=True)))
    together = at_once(system, rays)
    close(together, one_by_one)
    assert np.array_equal(together.clip_surface, one_by_one.clip_surface)
    flags = jnp.array([False, True, False])
    assert jax.vmap(any_lens)(flags).tolist() == [True] * 3
    # Only spherical lenses: no branch with Newton's steps is taken, and the numbers stay.
    plain = [i for i, lens in enumerate(lenses) if not any(s.aspheric for s in lens.surfaces)]
    chosen = np.resize(plain, len(lenses))
    alone = at_once(*jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], (system, rays)))
    assert np.array_equal(alone.position, together.position[chosen], equal_nan=True)


def test_an_accelerator_takes_a_few_rows_at_once_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole steps of a batch up to the rows that count, the rest zeros; a processor row by row."""
    values = np.arange(1.0, 9.0)

    def squares(count: int) -> list[float]:
        program = jax.jit(lambda v, n: over_lenses(lambda x: x**2, v, count=n, at_once=2))
        return np.asarray(program(values, count)).tolist()

    assert squares(3) == [1.0, 4.0, 9.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert squares(3) == [1.0, 4.0, 9.0, 16.0, 0.0, 0.0, 0.0, 0.0]
    assert squares(8) == [v**2 for v in values.tolist()]
