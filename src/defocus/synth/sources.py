"""Sharp photographs with their depth, reduced to the size at which patches are cut.

A source is a RAW file, a picture, a procedural scene, or a scene composed of photographs; all become linear sRGB light
and metres. Depth is clipped to the plan's range. A photograph in portrait format is turned, so that all have the same
pixels. Photographs that scenes are composed of are divided among the splits like others, and then the scenes are drawn:
no photograph is seen in two splits.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from threading import Lock

import jax
import numpy as np
from jaxtyping import Array, Float

from ..errors import DefocusError, PhotoError, PlanError
from ..files.pictures import PICTURES, RAW_SUFFIXES, quantise, read_picture
from ..files.randomness import generator, seed_for
from ..photo.isp import SensorColour
from ..scene.procedural import SCENES
from ..scene.surface_stack import MOST_SURFACES, SurfaceStack
from .lens_pool import divide
from .plan import PhotoSource, Plan, SplitName

CACHE_SIZE = 8  # photographs that a worker holds
DPDD_SPLITS: dict[str, SplitName] = {"train_c": "train", "val_c": "validation", "test_c": "test"}
DPDD_RAW = re.compile(r"1P0A(0[89]|1\d|2[0-5])\d\d\.CR2", re.IGNORECASE)  # from 1P0A0890 to 1P0A2544


@dataclass(frozen=True)
class SourceName:
    """One photograph before it is read."""

    name: str  # unique in the plan: "scene:portrait:17", or a path
    kind: str
    photo: Path | None = None
    depth: Path | None = None
    resize_depth: bool = True
    depth_scale_m: float | None = None
    split: SplitName | None = None  # of DPDD's photographs, their own
    textures: tuple[Path, ...] = ()  # photographs that a scene is composed of
    prefilter_px: float = 0.0

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read for it: the photograph and its depth, or the photographs of a composed scene."""
        return tuple(file for file in (self.photo, self.depth, *self.textures) if file is not None)

    def sha256(self) -> str:
        """Sum of the bytes of its files, as the records have it."""
        return hashlib.sha256(b"".join(file.read_bytes() for file in self.files)).hexdigest()


@dataclass(frozen=True)
class Sharp:
    """A photograph as patches are cut from it."""

    name: str
    kind: str
    sha256: str
    linear: Float[np.ndarray, "rows cols 3"]
    depth_m: Float[np.ndarray, "rows cols"]
    colour: SensorColour
    notes: tuple[str, ...]
    without_depth: float = 0.0  # part of the pixels whose depth was filled in
    stack: SurfaceStack | None = None  # of a composed scene: its surfaces, of numpy

    @property
    def diagonal_px(self) -> float:
        """Diagonal in pixels, which fills a lens's image circle."""
        return float(np.hypot(*self.depth_m.shape))

    @property
    def on_device(self) -> tuple[Array, Array]:
        """Light and depth where JAX computes; a GPU keeps them for the next tasks."""
        return jax.device_put((self.linear, self.depth_m)) if jax.default_backend() == "cpu" else self._on_gpu

    @cached_property
    def _on_gpu(self) -> tuple[Array, Array]:
        return jax.device_put((self.linear, self.depth_m))


def find_sources(plan: Plan) -> dict[SplitName, tuple[SourceName, ...]]:
    """Every photograph of a plan, divided among its splits. Raises `PlanError` for an empty folder or missing depth."""
    by_name: dict[str, SourceName] = {}
    readers = {"scenes": _scenes, "composed": _composed}
    for number, source in enumerate(plan.sources):
        if source.folder is not None and not source.folder.is_dir():
            raise PlanError(f"sources.{number}.folder: {source.folder} is not a folder")
        for one in readers[source.kind](source, plan, number) if source.kind in readers else _files(source, number):
            if one.name in by_name:
                raise PlanError(f"sources.{number}: {one.name} is there twice")
            by_name[one.name] = one
    settled = {one.name: one.split for one in by_name.values() if one.split is not None}
    named = any(plan.split(split).images for split in plan.splits)
    for one in () if named or len(plan.splits) == 1 else by_name.values():
        if one.split is None and DPDD_RAW.fullmatch(PurePath(one.name).name):
            raise PlanError(
                f"sources: {one.name} is named as DPDD's RAW files are, whose test scenes must not be trained on: set "
                "split_folder to DPDD's pictures (the folder with train_c, val_c and test_c), or name images of splits"
            )
    composed = {name: one for name, one in by_name.items() if one.textures}
    others = sorted(name for name in by_name if name not in composed)
    division = divide(plan, others, "images", settled) if others else dict.fromkeys(plan.splits, ())
    groups = {split: tuple(by_name[name] for name in names) for split, names in division.items()}
    return {split: (*own, *(o for o in composed.values() if o.split == split)) for split, own in groups.items()}


def find_source(plan: Plan, name: str) -> SourceName:
    """One photograph of a plan by its name."""
    sources = {source.name: source for group in find_sources(plan).values() for source in group}
    if name not in sources:
        raise PlanError(f"sources: {name} is not there any more")
    return sources[name]


def read_source(source: SourceName, plan: Plan) -> Sharp:
    """Read a photograph with its depth, or make a scene; a `DefocusError` names the file."""
    if source.kind == "scenes":
        return _make_scene(source, plan)
    try:
        return _compose(source, plan) if source.textures else _read_files(source, plan)
    except (DefocusError, MemoryError):
        raise
    except Exception as error:  # a reader that did not expect what a damaged file holds
        what = f"with its depth {source.depth}" if source.photo else f"for the scene {source.name}"
        reason = f"cannot be read {what}: {type(error).__name__}: {error}"
        raise PhotoError(reason, file=source.files[0]) from error


class SourceCache:
    """The latest photographs in use. Threads may share it; two never read the same one at once.

    `read` is who reads a photograph in place of this process, such as another one.
    """

    def __init__(
        self, plan: Plan, size: int = CACHE_SIZE, read: Callable[[SourceName, Plan], Sharp] | None = None
    ) -> None:
        self._plan, self._size, self._read = plan, size, read
        self._photographs: OrderedDict[str, Future[Sharp]] = OrderedDict()
        self._lock = Lock()

    def get(self, source: SourceName) -> Sharp:
        """The photograph; a `DefocusError` is raised again to all who ask for it."""
        with self._lock:
            first = source.name not in self._photographs
            photograph = self._photographs.setdefault(source.name, Future())
            self._photographs.move_to_end(source.name)
            while len(self._photographs) > self._size:
                self._photographs.popitem(last=False)
        if first:
            try:
                photograph.set_result((self._read or read_source)(source, self._plan))
            except BaseException as error:
                if not isinstance(error, DefocusError):  # such as too little memory: may go well another time
                    with self._lock:
                        self._photographs.pop(source.name, None)
                photograph.set_exception(error)
        return photograph.result()


def _scenes(source: PhotoSource, plan: Plan, number: int) -> list[SourceName]:
    names = source.names or SCENES
    for name in names:
        if name not in SCENES:
            raise PlanError(f"sources.{number}.names: no scene {name!r}; known are {', '.join(SCENES)}")
    seeds = [seed_for(plan.seed, "scene", number, k) for k in range(source.count)]
    return [SourceName(f"scene:{names[k % len(names)]}:{seed}", "scenes") for k, seed in enumerate(seeds)]


def _composed(source: PhotoSource, plan: Plan, number: int) -> list[SourceName]:
    """Scenes for every split, as many for each as it has of the photographs."""
    assert source.folder is not None
    files = {p.relative_to(source.folder).as_posix(): p for p in _pictures(source.folder, PICTURES)}
    if not files:
        raise PlanError(f"sources.{number}.folder: no photographs in {source.folder} ({', '.join(PICTURES)})")
    scenes = []
    for split, names in divide(plan, sorted(files), "images").items():
        for k in range(max(1, round(source.count * len(names) / len(files)))):
            own = generator(plan.seed, "composed", number, split, k).permutation(len(names))[:MOST_SURFACES]
            textures = tuple(files[names[i]] for i in np.resize(own, MOST_SURFACES))
            name = f"composed:{number}:{split}:{k}"
            scenes.append(
                SourceName(name, "composed", split=split, textures=textures, prefilter_px=source.prefilter_px)
            )
    return scenes


def _files(source: PhotoSource, number: int) -> list[SourceName]:
    folder = source.folder
    assert folder is not None
    photos = _photos(source)
    pairs = [(photo, depth) for photo, depth in photos if depth.is_file()]
    if not pairs:
        suffixes = RAW_SUFFIXES if source.kind == "raw" else PICTURES
        why = f"; {photos[0][1]} is missing, for one" if photos else f" ({', '.join(suffixes)})"
        raise PlanError(f"sources.{number}.folder: no photograph with depth in {folder}{why}")
    options = source.resize_depth, source.depth_scale_m
    splits = None if source.split_folder is None else _listed_splits(source.split_folder, number)
    sources: list[SourceName] = []
    for photo, depth in pairs:
        name = photo.relative_to(folder).as_posix()
        split = dpdd_split(name) if splits is None else splits.get(photo.stem)
        if splits is None or split is not None:
            sources.append(SourceName(name, source.kind, photo, depth, *options, split))
    if not sources:
        raise PlanError(f"sources.{number}.split_folder: no picture in it has the name of a photograph in {folder}")
    return sources


def dpdd_split(name: str) -> SplitName | None:
    """The split of a photograph in DPDD's folders (train_c, val_c, test_c, also with _target), by its path."""
    splits = (DPDD_SPLITS.get(part.removesuffix("_target")) for part in PurePath(name).parts)
    return next((split for split in splits if split is not None), None)


def _listed_splits(folder: Path, number: int) -> dict[str, SplitName]:
    """The split of each of DPDD's sharp pictures by its name without suffix."""
    pictures = (p.relative_to(folder) for p in folder.rglob("*") if p.suffix.lower() in (*PICTURES, *RAW_SUFFIXES))
    splits = {p.stem: dpdd_split(p.as_posix()) for p in pictures if _is_sharp(p)}
    listed = {stem: split for stem, split in splits.items() if split is not None}
    if not listed:
        raise PlanError(f"sources.{number}.split_folder: no pictures in train_c, val_c or test_c of {folder}")
    return listed


def _is_sharp(path: PurePath) -> bool:
    """Whether a picture in DPDD's folders is not one of its blurred ones."""
    return dpdd_split(path.as_posix()) is None or not {"source", "l_view", "r_view", "left", "right"} & set(path.parts)


def missing_depths(plan: Plan) -> list[str]:
    """Photographs that are left out because they have no depth file."""
    folders = [source for source in plan.sources if source.kind in ("raw", "rgb")]
    return [str(photo) for source in folders for photo, depth in _photos(source) if not depth.is_file()]


def _photos(source: PhotoSource) -> list[tuple[Path, Path]]:
    """The photographs in a folder, each with where its depth should be."""
    assert source.folder is not None
    suffixes = RAW_SUFFIXES if source.kind == "raw" else PICTURES
    depths = {
        photo: photo.parent / source.depth.format(stem=photo.stem, folder=photo.parent.as_posix())
        for photo in _pictures(source.folder, suffixes)
    }
    others = set(depths.values())  # some may lie among the pictures
    return [one for one in depths.items() if one[0] not in others and _is_sharp(one[0].relative_to(source.folder))]


def _pictures(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())


def _compose(source: SourceName, plan: Plan) -> Sharp:
    from ..scene.photo_scenes import compose_scene, filled_up

    def picture(number: int) -> np.ndarray:
        return quantise(read_picture(source.textures[number])[0], 8)

    seed = seed_for(plan.seed, source.name)
    stack = compose_scene(picture, plan.patch.photograph, seed, source.prefilter_px)
    stack = filled_up(SurfaceStack(stack.colour, stack.opacity, _clipped(np.asarray(stack.depth_m), plan)))
    linear = np.ascontiguousarray(stack.picture(), np.float32)
    colour = SensorColour.make()
    return Sharp(source.name, source.kind, source.sha256(), linear, stack.visible_depth(), colour, (), stack=stack)


def _make_scene(source: SourceName, plan: Plan) -> Sharp:
    from ..scene.procedural import make_scene

    _, name, seed = source.name.split(":")
    scene = make_scene(name, plan.patch.photograph, int(seed)).picture(samples=16)
    digest = hashlib.sha256(f"{source.name} {plan.patch.photograph}".encode()).hexdigest()
    return Sharp(source.name, source.kind, digest, scene.linear, _clipped(scene.depth_m, plan), SensorColour.make(), ())


def _read_files(source: SourceName, plan: Plan) -> Sharp:
    from ..photo import read_photo, reduced
    from ..scene.depth_files import read_depth

    assert source.photo is not None
    assert source.depth is not None
    photo = read_photo(source.photo)
    depth = read_depth(source.depth, scale_m=source.depth_scale_m).fitted(photo.size, resize=source.resize_depth)
    linear, metres = photo.linear(), depth.depth_m
    if metres.shape[0] > metres.shape[1]:
        linear, metres = np.rot90(linear), np.rot90(metres)
    size = _target((metres.shape[1], metres.shape[0]), plan.patch.photograph)
    if size != (metres.shape[1], metres.shape[0]):
        linear = reduced(np.ascontiguousarray(linear), size)
        from ..scene.depth_maps import complete_depth

        metres = complete_depth(np.ascontiguousarray(metres)).fitted(size, resize=True).depth_m
    colour = photo.colour if photo.colour is not None else SensorColour.make()
    return Sharp(
        source.name, source.kind, source.sha256(), np.ascontiguousarray(linear, np.float32),
        _clipped(metres, plan), colour, (*photo.notes, *depth.notes), float(depth.filled.mean()),
    )  # fmt: skip


def _target(size: tuple[int, int], limit: tuple[int, int]) -> tuple[int, int]:
    """Size of a photograph that is reduced to the diagonal of `limit`; never larger than it is."""
    factor = min(1.0, float(np.hypot(*limit) / np.hypot(*size)))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _clipped(depth_m: Float[np.ndarray, "*shape"], plan: Plan) -> Float[np.ndarray, "*shape"]:
    return np.clip(np.asarray(depth_m, np.float32), plan.depth.nearest_m, plan.depth.farthest_m)
