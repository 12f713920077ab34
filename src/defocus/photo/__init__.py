"""Photographs: RAW files, the camera's image pipeline forwards and backwards, sensor noise."""
