"""Files: stores, picture codecs, settings, named randomness, a journal of what is done, folders of pairs."""
