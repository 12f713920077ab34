"""How the page looks: its fonts are the machine's own (nothing is fetched from elsewhere); `page.css`; its texts."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

TITLE = "Defocus: how real lenses draw"
INTRODUCTION = """## Defocus
Pick a lens, click on what should be sharp, turn the aperture: a photograph as that lens would have drawn it, by rays
and light waves through its real surfaces."""
DEBLUR_TEXT = (
    "Drop a photograph that is somewhat out of focus: blur of a few pixels is undone, a large one stays. The network "
    "runs on the machine that serves this page, and the photograph is sent nowhere else. `defocus deblur` does the "
    "same for photographs of any size."
)
FONTS = ("system-ui", "Segoe UI", "Roboto", "Helvetica", "Arial", "sans-serif")
MONOSPACE = ("ui-monospace", "Consolas", "DejaVu Sans Mono", "monospace")
STYLE_SHEET = Path(__file__).with_name("page.css")


def theme(gradio: Any) -> Any:
    """A quiet theme with one warm accent."""
    colours = {"primary_hue": "amber", "neutral_hue": "stone"}
    return gradio.themes.Base(**colours, font=list(FONTS), font_mono=list(MONOSPACE), radius_size="md")


def progress_line(text: str, done: float | None = None, *, alert: bool = False) -> str:
    """A line of the page's status: some words, with a bar where it is known how much is done."""
    words = html.escape(text)
    if alert:
        return f"<p class='defocus-alert' role='alert'>{words}</p>"
    bar = ""
    if done is not None:
        bar = f"<span class='defocus-bar' aria-hidden='true'><span style='width:{done:.0%}'></span></span>"
    return f"<p role='status'>{bar}{words}</p>"
