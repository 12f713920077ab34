"""How large the window of a PSF is: one policy for single PSFs, photographs and pairs.

The paraxial blur radius tells the window that should hold a PSF: work grows with its third power, so it is the smallest
that has room for the circle of confusion and for some aberration. Where more than `SPILL` of the light then falls
outside and traced rays leave the window, one at least twice as large is taken. A PSF that loses more than `MOST_SPILL`
does not fit at all. A window that the caller names is kept as it is: the PSF fits it, or is refused.
"""

from __future__ import annotations

import math

# Windows, pixels across, and points per pixel and axis in each. Small windows hold sharp PSFs, whose core is finer than
# a pixel; the fringes of large blurs are faint. Few shapes: each of them compiles.
WINDOWS = {16: 25, 32: 9, 64: 9, 96: 5, 128: 5, 192: 5, 256: 5, 384: 5, 512: 5}
SPILL = 0.05  # of the light outside: from here on a larger window is tried
MOST_SPILL = 0.2  # from here on a PSF does not fit its window
ROOM_PX = 3.0  # around the circle of confusion, and a fifth of it: aberrations, diffraction
LARGEST = 512  # pixels across, where nobody sets a limit
CLOSE_UP = 128  # pixels across of a PSF whose pixels are chosen to show it
CORES, AIRY_RADII = 5.0, 4.0  # what a close-up shows at most, and at least, about the point


def pixels_across(coc_px: float) -> float:
    """Width in pixels that a PSF of this blur radius should have."""
    return 2.0 * (1.2 * abs(coc_px) + ROOM_PX)


def window_for(coc_px: float, most_px: int | None = None) -> int:
    """Pixels across that should hold a PSF of this blur radius, and no more than `most_px`."""
    width = pixels_across(coc_px)
    window = next((size for size in WINDOWS if size >= width), 32 * math.ceil(width / 32))
    return window if most_px is None else min(window, most_px)


def close_up_pitch(reach: float, core: float, airy: float) -> float:
    """Pixel pitch at which a PSF fills a window of `CLOSE_UP` pixels.

    From how far its rays reach, the radius that holds half of them, and the radius of the Airy disc, all in one unit.
    """
    return 2.0 * max(min(1.15 * reach, CORES * core), AIRY_RADII * airy) / CLOSE_UP


def larger_window(window: int, most_px: int) -> int | None:
    """The next window at least twice as large, or the largest allowed; None where `window` is that already."""
    if window >= most_px:
        return None
    return next((size for size in WINDOWS if 2 * window <= size < most_px), most_px)


def points_per_pixel(window: int) -> int:
    """Points per pixel and axis in a window that the policy has chosen."""
    return WINDOWS.get(window, WINDOWS[LARGEST])


def wants_larger(energy_outside: float, reach_px: float, window: int) -> bool:
    """Whether a larger window is tried: light is missing, and rays reach beyond this one.

    Rays as well: coarse samples of a blur's fringes may miss some of its light, which is no reason to look for it.
    """
    return energy_outside > SPILL and reach_px > window / 2.0


def spill_refusal(energy_outside: float, reach_px: float, window: int) -> str:
    """Why a PSF whose rays reach so far does not fit its window, and which would hold it; empty where it fits."""
    if energy_outside <= MOST_SPILL:
        return ""
    holds = math.ceil(2.4 * reach_px)
    advice = f"a window of about {holds} holds it" if holds > window else "diffraction spreads it, take a larger window"
    return f"{energy_outside:.0%} of the light falls outside {window} pixels; {advice}"
