"""Scenes: depth maps, layers of equal blur, inpainting, and procedural scenes with exact depth."""
