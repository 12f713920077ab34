"""Colours that several scenes share, as sRGB codes from dark to light."""

GREENS = ("1c3312", "2f4f1b", "47702a", "6d9438", "a3b85a")
AUTUMN = ("7a2416", "a8431c", "c9701f", "d99a2b", "8a7a2a")
OAK = ("3b2414", "5e3a20", "865732", "a9764a", "c89a6c")
WARM = ("ffb35c", "ffd08a", "ffe7c4", "ff8f4d")
