"""Every lens file of the reference data: what loads, what is refused, and that the optics come out right."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from defocus.errors import LensFileError, UnsupportedLensError
from defocus.lens.formats import parse_lens, read_lens, write_lens
from defocus.lens.formats.json_format import json_text
from defocus.lens.formats.zemax_write import zemax_text

pytestmark = pytest.mark.shared

# Files whose focal length differs from Optiland's for a known reason.
OPTILAND_DIFFERS = {
    # its glass lookup finds another material; ours puts the image on the file's image plane
    "lenslibrary/4505553.zmx",
    "lenslibrary/Kidger2004.zmx",
    "lenslibrary/Liang2002b.zmx",
    "lenslibrary/Liang2006a.zmx",
    "lenslibrary/Liang2006b.zmx",
    "lenslibrary/Liang2006c.zmx",
    "lenslibrary/Liang2006d.zmx",
    "lenslibrary/Liang2006e.zmx",
    "lenslibrary/Smith1992a.zmx",
    "lenslibrary/Smith1998a.zmx",
    "lenslibrary/Smith1998b.zmx",
    "rayoptics/354710-C-Zemax(ZMX).zmx",
    "rayoptics/US08427765-1.ZMX",
    # likewise, and the image is in water
    "lenslibrary/Liang2002a.zmx",
    # its paraxial trace leaves out the r² terms
    "lenslibrary/9201224.zmx",
}
# The paraxial image lies off the image plane: balanced spherical aberration of fast objectives.
NOT_PARAXIAL = {"lenslibrary/Liang2006b.zmx", "lenslibrary/Liang2006d.zmx", "lenslibrary/Liang2006e.zmx"}


@pytest.fixture(scope="module")
def zmx_index(shared: Path) -> list[dict[str, str]]:
    with (shared / "zmx" / "INDEX.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _supported(row: dict[str, str]) -> bool:
    return row["only_standard_evenasph"] == "yes" and row["has_mirror"] == "no"


def test_zmx_that_load(shared: Path, zmx_index: list[dict[str, str]], gaussian) -> None:
    rows = [row for row in zmx_index if _supported(row)]
    assert len(rows) == 69
    wrong = []
    for row in rows:
        lens = read_lens(shared / "zmx" / row["file"])
        expected = float(row["optiland_paraxial_efl"] or "nan")
        unit = {"MM": 1.0, "IN": 25.4}[row["unit"]]
        focal = gaussian(lens).focal_length / unit
        # The index has five digits; model glass off the d line adds to that.
        agrees = focal == pytest.approx(expected, rel=2e-4)
        if math.isfinite(expected) and agrees == (row["file"] in OPTILAND_DIFFERS):
            wrong.append((row["file"], focal, expected))
        if row["file"] in OPTILAND_DIFFERS - NOT_PARAXIAL:
            optics = gaussian(lens)
            if abs(optics.defocus) > 0.06 * min(abs(optics.focal_length), 20.0):
                wrong.append((row["file"], optics.defocus, 0.0))
        if len(lens.states) != (0 if row["n_configurations"] == "1" else int(row["n_configurations"])):
            wrong.append((row["file"], len(lens.states), row["n_configurations"]))
        if lens.field is None or len(lens.field.points) not in (int(row["n_fields"]), 1):
            wrong.append((row["file"], lens.field, row["n_fields"]))
        if len(lens.wavelengths_nm) != int(row["n_wavelengths"]):
            wrong.append((row["file"], lens.wavelengths_nm, row["n_wavelengths"]))
    assert not wrong


def test_zmx_that_are_refused(shared: Path, zmx_index: list[dict[str, str]]) -> None:
    rows = [row for row in zmx_index if not _supported(row)]
    assert len(rows) == 38
    for row in rows:
        with pytest.raises(UnsupportedLensError) as caught:
            read_lens(shared / "zmx" / row["file"])
        types = {*row["surface_types"].split(), *row["glasses"].split()} - {"STANDARD", "EVENASPH"}
        assert caught.value.surface is not None, row["file"]
        assert any(t in caught.value.message for t in types), (row["file"], caught.value.message)


def test_generated_zmx(shared: Path, gaussian) -> None:
    """Written from `lenses/` by others: the same surfaces, up to the digits that they kept."""
    paths = sorted((shared / "zmx" / "generated").rglob("*.zmx"))
    assert len(paths) == 6
    twins = {
        "DeepLens": "phone/deeplens-cellphone-68deg.json",
        "EP3029504A1": "interchangeable/leica-summilux-tl-35mm-f14-asph.json",
        "GB850117": "interchangeable/carl-zeiss-jena-pancolar-50f2.json",
        "JP2017003807": "interchangeable/nikon-af-s-nikkor-24mm-f18g-ed.json",
        "US20170003482": "phone/phone-us20170003482a1.json",
    }
    for path in paths:
        lens = read_lens(path)
        twin = read_lens(shared / "lenses" / twins[path.name.split("_")[0]])
        assert gaussian(lens).focal_length == pytest.approx(gaussian(twin).focal_length, rel=1e-4), path.name


def test_configurations_of_real_zooms(shared: Path, gaussian) -> None:
    yang = read_lens(shared / "zmx" / "lenslibrary" / "Yang2016b.zmx")
    assert yang.state_names == ("config 1", "config 2", "config 3")
    focal = [gaussian(yang.in_state(name)).focal_length for name in yang.state_names]
    assert focal == sorted(focal)
    wide = read_lens(shared / "zmx" / "lenslibrary" / "9201224.zmx")
    assert [s.aperture.value if s.aperture else None for s in wide.states] == [None, 2.75, 2.97]
    assert wide.in_state(2).field.points[2] == (0.0, 23.2)


SEQ_LOADS = {  # focal length in mm
    "optiland/asphere.seq": 60.33,
    "optiland/cooke_triplet.seq": 50.33,
    "optiland/fno_fields.seq": 98.10,
    "optiland/telescope_objective.seq": 47.99,
    "rayoptics/CODV_32327.seq": 100.03,
    "rayoptics/CODV_49664.seq": 35.01,
    "rayoptics/CODV_65564.seq": 1.499,
    "rayoptics/CODV_65988_noDOE.seq": 15.86,
    "rayoptics/ag_dblgauss.seq": 100.0,
    "rayoptics/asp46.seq": math.inf,  # two planes, one of them with r⁴ and r⁶ terms
    "rayoptics/landscape_lens.seq": 10.0,
    "rayoptics/singlet.seq": 13.0,
    "rayoptics/test.seq": 159.5,  # no image surface; a listing of syntax rather than a lens
    "rayoptics/unfolded_lenses_w_ape.seq": 2564.0,  # nearly afocal: lenses unfolded along a path of mirrors
}
SEQ_REFUSED = {  # surface and keyword
    "optiland/mirror.seq": (1, "REFL"),
    "rayoptics/CODV_35571.seq": (2, "REFL"),
    "rayoptics/CODV_65988.seq": (1, "DIF"),
    "rayoptics/achroMangin.seq": (3, "REFL"),
    "rayoptics/achroMangin_ok.seq": (3, "REFL"),
    "rayoptics/dar_test.seq": (2, "ADE"),
    "rayoptics/dec_rev_tilt_test.seq": (2, "YDE"),
    "rayoptics/dec_test.seq": (2, "YDE"),
    "rayoptics/dec_tilt_test.seq": (2, "REFL"),
    "rayoptics/folded_lenses.seq": (2, "REFL"),
    "rayoptics/lens_reflection_test.seq": (2, "REFL"),
    "rayoptics/mangin.seq": (2, "REFL"),
    "rayoptics/paraboloid.seq": (1, "REFL"),
    "rayoptics/paraboloid_f8.seq": (1, "REFL"),
    "rayoptics/questar35.seq": (2, "CIR OBS"),
    "rayoptics/rc_f16.seq": (1, "REFL"),
    "rayoptics/schmidt.seq": (3, "REFL"),
    "rayoptics/schmidt_sph.seq": (3, "REFL"),
    "rayoptics/threemir.seq": (2, "REFL"),
    "rayoptics/tilt_test.seq": (2, "ADE"),
}
# Where the file's image is the paraxial one (or nearly so), in mm.
SEQ_FOCUS = {
    "optiland/cooke_triplet.seq": 0.5,
    "optiland/telescope_objective.seq": 0.02,
    "rayoptics/CODV_32327.seq": 1e-3,
    "rayoptics/CODV_49664.seq": 0.02,
    "rayoptics/CODV_65564.seq": 1e-5,
    "rayoptics/ag_dblgauss.seq": 0.401,  # the file's own defocus
    "rayoptics/landscape_lens.seq": 1e-3,
}


def test_seq(shared: Path, gaussian) -> None:
    files = {p.relative_to(shared / "seq").as_posix() for p in (shared / "seq").rglob("*.seq")}
    assert files == SEQ_LOADS.keys() | SEQ_REFUSED.keys()
    assert len(files) == 34
    for name, focal in SEQ_LOADS.items():
        lens = read_lens(shared / "seq" / name)
        optics = gaussian(lens)
        assert optics.focal_length == pytest.approx(focal, rel=1e-3), name
        if name in SEQ_FOCUS:
            assert abs(optics.defocus) < SEQ_FOCUS[name], name
    for name, (surface, keyword) in SEQ_REFUSED.items():
        with pytest.raises(UnsupportedLensError, match=keyword) as caught:
            read_lens(shared / "seq" / name)
        assert caught.value.surface == surface


BENCH_STATES = {
    "JP2019-008031_Example01P.txt": 3,
    "JP2019-152887_Example03P-Nikon-400mm-f2.8FL.txt": 2,
    "JP2020-177057_Example01P.txt": 3,
    "Sigma-40mmf1.4.txt": 2,
    "WO2020-170591_Example09.txt": 12,
    "canon-rf-50mmf1.2.txt": 2,
    "nikkor-z-58mmf0.95_ex1.txt": 0,
}


def _column(text: str, name: str) -> list[str]:
    row = next((line.split("\t") for line in text.split("\n") if line.split("\t")[0] == name), [])
    return [cell.strip() for cell in row[1:] if cell.strip()]


@pytest.mark.parametrize(("name", "states"), BENCH_STATES.items())
def test_opticalbench(shared: Path, gaussian, name: str, states: int) -> None:
    """Focal lengths and magnifications are the patent's, and its image plane is in focus, in every state."""
    path = shared / "opticalbench" / name
    lens = read_lens(path)
    assert len(lens.states) == states
    text = path.read_text()
    focal, magnification = _column(text, "Focal Length"), _column(text, "Magnification")
    focus = 0.17 if name.startswith("WO2020") else 0.02  # balanced spherical aberration; the rest is exact
    for k in range(max(states, 1)):
        optics = gaussian(lens.in_state(k) if states else lens)
        if focal[k] != "undefined":
            assert optics.focal_length == pytest.approx(float(focal[k]), rel=2e-3)
        assert optics.magnification == pytest.approx(float(magnification[k]), abs=3e-3)
        assert abs(optics.defocus) < focus


def test_lenses_and_their_round_trip(shared: Path, gaussian) -> None:
    with (shared / "lenses" / "INDEX.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 667
    for row in rows[::4]:
        lens = read_lens(shared / "lenses" / row["file"])
        assert gaussian(lens, 587.5618).focal_length == pytest.approx(float(row["focal_length_mm"]), abs=6e-5)
        for text, name in ((json_text(lens), "lens.json"), (zemax_text(lens), "lens.zmx")):
            assert parse_lens(text.encode(), name) == lens, (row["file"], name)


@pytest.mark.parametrize("folder", ["zmx", "seq", "opticalbench"])
def test_round_trip_of_the_other_formats(shared: Path, tmp_path: Path, folder: str) -> None:
    count = 0
    for path in sorted((shared / folder).rglob("*.*")):
        if path.suffix == ".csv":
            continue
        try:
            lens = read_lens(path)
        except LensFileError:
            continue
        count += 1
        for suffix in (".json", ".zmx"):
            write_lens(lens, tmp_path / f"lens{suffix}")
            assert read_lens(tmp_path / f"lens{suffix}") == lens, (path.name, suffix)
    assert count == {"zmx": 75, "seq": 14, "opticalbench": 7}[folder]
