"""A page to play with: pick a lens, click on what should be sharp, turn the aperture. The only part that knows gradio.

`PageServer(ServerSettings())` serves it; `defocus explore` is the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .server import PageServer, ServerSettings

__all__ = ["PageServer", "ServerSettings"]

__getattr__, __dir__ = lazy_names(__name__)
