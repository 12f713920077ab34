"""The weights that are part of the package: one network for any photograph.

`weights/general.safetensors` holds it in half precision, `general.json` says what it was made of and its SHA-256, which
is compared before it is read. A source tree may lack both: they are made by `benchmarks/general_training.py`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import WeightsError
from ..files.ownership import file_sum

NAME = "general"
FOLDER = Path(str(files("defocus.restore"))) / "weights"
ADVICE = "give other weights (--weights FILE), or install the package again"


def has_weights(folder: Path = FOLDER) -> bool:
    """Whether the package has weights of its own."""
    return all((folder / f"{NAME}{ending}").is_file() for ending in (".safetensors", ".json"))


def shipped_weights(folder: Path = FOLDER) -> Path:
    """The file of the weights. Raises `WeightsError` where it is missing or not the one that was shipped."""
    file = folder / f"{NAME}.safetensors"
    if not has_weights(folder):
        raise WeightsError(f"this installation has no weights of its own: {ADVICE}", file=file)
    if file_sum(file) != model_card(folder).get("sha256"):
        raise WeightsError(f"is not the file that was shipped, its checksum differs: {ADVICE}", file=file)
    return file


def model_card(folder: Path = FOLDER) -> dict[str, Any]:
    """What the weights were made of, how they did in tests, and where they end."""
    card = folder / f"{NAME}.json"
    try:
        content = json.loads(card.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"cannot be read: {error}", file=card) from error
    return content if isinstance(content, dict) else {}
