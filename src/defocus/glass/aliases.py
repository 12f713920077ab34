"""Other names of catalogue glasses, each with what the user should know about the substitution.

Withdrawn glasses and their successors are in `data/published.csv`.
"""

from __future__ import annotations

# What lens files call a maker → our catalogue. Names that lead to several are catalogues of mixed materials.
CATALOGUES: dict[str, tuple[str, ...]] = {
    "SCHOTT": ("schott",),
    "OHARA": ("ohara",),
    "HOYA": ("hoya",),
    "HIKARI": ("hikari",),
    "NIKON": ("hikari",),
    "SUMITA": ("sumita",),
    "CDGM": ("cdgm",),
    "LZOS": ("lzos",),
    "MISC": ("silica", "crystal", "plastic", "liquid"),
    "INFRARED": ("silica", "crystal"),
    "CORNING": ("silica",),
    "HERAEUS": ("silica",),
    "SILICA": ("silica",),
    "CRYSTAL": ("crystal",),
    "PLASTIC": ("plastic",),
    "LIQUID": ("liquid",),
    "ZEON": ("plastic",),
    "TOPAS": ("plastic",),
    "LIGHTPATH": ("cdgm",),
    "RPO": ("ohara", "hoya", "cdgm"),
}

_FUSED_SILICA = "fused silica after Malitson (1965)"
_MOULDED = "data before moulding; precision moulding lowers nd by some 0.001 to 0.006"

# Key of the name (letters and digits, in capitals) → (catalogue, name there, remark). A remark becomes the
# medium's note; an empty one marks another spelling of the same material.
ALIASES: dict[str, tuple[str, str, str]] = {
    "SILICA": ("silica", "fused-silica", ""),
    "FSILICA": ("silica", "fused-silica", ""),
    "SIO2": ("silica", "fused-silica", ""),
    "C7980": ("silica", "fused-silica", f"Corning 7980 → {_FUSED_SILICA}; nd differs by less than 1e-5"),
    "HPFS": ("silica", "fused-silica", f"Corning HPFS → {_FUSED_SILICA}; nd differs by less than 1e-5"),
    "SUPRASIL": ("silica", "fused-silica", f"Suprasil → {_FUSED_SILICA}; nd differs by less than 2e-5"),
    "FLUORITE": ("crystal", "CaF2", ""),
    "SAPPHIRE": ("crystal", "sapphire-o", "ordinary ray of sapphire"),
    "AL2O3": ("crystal", "sapphire-o", "ordinary ray of sapphire"),
    "QUARTZ": ("crystal", "quartz-o", "ordinary ray of crystal quartz"),
    "ACRYLIC": ("plastic", "PMMA", ""),
    "POLYSTYR": ("plastic", "polystyrene", ""),
    "STYRENE": ("plastic", "polystyrene", ""),
    "PS": ("plastic", "polystyrene", ""),
    "POLYCARB": ("plastic", "polycarbonate", ""),
    "PC": ("plastic", "polycarbonate", ""),
    "E48R": ("plastic", "ZEONEX-E48R", ""),
    "480R": ("plastic", "ZEONEX-480R", ""),
    "330R": ("plastic", "ZEONEX-330R", ""),
    "5013LS01": ("plastic", "TOPAS-5013", ""),
    "H2O": ("liquid", "water", ""),
    "DZK3M": ("cdgm", "D-ZK3", f"D-ZK3M → D-ZK3 ({_MOULDED})"),
    "DLAK6M": ("cdgm", "D-LAK6", f"D-LAK6M → D-LAK6 ({_MOULDED})"),
    "DZLAF52LAM": ("cdgm", "D-ZLAF52LA", f"D-ZLAF52LAM → D-ZLAF52LA ({_MOULDED})"),
}

# A suffix that says the glass was moulded: the glass before moulding stands in for it.
MOULDED_SUFFIX = "MOLD"
MOULDED_REMARK = _MOULDED
