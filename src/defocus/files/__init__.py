"""Files: stores, picture codecs, settings, named randomness, a journal of what is done, folders of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .exif import Exif
    from .journal import Journal
    from .ownership import Mark, OwnedFolder, check_no_folder_of_ours, check_not_input, claim, read_mark, strangers
    from .pair_folders import PairFiles, PairReader, find_pairs, is_pair_folder, read_records
    from .pictures import (
        check_picture_path,
        decode_picture,
        picture_size,
        quantise,
        read_picture,
        write_linear,
        write_picture,
    )
    from .png import png_bytes
    from .randomness import generator, seed_for
    from .settings import nearest_name, read_toml, settings_difference, validated
    from .stores import Store, check_output, open_store, write_file, writing_file

__all__ = [
    "Exif",
    "Journal",
    "Mark",
    "OwnedFolder",
    "PairFiles",
    "PairReader",
    "Store",
    "check_no_folder_of_ours",
    "check_not_input",
    "check_output",
    "check_picture_path",
    "claim",
    "decode_picture",
    "find_pairs",
    "generator",
    "is_pair_folder",
    "nearest_name",
    "open_store",
    "picture_size",
    "png_bytes",
    "quantise",
    "read_mark",
    "read_picture",
    "read_records",
    "read_toml",
    "seed_for",
    "settings_difference",
    "strangers",
    "validated",
    "write_file",
    "write_linear",
    "write_picture",
    "writing_file",
]

__getattr__, __dir__ = lazy_names(__name__)
