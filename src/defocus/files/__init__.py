"""Files: stores, picture codecs, settings, named randomness, journals and folders of pairs. Knows no optics."""
