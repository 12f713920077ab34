"""Scenes: depth maps, layers of equal blur, inpainting, and procedural scenes with exact depth."""

from ..programs import keep_programs

keep_programs()
