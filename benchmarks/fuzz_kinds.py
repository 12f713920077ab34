"""The kinds of input that fuzz.py damages: valid ones, how they are damaged, and the public reader of each.

A reader that finds problems without raising returns False: refused. One that returns nonsense raises `Absurd`.
"""

from __future__ import annotations

import io
import math
import pickle
import random
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fuzz_calls import Absurd, Attempt, photograph_attempt, psf_attempt
from fuzz_commands import command_attempt, prepare_commands
from fuzz_mutations import (
    damaged_bytes,
    damaged_json,
    damaged_npy,
    damaged_png,
    damaged_tar,
    damaged_text,
    damaged_zip,
)

ROOT = Path(__file__).resolve().parents[1]
Damage = Callable[[random.Random, bytes], bytes]


@dataclass
class FuzzKind:
    """A kind of input: `attempt` makes one and says how it is read."""

    name: str
    about: str  # what reads it
    attempt: Callable[[random.Random, Path], Attempt]
    prepare: Callable[[Path], None] = lambda folder: None
    needs: tuple[str, ...] = ()  # modules that may not be installed
    seconds: float = 10.0  # at most
    memory_mb: int = 1500  # at most
    quick: int = 30  # inputs of a short run
    named: bool = False  # whether every message names the file


@dataclass
class Files:
    """Files that are damaged and read: valid ones by name, the damage by suffix, and the reader."""

    valid: Callable[[], dict[str, bytes]]
    read: Callable[[Path], Any]
    damage: Mapping[str, Damage] = field(default_factory=dict)
    samples: dict[str, bytes] = field(default_factory=dict)

    def prepare(self, folder: Path) -> None:
        self.samples = self.valid()
        for name, data in self.samples.items():
            (folder / name).write_bytes(data)
            if self.read(folder / name) is False:
                raise AssertionError(f"{name} is refused, and should be valid")

    def attempt(self, rng: random.Random, folder: Path) -> Attempt:
        name = rng.choice(list(self.samples))
        damage = self.damage.get(Path(name).suffix) if rng.random() < 0.8 else None
        data = self.samples[name]
        data = damage(rng, data) if damage else damaged_bytes(rng, data, list(self.samples.values()))
        file = folder / name
        file.write_bytes(data)
        return name, data, lambda: self.read(file)


def _file_kind(name: str, about: str, files: Files, **limits: Any) -> FuzzKind:
    return FuzzKind(name, about, files.attempt, files.prepare, named=True, **limits)


# --- lenses, photographs, depth ---


def _lens_attempt(rng: random.Random, folder: Path) -> Attempt:
    from defocus.glass import constant_index
    from defocus.lens.formats import parse_lens

    samples = _lens_samples()
    name = rng.choice(list(samples))
    data = damaged_json(rng, samples[name]) if name.endswith(".json") else damaged_text(rng, samples[name])
    return name, data, lambda: parse_lens(data, name, fallback_glass=constant_index(1.5))


def _lens_samples() -> dict[str, bytes]:
    if not _LENSES:
        _LENSES.update({p.name: p.read_bytes() for p in sorted((ROOT / "tests/formats/samples").iterdir())})
    return _LENSES


_LENSES: dict[str, bytes] = {}


def _pictures() -> dict[str, bytes]:
    from PIL import Image

    values = (np.indices((16, 24)).sum(0)[..., None] * [5, 3, 4] % 256).astype(np.uint8)
    files = {}
    for name, options in (
        ("a.png", {}),
        ("b.jpg", {"quality": 80}),
        ("c.tif", {"compression": "tiff_lzw"}),
        ("d.tif", {}),
    ):
        buffer = io.BytesIO()
        exif = Image.Exif()
        exif[274], exif[271] = 6, "Maker"
        kind = {".png": "PNG", ".jpg": "JPEG", ".tif": "TIFF"}[Path(name).suffix]
        Image.fromarray(values).save(buffer, kind, exif=exif, **options)  # type: ignore[arg-type]
        files[name] = buffer.getvalue()
    return files


def _raw() -> dict[str, bytes]:
    import tifffile

    stored = (600 + np.indices((32, 48)).sum(0) * 97 % 14_000).astype(np.uint16)
    matrix = (6461, -1164, -857, -3825, 11597, 2534, -416, 1540, 6039)
    tags = [
        (271, 2, None, "Canon", True), (272, 2, None, "Test", True), (274, 3, 1, 1, True),
        (33421, 3, 2, (2, 2), True), (33422, 1, 4, bytes((0, 1, 1, 2)), True),
        (50706, 1, 4, bytes((1, 4, 0, 0)), True), (50708, 2, None, "Canon Test", True), (50714, 4, 1, 512, True),
        (50717, 4, 1, 15872, True), (50721, 10, 9, tuple(n for m in matrix for n in (m, 10_000)), True),
        (50728, 5, 3, (5, 10, 10, 10, 10, 16), True), (50778, 3, 1, 21, True),
    ]  # fmt: skip
    buffer = io.BytesIO()
    tifffile.imwrite(buffer, stored, photometric=32803, extratags=tags, metadata=None)
    return {"a.dng": buffer.getvalue()}


def _png16() -> dict[str, bytes]:
    from defocus.files.pictures import plane_bytes
    from defocus.files.png import png_bytes

    values = np.indices((9, 13)).sum(0)[..., None] * np.array([500, 300, 4000])
    files = {"a.png": png_bytes(values.astype(np.uint16)), "b.png": png_bytes((values // 256).astype(np.uint8))}
    return files | {"c.tif": plane_bytes(values[..., 0].astype(np.float32))}


def _read_png16(file: Path) -> None:
    from defocus.files.pictures import decode_picture, decode_plane

    decode = decode_plane if file.suffix == ".tif" else decode_picture
    decode(file.read_bytes(), file.name)


def _depths() -> dict[str, bytes]:
    from PIL import Image

    depth = (1.0 + np.indices((4, 6)).sum(0) / 3.0).astype(np.float32)
    buffers = {name: io.BytesIO() for name in ("a.npz", "b.npy", "c.png")}
    np.savez_compressed(buffers["a.npz"], depth_m=depth, intrinsics=np.array([50.0, 50.0, 3.0, 2.0]))
    np.save(buffers["b.npy"], depth)
    Image.fromarray((depth * 1000).astype(np.uint16)).save(buffers["c.png"], "PNG")
    files = {name: buffer.getvalue() for name, buffer in buffers.items()}
    files["d.pfm"] = b"Pf\n6 4\n-1.0\n" + depth.tobytes()
    files["e.dpt"] = np.float32(202021.25).tobytes() + np.array([6, 4], np.int32).tobytes() + depth.tobytes()
    return files


def _read_depth(file: Path) -> None:
    from defocus.scene import read_depth

    depth = read_depth(file, scale_m=0.001 if file.suffix == ".png" else None).depth_m
    if not (depth > 0.0).all():  # inf is far away
        raise Absurd("depths that are not positive")


def _read_photo(file: Path) -> None:
    from defocus.photo import RawPhoto, read_photo

    photo = read_photo(file)
    light = photo.mosaic if isinstance(photo, RawPhoto) else photo.rgb
    if not np.isfinite(light).all():
        raise Absurd("light that is not finite")


# --- settings, weights ---


def _settings() -> dict[str, bytes]:
    from defocus.evaluate.table_file import template
    from defocus.restore.config import recipe_names, recipe_text
    from defocus.synth.plan import plan_template

    files = {"plan.toml": plan_template("plan.toml"), "table.toml": template("table.toml")}
    return {name: text.encode() for name, text in files.items()} | {
        f"recipe-{name}.toml": recipe_text(name).encode() for name in recipe_names()
    }


def _read_settings(file: Path) -> None:
    from defocus.evaluate import load_table
    from defocus.restore.config import TrainConfig
    from defocus.synth.plan import load_plan

    {"plan": load_plan, "table": load_table}.get(file.stem, TrainConfig.from_toml)(file)


def weights_files() -> dict[str, bytes]:
    import torch

    from defocus.restore.models import build_model, model_options
    from defocus.restore.models.checkpoints import save_weights

    torch.set_num_threads(1)
    small: dict[str, Any] = {"width": 4, "encoder_blocks": (1,), "decoder_blocks": (1,), "middle_blocks": 1}
    state = build_model("nafnet", "small", **small).state_dict()
    options = model_options("nafnet", "small", **small).model_dump()
    for name in ("a.pth", "b.safetensors"):
        save_weights(name, "nafnet", options, state)
    return {name: Path(name).read_bytes() for name in ("a.pth", "b.safetensors")}


def _weights_attempt(rng: random.Random, folder: Path) -> Attempt:
    """Half of them damaged bytes, half crafted: dictionaries of the right form with wrong things in them."""
    from defocus.restore.models.checkpoints import load_model

    if rng.random() < 0.5:
        return _WEIGHTS.attempt(rng, folder)
    import torch

    content: Any = torch.load(io.BytesIO(_WEIGHTS.samples["a.pth"]), weights_only=True)
    form = rng.randrange(6)
    if form == 0:
        key = rng.choice(list(content))
        content = {k: v for k, v in content.items() if k != key}
    elif form == 1:
        content[rng.choice(list(content))] = _odd_value(rng)
    elif form == 2:
        content["options"][rng.choice(list(content["options"]))] = _odd_value(rng)
    elif form == 3:
        content["state"][rng.choice(list(content["state"]))] = _odd_value(rng)
    elif form == 4:
        inner: dict[Any, Any] = dict(content["state"])
        inner["params"] = inner if rng.random() < 0.5 else {"params": {"params": _odd_value(rng)}}
        content = {rng.choice(("params", "state_dict", "model")): inner}
    else:
        content = {rng.choice(("format", "model", 1, None, "state")): _odd_value(rng) for _ in range(3)}
    buffer = io.BytesIO()
    torch.save(content, buffer)
    file = folder / "crafted.pth"
    file.write_bytes(buffer.getvalue())
    return file.name, buffer.getvalue(), lambda: load_model(file)


def _odd_value(rng: random.Random) -> Any:
    import torch

    values = (
        None, 1, -1, 10**9, 2**70, 1.5, math.nan, "a", "", "A" * 2000, b"a", [], [1, 2], (), {}, {"a": 1}, True,
        torch.zeros(0), torch.zeros(3), torch.full((2, 2), math.nan), torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2, dtype=torch.int8), torch.zeros(1).expand(10**6), torch.zeros(1, 3, 3).to_sparse(),
    )  # fmt: skip
    return rng.choice(values)


def _load_weights(file: Path) -> None:
    from defocus.restore.models.checkpoints import load_model

    load_model(file)


def lpips_files() -> dict[str, bytes]:
    def layer(*shape: int) -> dict[str, np.ndarray]:
        return {"kernel": np.ones(shape, np.float32), "bias": np.zeros(shape[-1], np.float32)}

    tree = {"AlexNet_0": {f"Conv_{n}": layer(3, 3, 2, 4) for n in range(5)}}
    tree |= {f"NetLinLayer_{n}": {"Conv_0": layer(1, 1, 4, 1)} for n in range(5)}
    return {"a.ckpt": pickle.dumps(tree, 4), "b.ckpt": pickle.dumps(tree, 3)}


def _load_lpips(file: Path) -> Any:
    from defocus.errors import FileError
    from defocus.restore.perceptual import Lpips

    try:
        Lpips.load(file)
    except FileError as error:
        if "of another shape" in str(error):  # read to its end: small arrays stand for the large ones
            return True
        raise
    return True


# --- data sets, journals ---


def fake_pairs(folder: Path, layout: str) -> Path:
    sys.path.insert(0, str(ROOT / "tests" / "synth"))
    from fake_folder import fake_folder  # type: ignore[import-not-found]

    roles = ("blurred", "sharp", "depth", "stack_00", "stack_01")
    return fake_folder(folder, layout, pairs=(3, 1, 1), side=32, roles=roles)


@dataclass
class Folders:
    """A data set one of whose files is damaged, read by `verify`, `report` and `PairDataset`, then whole again."""

    layout: str
    names: Callable[[Path], list[str]]
    whole: Path = Path()

    def prepare(self, folder: Path) -> None:
        self.whole = fake_pairs(folder / "whole", self.layout)

    def attempt(self, rng: random.Random, folder: Path) -> Attempt:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.whole, copy)
        name = rng.choice(self.names(copy))
        data = (copy / name).read_bytes()
        suffix = Path(name).suffix
        damage = {".jsonl": damaged_json, ".json": damaged_json, ".tar": damaged_tar, ".txt": damaged_text}
        data = damage.get(suffix, damaged_bytes)(rng, data)
        (copy / name).write_bytes(data)
        if name == "pairs.jsonl" and rng.random() < 0.7:
            (copy / "ledger.sqlite").unlink()  # the lines count where there is no ledger
        reader = rng.choice(("verify", "verify", "pairs", "report"))
        return f"{name} ({reader})", data, lambda: self.read(copy, reader)

    def read(self, folder: Path, reader: str) -> Any:
        from defocus.restore import PairDataset
        from defocus.synth.report import write_report
        from defocus.synth.verify import verify_folder

        if reader == "verify":
            return verify_folder(folder).sound
        if reader == "report":
            return write_report(folder)
        pairs = PairDataset(folder, "train")
        return [pairs[i] for i in range(len(pairs))]


def _metadata_names(folder: Path) -> list[str]:
    from defocus.synth.metadata import CHECKSUMS

    return ["pairs.jsonl", "pairs.jsonl", "plan.json", "ledger.sqlite", CHECKSUMS]


def _shard_names(folder: Path) -> list[str]:
    return [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*.tar"))]


def _journal_attempt(rng: random.Random, folder: Path) -> Attempt:
    """A journal, the journal of a folder of results, or the mark of an owned folder, damaged and read."""
    from defocus.files.journal import Journal
    from defocus.files.ownership import FILES, MARK, OwnedFolder
    from defocus.restore.deblurring import LINES, DeblurFolder, DeblurJob, photo_state

    place = folder / "journal"
    shutil.rmtree(place, ignore_errors=True)
    (place / "photos").mkdir(parents=True)
    photo, result = place / "photos" / "a.png", place / "results" / "a.png"
    photo.write_bytes(b"photograph")
    way = rng.randrange(3)
    if way == 0:
        journal = Journal(place / "a.jsonl", "key")
        for n in range(3):
            journal.write(f"thing {n}", value=n, other=[1, {"a": None}])
        file = place / "a.jsonl"

        def read() -> Any:
            again = Journal(file, "key")
            return again.is_done("thing 1", value=1), again.get("thing 2"), again.write("thing 9", value=9)

    elif way == 1:
        by, job = {"weights": "0" * 32, "tile": 64}, DeblurJob(photo, result)
        DeblurFolder(place / "results", by).write(job, b"result", photo_state(photo))
        file, overwrite = place / "results" / LINES, rng.random() < 0.5

        def read() -> Any:
            return DeblurFolder(place / "results", by).check([job], overwrite=overwrite)

    else:
        owned = OwnedFolder(place / "owned", "evaluation")
        owned.write("a.txt", b"text")
        owned.write("b/c.txt", b"more")
        file = place / "owned" / rng.choice((MARK, FILES))

        def read() -> Any:
            again = OwnedFolder(place / "owned", "evaluation")
            return again.files(), again.write("a.txt", b"new"), again.clear()

    data = damaged_json(rng, file.read_bytes())
    file.write_bytes(data)
    return file.name, data, read


def niqe_files() -> dict[str, bytes]:
    buffer = io.BytesIO()
    np.savez(buffer, mu_pris_param=np.zeros((1, 36)), cov_pris_param=np.eye(36))
    return {"a.npz": buffer.getvalue()}


def _read_niqe(file: Path) -> None:
    from defocus.evaluate.niqe import load_pristine

    pristine = load_pristine(file)
    if not (np.isfinite(pristine.mean).all() and np.isfinite(pristine.covariance).all()):
        raise Absurd("parameters of NIQE that are not finite")


def response_files() -> dict[str, bytes]:
    x = np.linspace(0.0, 1.0, 17)
    rows = [f"{a:.6f} {b:.6f}" for a, b in zip(x, x**0.45, strict=True)]
    return {
        "a.txt": ("# light and display\n" + "\n".join(rows)).encode(),
        "b.csv": "\n".join(rows).replace(" ", ",").encode(),
    }


def _read_response(file: Path) -> None:
    from defocus.photo.response import parse_response

    response = parse_response(str(file))
    if not np.isfinite(np.asarray(response.y)).all():
        raise Absurd("a response that is not finite")


def zemax_psf_files() -> dict[str, bytes]:
    heading = (
        "Listing of HuygensPSF Data\n\nFile : C:\\lens.zmx\n\nHuygens PSF\n\n0.5876 µm at 0.0000, 7.0000 mm.\n"
        "Data spacing is 2.000 µm.\nData area is 16.000 by 16.000 µm.\nImage grid size: 8 by 8\n"
        "Center coordinates  :   0.00000000E+00,   7.00000000E+00 Millimeters\nValues are relative intensity.\n\n"
    )
    text = heading + "\n".join("\t".join(f"{(x + 1) / (y + 1):.6E}" for x in range(8)) for y in range(8))
    return {"a.txt": text.encode("utf-16"), "b.txt": text.encode()}


def _read_zemax_psf(file: Path) -> None:
    from defocus.psf.zemax_psf import read_zemax_psf

    export = read_zemax_psf(file)
    if not (np.isfinite(export.psf).all() and abs(export.psf.sum() - 1.0) < 1e-6 and export.spacing_um > 0.0):
        raise Absurd("a PSF that does not sum to 1")


_PHOTOS = Files(_pictures, _read_photo, {".png": damaged_png})
_RAW = Files(_raw, _read_photo)
_PNG16 = Files(_png16, _read_png16, {".png": damaged_png})


def _npz(rng: random.Random, data: bytes) -> bytes:
    return damaged_zip(rng, data, damaged_npy)


_DEPTH = Files(_depths, _read_depth, {".npz": _npz, ".npy": damaged_npy, ".png": damaged_png, ".pfm": damaged_text})
_SETTINGS = Files(_settings, _read_settings, {".toml": damaged_text})
_WEIGHTS = Files(weights_files, _load_weights)
_LPIPS = Files(lpips_files, _load_lpips)
_NIQE = Files(niqe_files, _read_niqe, {".npz": _npz})
_RESPONSE = Files(response_files, _read_response, {".txt": damaged_text, ".csv": damaged_text})
_ZEMAX_PSF = Files(zemax_psf_files, _read_zemax_psf, {".txt": damaged_text})
_RECORDS, _SHARDS = Folders("dpdd", _metadata_names), Folders("webdataset", _shard_names)

KINDS = {
    kind.name: kind
    for kind in (
        FuzzKind("lens", "`parse_lens`: Zemax, CODE V, Optical Bench, JSON", _lens_attempt, quick=200),
        _file_kind("photo", "`read_photo`: PNG, JPEG, TIFF", _PHOTOS, quick=60),
        _file_kind("raw", "`read_photo`: DNG", _RAW, needs=("rawpy",)),
        _file_kind("png16", "`decode_picture`, `decode_plane`: PNG of 8 and 16 bits, TIFF of floats", _PNG16, quick=60),
        _file_kind("depth", "`read_depth`: npz, npy, png, pfm, dpt", _DEPTH, memory_mb=4000, quick=60),
        _file_kind("toml", "plans, evaluation tables, recipes", _SETTINGS, needs=("torch",)),
        FuzzKind(
            "weights", "`load_model`: torch and safetensors, bytes and crafted", _weights_attempt, _WEIGHTS.prepare,
            needs=("torch", "safetensors"), quick=10,
        ),
        _file_kind("lpips", "`Lpips.load`: pickles", _LPIPS, needs=("torch",), quick=5),
        FuzzKind(
            "records", "`verify`, `report`, `PairDataset`: records, plan, ledger", _RECORDS.attempt, _RECORDS.prepare,
            needs=("torch", "pyarrow"), quick=6,
        ),
        FuzzKind(
            "shards", "`verify`, `report`, `PairDataset`: shards", _SHARDS.attempt, _SHARDS.prepare,
            needs=("torch", "pyarrow"), quick=6,
        ),
        _file_kind("niqe", "`load_pristine`: npz", _NIQE, needs=("torch",), quick=40),
        _file_kind("response", "`parse_response`: tables of text", _RESPONSE, quick=40),
        _file_kind("zemax-psf", "`read_zemax_psf`: listings of text", _ZEMAX_PSF, quick=100),
        FuzzKind(
            "journal", "`Journal`, `DeblurFolder`, `OwnedFolder`", _journal_attempt, needs=("torch",), quick=10
        ),
        FuzzKind(
            "cli", "`defocus …` with wrong files and words", command_attempt, prepare_commands, needs=("torch",),
            seconds=60.0, quick=0,
        ),
        FuzzKind(
            "psf", "`Camera(…).psf(…)` at the ends of its range", psf_attempt, seconds=120.0, memory_mb=6000, quick=12
        ),
        FuzzKind(
            "photograph", "`Camera.photograph` of wrong pictures, depths and options", photograph_attempt,
            seconds=120.0, memory_mb=6000, quick=0,
        ),
    )
}  # fmt: skip
