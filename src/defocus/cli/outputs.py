"""Files that a command will write: what can be wrong with their names is said before the long work; JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ..errors import DefocusError


def check_outputs(out: Path | None, plot: Path | None) -> None:
    """Refuse an `out` that is no .npz in an existing folder, and a `plot` that no figure can be written to."""
    if plot is not None:
        from ..draw import check_figure_path

        check_figure_path(plot)
    if out is not None:
        if out.suffix != ".npz":
            raise DefocusError(f"{out}: expected a name that ends in .npz")
        if not out.resolve().parent.is_dir():
            raise DefocusError(f"{out}: cannot be written: there is no folder {out.parent}")


def json_text(told: Any) -> str:
    """JSON has no infinite numbers; they are written as "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return "inf" if isinstance(value, float) and math.isinf(value) else value

    return json.dumps(plain(told), indent=1, allow_nan=False)
