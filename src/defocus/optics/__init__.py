"""Geometrical optics: first-order data, exact ray tracing, pupils, focus, aberrations.

Everything here is a pure function of a `System`, the lens as padded arrays, so that one compiled program serves every
lens of a bucket and `vmap` runs over lenses, fields and wavelengths. Lengths are in mm, angles in radians, float64.
"""

import jax

from ..programs import keep_programs

# Optical paths of 0.1 m must be known to a thousandth of a wavelength: 1e-8 relative, more than float32 holds.
jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
keep_programs()
