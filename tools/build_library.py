"""Write the built-in lenses, src/defocus/lens/data/, and their table in docs/lenses.md.

    python tools/build_library.py SOURCE_FOLDER

The source is a folder of JSON prescriptions, one per lens or per end of a zoom. TABLE names those that are built in
and says what each is. Radii, thicknesses, glasses, aspheres, the stop's place, the F-number and the image height are
taken over; semi-diameters are not: those are solved for. The two ends of a zoom become the states of one lens. A lens
that the survey would reject stops the build, unless TABLE calls it historic. The same source gives the same bytes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from defocus.lens import Aperture, Lens, State, save_lens
from defocus.lens.formats import read_lens
from defocus.lens.formats.assemble import reduced
from defocus.lens.formats.json_format import read_json
from defocus.optics.apertures import EDGE_FRACTION, solve_clear_apertures
from defocus.optics.paraxial import first_order
from defocus.optics.system import pack_one
from defocus.survey.criteria import judge
from defocus.survey.measurement import Measurement, measure

ROOT = Path(__file__).parents[1]
DATA = ROOT / "src" / "defocus" / "lens" / "data"
PAGE = ROOT / "docs" / "lenses.md"
ENDS = ("wide", "tele")
HISTORIC = "historic: aberrations at the edge exceed the survey's limit"

# How much of the stop the beam at the edge of the field fills, as part of its radius. Fast lenses vignette more than
# the solver's default; phone lenses hardly at all, their apertures are made to pass the whole beam.
FAST = 1.5  # F-number
FAST_EDGE = 0.45
PHONE_EDGE = 0.95

# name | source file | title | patent | year of publication, where it is certain | type | remarks and settings
TABLE = """
agfa-telinear-90-f4|agfa-color-telinear-90mm-f4|Agfa Color-Telinear 90 mm f/4|US 2,819,651|1958|telephoto|edge=0.4
canon-ef-8-15-f4-fisheye|canon-ef-8-15mm-f4l-fisheye-usm|Canon EF 8–15 mm f/4 L Fisheye|US 2012/0013996 A1 Example 1|2012|fisheye zoom
canon-ef-15-f2.8-fisheye|canon-ef-15mm-f28-fisheye|Canon EF 15 mm f/2.8 Fisheye|JP S63-17421 A Example 3|1988|fisheye|edge=0.5
canon-ef-70-200-f2.8|canon-ef-70-200mm-f28l-is-ii-usm|Canon EF 70–200 mm f/2.8 L IS II|US 2009/0296231 A1 Embodiment 2|2009|telephoto zoom
canon-ef-100-f2.8-macro|canon-ef-100mm-f28l-is-macro|Canon EF 100 mm f/2.8 L Macro IS|US 7,864,451 B2|2011|macro
canon-ef-200-f1.8|canon-ef-200mm-f1-8-l-usm|Canon EF 200 mm f/1.8 L|JP H01-102413 A Example 1|1989|telephoto
canon-ef-400-f2.8|canon-ef-400mm-f28-l-is-ii-usm|Canon EF 400 mm f/2.8 L IS II|US 2011/0090576 A1 Example 2|2011|telephoto
canon-rf-16-f2.8|canon-rf-16mm-f28-stm|Canon RF 16 mm f/2.8 STM|JP 2022-085382 A Example 3|2022|mirrorless wide-angle
canon-rf-50-f1.2|canon-rf-50-f12-l|Canon RF 50 mm f/1.2 L|US 2019/0265441 A1 Example 2|2019|mirrorless double Gauss|edge=0.4
canon-rf-85-f1.2|canon-rf-85f12l|Canon RF 85 mm f/1.2 L|US 2020/0012073 A1 Example 1|2020|mirrorless double Gauss
canon-rf-100-500-f4.5|canon-rf-100-500mm-f45-71-l-is-usm|Canon RF 100–500 mm f/4.5–7.1 L IS|US 2021/0003832 A1 Example 2|2021|telephoto zoom
canon-serenar-50-f1.8|canon-serenar-50f18|Canon Serenar 50 mm f/1.8|US 2,681,594 Claim 3|1954|double Gauss|edge=0.45
canon-ts-e-50-f2.8-macro|canon-tse-50f28l-macro|Canon TS-E 50 mm f/2.8 L Macro|US 10,571,651 B2 Numerical Data 1|2020|shift macro
cooke-142-f8||Cooke lens of H. D. Taylor, patent example at 142 mm f/8|US 540,122 Fig. 9|1895|three doublets
enna-lithagon-28-f3.5|enna-munchen-ultra-lithagon-28mm-f35|Enna Ultra-Lithagon 28 mm f/3.5|US 2,959,100 Example 1|1960|retrofocus
fujifilm-fujinon-sw-65-f5.6|fujifilm-fujinon-sw-65f56|Fujifilm Fujinon SW 65 mm f/5.6|JP S56-140311 Example 1|1981|symmetric wide-angle
fujifilm-gfx100rf-35-f4|fujifilm-gfx100rf-35mm-f4|Fujifilm Fujinon 35 mm f/4 (GFX100RF)|US 2025/0362482 A1 Example 5|2025|medium format, compact
fujifilm-xf-56-f1.2|fujifilm-xf56mm-f12-r-wr|Fujifilm Fujinon XF 56 mm f/1.2 R WR|JP 2023-029039 A Example 2|2023|mirrorless portrait
hasselblad-hc-80-f2.8|hasselblad-hc-80-f28|Hasselblad HC 80 mm f/2.8|US 2001/0050819 A1 Embodiment 3|2001|double Gauss|edge=0.5
hasselblad-xcd-90-f2.5|hasselblad-xcd-90-f25-v|Hasselblad XCD 90 mm f/2.5 V|JP 2022-099402 A Example 1|2022|medium format, mirrorless|edge=0.4
kodak-aero-ektar-152-f3.5|kodak-aero-ektar-6in-f35|Kodak Aero Ektar 6 in f/3.5|US 2,983,193|1961|aerial
kodak-ektar-100-f6.3|kodak-wide-field-ektar-100f63|Kodak Wide Field Ektar 100 mm f/6.3|US 2,518,719 Example 2|1950|large format, symmetric wide-angle
leica-macro-elmarit-60-f2.8|leica-macro-elmarit-r-60mm-f28|Leica Macro-Elmarit-R 60 mm f/2.8|US 3,552,833|1971|macro
leica-summicron-50-f2|leica-summicron-m-50f2-v5|Leica Summicron-M 50 mm f/2|US 4,123,144 Example 9|1978|double Gauss|edge=0.5
leica-summilux-28-f1.7|leica-summilux-28f17|Leica Summilux 28 mm f/1.7 ASPH. (Leica Q)|US 2016/0266350 A1 Example 1|2016|mirrorless wide-angle|edge=0.5
leica-summilux-35-f1.4|leica-summilux-tl-35mm-f14-asph|Leica Summilux-TL 35 mm f/1.4 ASPH.|EP 3 029 504 A1 Example 4|2016|mirrorless standard|stop=9.845
minolta-35-70-f4|minolta-af-35-70-f4|Minolta AF Zoom 35–70 mm f/4|US 4,560,253 Embodiment 2|1985|standard zoom
minolta-varisoft-85-f2.8|varisoft-rokkor-85f28|Minolta Varisoft Rokkor 85 mm f/2.8|US 4,124,276 Embodiment 3|1978|soft focus
nikon-28ti-28-f2.8|nikon-28ti-28f28|Nikon Nikkor 28 mm f/2.8 (Nikon 28Ti)|US 5,528,428 Example 3|1996|compact
nikon-dc-135-f2|nikon-af-dc-nikkor-135mm-f2|Nikon AF DC-Nikkor 135 mm f/2|US 4,908,639 Example 2|1990|telephoto
nikon-fisheye-10.5-f2.8|nikon-fisheye-nikkor-105mm-f28g-ed|Nikon AF DX Fisheye-Nikkor 10.5 mm f/2.8|US 7,161,746 B2 Example 9|2007|fisheye
nikon-nikkor-21-f4|nikon-nikkor-o-21mm-f4|Nikon Nikkor-O 21 mm f/4|JP S43-030782 Example 2|1968|Biogon
nikon-nikkor-24-f2.8|nikkor-24f28|Nikon Nikkor-N Auto 24 mm f/2.8|US 3,622,227 Example I|1971|retrofocus|edge=0.5
nikon-nikkor-80-200-f4.5|nikon-ai-zoom-nikkor-80-200mm-f45|Nikon AI Zoom-Nikkor 80–200 mm f/4.5|US 4,223,981 Embodiment 1|1980|telephoto zoom
nikon-nikkor-600-f4|nikon-af-s-nikkor-600mm-f4e-fl-ed-vr|Nikon AF-S Nikkor 600 mm f/4E FL ED VR|US 2018/0031811 A1 Example 4|2018|telephoto
nikon-nikkor-600-f5.6|nikon-ai-nikkor-600mm-f56-if-ed|Nikon AI Nikkor 600 mm f/5.6 IF-ED|JP S56-035116 Example 1|1981|telephoto
nikon-noct-58-f0.95|nikon-z-58f095-noct|Nikon Nikkor Z 58 mm f/0.95 S Noct|WO 2019/229849 A1 Example 1|2019|mirrorless double Gauss
nikon-pc-19-f4|nikon-pc-nikkor-19mm-f4e-ed|Nikon PC Nikkor 19 mm f/4E ED|JP 2017-161685 A Example 1|2017|shift retrofocus
nikon-uv-105-f4.5|nikon-uv-nikkor-105mm-f45|Nikon UV-Nikkor 105 mm f/4.5|JP S61-090115 Example 4|1986|ultraviolet
nikon-z-180-600-f5.6|nikon-nikkor-z-180-600mm-f56-63-vr|Nikon Nikkor Z 180–600 mm f/5.6–6.3 VR|WO 2024/062958 A1 Example 2|2024|telephoto zoom
olympus-m-12-40-f2.8|olympus-mzuiko-12-40-f28-pro|Olympus M.Zuiko Digital ED 12–40 mm f/2.8 Pro|US 2014/0139720 A1 Example 5|2014|standard zoom
olympus-m-17-f1.8|olympus-mzuiko-17mm-f18|Olympus M.Zuiko Digital 17 mm f/1.8|JP 2013-186458 A Example 3|2013|mirrorless wide-angle
olympus-zuiko-21-f3.5|olympus-g-zuiko-auto-w-21mm-f35|Olympus G.Zuiko Auto-W 21 mm f/3.5|US 3,884,556 Embodiment 3|1975|retrofocus
panasonic-leica-9-f1.7|panasonic-leica-dg-9f17|Panasonic Leica DG Summilux 9 mm f/1.7 ASPH.|US 2023/0367186 A1 Example 1|2023|mirrorless wide-angle
pentax-67-100-f4-macro|pentax-smc-67-100mm-f4|Pentax SMC 67 Macro 100 mm f/4|US 6,002,533 Embodiment 1|1999|medium format, macro
ricoh-gr-18-f2.8|ricoh-gr4-28f28|Ricoh GR Lens 18.3 mm f/2.8 (Ricoh GR IV)|JP 2025-069516 A Example 2|2025|compact
rodenstock-geronar-210-f6.8|rodenstock-geronar-210mm-f68|Rodenstock Geronar 210 mm f/6.8|DE 28 18 394 B1||large format, triplet
schneider-super-angulon-90-f8|schneider-super-angulon-90mm-f8|Schneider-Kreuznach Super-Angulon 90 mm f/8|DE 975 637 C||large format, symmetric wide-angle
sigma-28-45-f1.8|sigma-28-45mm-f18-dg-dn|Sigma 28–45 mm f/1.8 DG DN|CN 120386081 A Example 1|2025|standard zoom
sigma-40-f1.4|sigma-art-40-f14|Sigma 40 mm f/1.4 DG HSM|JP 2020-012952 A Example 1|2020|retrofocus
sigma-85-f1.4|sigma-art-85mm-f14-dgdn|Sigma 85 mm f/1.4 DG DN|JP 2021-085935 A Example 1|2021|mirrorless portrait
sony-fe-14-f1.8|sony-fe-14mm-f18-gm|Sony FE 14 mm f/1.8 GM|WO 2021/199923 A1 Example 1|2021|mirrorless retrofocus
sony-fe-16-35-f2.8|sony-fe-16-35mm-f28-gm-ii|Sony FE 16–35 mm f/2.8 GM II|WO 2024/135126 A1 Example 1|2024|wide-angle zoom
sony-fe-24-70-f2.8|sony-fe-24-70mm-f28-gm-ii|Sony FE 24–70 mm f/2.8 GM II|WO 2023/181666 A1 Example 4|2023|standard zoom
sony-fe-135-f1.8|sony-fe-135-f18-gm|Sony FE 135 mm f/1.8 GM|WO 2019/187633 A1 Example 1|2019|mirrorless telephoto
sony-planar-50-f1.4|sony-planar-fe-50f14-za|Sony Planar T* FE 50 mm f/1.4 ZA|WO 2017/138250 A1 Example 2|2017|mirrorless double Gauss
tamron-18-400-f3.5|tamron-b028-18-400-f35-63|Tamron 18–400 mm f/3.5–6.3 Di II VC HLD|JP 2017-116646 A Example 1|2017|superzoom
voigtlander-heliar-105-f3.5|voigtlander-color-heliar-105mm-f35|Voigtländer Color-Heliar 105 mm f/3.5|US 2,645,156 Example 1|1953|Heliar
zeiss-biogon-19-f4.5|zeiss-biogon-21-f45|Zeiss Biogon, patent example at 19 mm f/4.5|US 2,721,499 Example 2|1955|Biogon
zeiss-biogon-35-f2.8|zeiss-biogon-35mm-f28-prewar|Zeiss Biogon 35 mm f/2.8 (pre-war)|US 2,084,309|1937|Biogon|edge=0.4
zeiss-distagon-35-f4|zeiss-distagon-35mm-f4-contarex|Zeiss B-Distagon 35 mm f/4|US 3,038,380|1962|retrofocus
zeiss-hologon-15-f8|zeiss-hologon-15f8|Zeiss Hologon 15 mm f/8|DE 1,241,637 B||Hologon|edge=1.0
zeiss-planar-50-f1.4|zeiss-planar-t-50f14|Zeiss Planar T* 50 mm f/1.4|US 3,874,771 Example 5|1975|double Gauss|edge=0.4 historic
zeiss-sonnar-180-f2.8|zeiss-olympia-sonnar-180f28-contarex|Zeiss Olympia-Sonnar 180 mm f/2.8|DE 1,268,404 Example 2||Sonnar
zeiss-tessar-50-f3.5|carl-zeiss-tessar-50f35|Zeiss Tessar 50 mm f/3.5|CH 314381 Example 1||Tessar
zeiss-tessar-100-f5.5||Zeiss Tessar, patent example at 100 mm f/5.5|US 721,240|1903|Tessar
phone-us6744570|us-6744570b||US 6,744,570|2004
phone-us7558005|us-7558005a||US 7,558,005|2009
phone-us8908290|phone-us8908290b1||US 8,908,290 B1|2014
phone-us9063319|phone-us9063319b1||US 9,063,319 B1|2015
phone-us9239447|phone-us9239447b1||US 9,239,447 B1|2016
phone-us9316811|phone-us9316811b2||US 9,316,811 B2|2016
phone-us9557532|phone-us9557532b2||US 9,557,532 B2|2017
phone-us11668898|phone-us-11668898-b2-e6||US 11,668,898 B2 Example 6|2023
phone-us11719917|phone-us-11719917-b2-e4||US 11,719,917 B2 Example 4|2023
phone-us11906710|phone-us-11906710-b2-e4||US 11,906,710 B2 Example 4|2024
phone-us11933948|phone-us-11933948-b2-e11||US 11,933,948 B2 Example 11|2024
phone-us12416792|phone-us-12416792-b2-e12||US 12,416,792 B2 Example 12|2025
phone-us12436366|phone-us-12436366-b2-e5||US 12,436,366 B2 Example 5|2025||edge=0.8
phone-us20140118844|phone-us20140118844a1||US 2014/0118844 A1|2014
phone-us20170003482|phone-us20170003482a1||US 2017/0003482 A1|2017
"""  # noqa: E501

# Lenses that the source folder does not hold: radius (None: plane) and thickness in mm, nd, vd; the image plane
# follows from the rest.

# US 721,240 prints its one example for focal length 1, with n at the D, F and G' lines; here it is for 100 mm, with vd
# from nD and nF.
TESSAR_1902 = (
    (21.5, 3.3, 1.61132, 58.0),
    (None, 1.9, 1.0, None),
    (-74.2, 1.1, 1.60457, 43.2),
    (20.8, 3.0, 1.0, None),
    (None, 3.0, 1.0, None),
    (-111.3, 1.1, 1.52110, 51.4),
    (25.2, 3.0, 1.61132, 56.1),
    (-36.7, 0.0, 1.0, None),
)

# US 540,122 gives all lengths as parts of the focal length, here times 150 mm, and n_D and (n_D − 1)/(n_G' − n_D); nd
# and vd are those of the model glass that has both. It prints no air spaces but how to find them. The first two
# doublets together leave a beam parallel or slightly divergent, which makes the first space 0.0059 (0.00595 is
# parallel; with much less the glasses would touch). The stop stands as close behind them as the hollow surface allows,
# 0.012. The third doublet is moved until distortion vanishes, here at 20° from the axis: 0.069 from the second. The
# focal length is then 0.949, not 1.
COOKE_1895 = (
    (21.6, 0.9, 1.6031, 38.4),
    (12.24, 8.1, 1.5225, 69.8),
    (-675.0, 0.885, 1.0, None),
    (-63.15, 2.625, 1.6502, 33.7),
    (-21.0, 0.45, 1.5225, 69.8),
    (23.4, 1.8, 1.0, None),
    (None, 8.55, 1.0, None),
    (67.05, 6.3, 1.5225, 69.8),
    (-51.75, 0.9, 1.6031, 38.4),
    (-259.5, 0.0, 1.0, None),
)


@dataclass(frozen=True)
class Choice:
    """A row of TABLE."""

    name: str
    source: str
    title: str
    patent: str
    year: int | None
    type: str
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def is_phone(self) -> bool:
        return self.name.startswith("phone-")


def choices() -> list[Choice]:
    """The rows of TABLE, by name."""
    rows = []
    for line in TABLE.strip().splitlines():
        name, source, title, patent, year, type_, settings = (*line.split("|"), "", "")[:7]
        pairs = dict(word.partition("=")[::2] for word in settings.split())
        rows.append(Choice(name, source, title, patent, int(year) if year else None, type_, pairs))
    return sorted(rows, key=lambda c: c.name)


def find_sources(choice: Choice, folder: Path) -> dict[str, Lens]:
    """The prescriptions behind a choice: one, named "", or the two ends of a zoom."""
    if not choice.source:
        return {"": INLINE[choice.name](choice.name)}
    found = {end: path for end in ("", *ENDS) for path in folder.rglob(f"{choice.source}{end and '_' + end}.json")}
    if set(found) not in ({""}, set(ENDS)):
        raise SystemExit(f"{choice.name}: no source file {choice.source}.json, or not both ends of the zoom")
    return {end: _read(path) for end, path in found.items()}


def _read(path: Path) -> Lens:
    """A source file; its F-number, not its stop's semi-diameter, is what the patent gives."""
    number = json.loads(path.read_text(encoding="utf-8"))["f_number"]
    return replace(read_lens(path), aperture=Aperture("f_number", float(f"{number:.4g}")))


def _tessar_1902(name: str) -> Lens:
    """60° of field, as the patent says."""
    note = "the patent prints n at the D, F and G' lines; vd was derived from nD and nF"
    lens = replace(_inline(name, TESSAR_1902, 4, 5.5), image_format="4x5", notes=(note,))
    focal_length = float(first_order(pack_one(lens)).focal_length)
    return _focused(replace(lens, image_radius=round(focal_length * math.tan(math.radians(30.0)), 2)))


def _cooke_1895(name: str) -> Lens:
    """On a quarter plate, 3¼ by 4¼ inches."""
    notes = (
        "the patent prints n_D and (n_D − 1)/(n_G' − n_D); nd and vd are those of the model glass with both",
        "the patent prints no air spaces; they were solved for by its rule: a beam parallel behind the second doublet, "
        "no distortion (here at 20°); the focal length is then 0.949 of the patent's unit",
    )
    radius = round(math.hypot(3.25, 4.25) / 2.0 * 25.4, 1)
    lens = replace(_inline(name, COOKE_1895, 6, 8.0), image_format="quarter-plate", notes=notes)
    return _focused(replace(lens, image_radius=radius))


INLINE = {"cooke-142-f8": _cooke_1895, "zeiss-tessar-100-f5.5": _tessar_1902}


def _inline(name: str, rows: Sequence[tuple[float | None, ...]], stop: int, f_number: float) -> Lens:
    """As the source folder would hold it, the image plane excepted."""
    keys = ("radius_mm", "thickness_mm", "nd", "vd")
    surfaces: list[dict[str, float | None]] = [dict(zip(keys, row, strict=True)) for row in rows]
    surfaces[stop]["semi_diameter_mm"] = 1.0
    text = json.dumps({"f_number": f_number, "stop_surface": stop, "surfaces": surfaces})
    return replace(read_json(text, name), aperture=Aperture("f_number", f_number))


def _focused(lens: Lens) -> Lens:
    """The image plane at the best focus."""
    focal_point = float(first_order(pack_one(lens)).back_focal_distance)
    paraxial = _with_image_at(lens, focal_point)
    return _with_image_at(lens, round(focal_point + measure([paraxial])[0].best_focus_mm, 3))


def _with_image_at(lens: Lens, distance: float) -> Lens:
    """The image plane `distance` mm behind the last surface."""
    return replace(lens, surfaces=(*lens.surfaces[:-1], replace(lens.surfaces[-1], thickness=distance)))


def strip(lens: Lens, choice: Choice) -> Lens:
    """The patent's own numbers: no semi-diameters, and the stop's radius from the F-number, paraxially."""
    given = choice.settings.get("stop")
    radius = float(given) if given else float(pack_one(lens).semi_diameter[lens.stop])
    # Rounded up, so that f/8 stays within f/8.
    aperture = Aperture("stop_radius", math.ceil(radius * 1e4 - 1e-6) / 1e4)
    surfaces = tuple(replace(s, semi_diameter=None, label="") for s in lens.surfaces)
    return replace(lens, name=choice.title, patent=choice.patent, surfaces=surfaces, aperture=aperture, source="")


def edge_fraction(choice: Choice, lens: Lens) -> float:
    if "edge" in choice.settings:
        return float(choice.settings["edge"])
    if choice.is_phone:
        return PHONE_EDGE
    return FAST_EDGE if float(first_order(pack_one(lens)).f_number) <= FAST else EDGE_FRACTION


def build(choice: Choice, folder: Path) -> tuple[Lens, float]:
    """The built-in lens, and the median of its semi-diameters over those of the source, for the log."""
    sources = find_sources(choice, folder)
    bare = {end: strip(lens, choice) for end, lens in sources.items()}
    base = next(iter(bare.values()))
    if choice.is_phone:
        base = _entitled(base)
    fraction = edge_fraction(choice, base)
    solved = [solve_clear_apertures(lens, edge_fraction=fraction) for lens in bare.values()]
    semi = np.max([[s.semi_diameter for s in lens.surfaces] for lens in solved], axis=0)
    radii = {i: math.ceil(float(r) * 1e4) / 1e4 for i, r in enumerate(semi)} | {base.stop: base.aperture.value}
    notes = (*base.notes, f"clear apertures solved for; the edge beam fills {fraction:g} of the stop's radius")
    lens = replace(base.with_semi_diameters(radii), notes=notes)
    if len(bare) > 1:
        lens = replace(lens, states=tuple(_state(end, other, lens) for end, other in bare.items()))
    drawn = next(iter(sources.values()))
    ratios = [radii[i] / s.semi_diameter for i, s in enumerate(drawn.surfaces) if s.semi_diameter and i != drawn.stop]
    return lens, float(np.median(ratios)) if choice.source else math.nan


def _entitled(lens: Lens) -> Lens:
    """A phone lens has no name of its own: say what it is."""
    data = first_order(pack_one(lens))
    title = f"Phone lens, {elements(lens)} elements, {float(data.focal_length):.2f} mm f/{float(data.f_number):.2g}"
    return replace(lens, name=title)


def elements(lens: Lens) -> int:
    """How many lens elements; plates are none."""
    bent = [math.isfinite(s.radius) or bool(s.aspheric) for s in lens.surfaces] + [False]
    return sum(s.medium.nd > 1.0 and (bent[i] or bent[i + 1]) for i, s in enumerate(lens.surfaces))


def _state(name: str, other: Lens, lens: Lens) -> State:
    """What the lens has to change to become `other`; everything but distances, stop and image must agree."""
    for i, (a, b) in enumerate(zip(other.surfaces, lens.surfaces, strict=True)):
        same = replace(a, thickness=b.thickness, semi_diameter=b.semi_diameter) == b
        if not same or other.stop != lens.stop:
            raise SystemExit(f"{lens.name}, surface {i}: the ends of the zoom differ by more than distances")
    return reduced(
        State(
            name=name,
            thickness=tuple((i, s.thickness) for i, s in enumerate(other.surfaces)),
            semi_diameter=((lens.stop, other.aperture.value),),
            aperture=other.aperture,
            image_radius=other.image_radius,
        ),
        lens,
    )


def check(choice: Choice, measured: Sequence[Measurement]) -> None:
    """Stop the build at a lens that the survey would reject in any of its states."""
    wanted = "phone" if choice.is_phone else "interchangeable"
    for m in measured:
        verdict = judge(m)
        if verdict.category != wanted or not (verdict.kept or "historic" in choice.settings):
            raise SystemExit(f"{choice.name}: {verdict.category or 'no category'}; {'; '.join(verdict.reasons)}")


def entry(choice: Choice, lens: Lens, measured: Sequence[Measurement]) -> dict[str, Any]:
    """The lens's line of the index; `measured` has the lens itself first, then its states."""
    numbers = [(float(f"{m.focal_length_mm:.6g}"), float(f"{m.f_number:.4g}")) for m in measured]
    return {
        "name": choice.name,
        "title": lens.name,
        "patent": choice.patent,
        "year": choice.year,
        "maker": "" if choice.is_phone else choice.title.split()[0].rstrip(","),
        "category": "phone" if choice.is_phone else "interchangeable",
        "type": f"phone, {elements(lens)} elements" if choice.is_phone else choice.type,
        "focal_length_mm": numbers[0][0],
        "f_number": numbers[0][1],
        "image_radius_mm": lens.image_radius,
        "states": list(lens.state_names),
        "state_focal_lengths_mm": [f for f, _ in numbers[1:]],
        "state_f_numbers": [n for _, n in numbers[1:]],
        "remark": HISTORIC if "historic" in choice.settings else "",
    }


def page_table(entries: Sequence[dict[str, Any]]) -> str:
    """The table of docs/lenses.md."""
    lines = ["| name | lens | patent | year | type | f / mm | F | image / mm |", "|---|---|---|---|---|--:|--:|--:|"]
    for e in entries:
        focal = [f"{f:.4g}" for f in e["state_focal_lengths_mm"] or (e["focal_length_mm"],)]
        number = [f"{n:.3g}" for n in e["state_f_numbers"] or (e["f_number"],)]
        star = " *" if e["remark"] else ""
        cells = [f"`{e['name']}`{star}", e["title"], e["patent"], str(e["year"] or ""), e["type"]]
        spans = ["–".join(focal), "–".join(dict.fromkeys(number)), f"{e['image_radius_mm']:.4g}"]
        lines.append(f"| {' | '.join(cells + spans)} |")
    return "\n".join(lines)


def main(folder: Path) -> None:
    built = [(choice, *build(choice, folder)) for choice in choices()]
    variants = [[lens, *(lens.in_state(s) for s in lens.state_names)] for _, lens, _ in built]
    measured = iter(measure([lens for group in variants for lens in group]))
    entries = []
    for (choice, lens, ratio), group in zip(built, variants, strict=True):
        numbers = [next(measured) for _ in group]
        edge = ", ".join(f"{m.phase_range_edge_waves:.1f}" for m in numbers)
        print(f"{choice.name:<34} apertures / source {ratio:4.2f}   edge {edge} waves")
        check(choice, numbers)
        entries.append(entry(choice, lens, numbers))
    DATA.mkdir(exist_ok=True)
    for old in DATA.glob("*.json"):
        old.unlink()
    for choice, lens, _ in built:
        save_lens(lens, DATA / f"{choice.name}.json")
    index = ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries)
    (DATA / "index.json").write_text(f"[\n{index}\n]\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- lenses -->")
    after = rest.partition("<!-- /lenses -->")[2]
    PAGE.write_text(f"{before}<!-- lenses -->\n{page_table(entries)}\n<!-- /lenses -->{after}", encoding="utf-8")
    ratios = [ratio for _, _, ratio in built if math.isfinite(ratio)]
    print(f"{len(built)} lenses; apertures over the source's, median of the medians: {np.median(ratios):.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
