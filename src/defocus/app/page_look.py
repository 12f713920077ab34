"""How the page looks: colours and fonts of the machine itself (nothing is fetched from elsewhere), and its texts."""

from __future__ import annotations

from typing import Any

TITLE = "Defocus: how real lenses draw"
INTRODUCTION = """## Defocus
Pick a lens, click on what should be sharp, turn the aperture: a photograph as that lens would have drawn it, by rays
and light waves through its real surfaces."""
DEBLUR_TEXT = (
    "Drop a photograph that is out of focus. The network never leaves this machine, and neither does the picture."
)
FONTS = ("system-ui", "Segoe UI", "Roboto", "Helvetica", "Arial", "sans-serif")
MONOSPACE = ("ui-monospace", "Consolas", "DejaVu Sans Mono", "monospace")
CSS = """
.gradio-container { max-width: 1440px !important; margin: 0 auto; }
#lens input, #second input { text-overflow: ellipsis; padding-right: 1.8em; }
.defocus-status { min-height: 1.6em; }
.defocus-status p { margin: 0; }
.defocus-alert { color: #b3261e; font-weight: 600; }
.dark .defocus-alert { color: #ffb4ab; }
.defocus-bar { display: inline-block; width: 9em; height: 0.5em; margin-right: 0.7em; border-radius: 0.25em;
  background: var(--border-color-primary); overflow: hidden; vertical-align: middle; }
.defocus-bar span { display: block; height: 100%; background: var(--color-accent); }
.defocus-figure { background: white; border-radius: 8px; padding: 6px; }
.defocus-figure img { width: 100%; height: auto; display: block; }
.defocus-numbers { display: flex; flex-wrap: wrap; gap: 1em 2em; }
.defocus-numbers table { flex: 1 1 260px; border-collapse: collapse; font-size: 0.92em; }
.defocus-numbers :is(table, tr, th, td) { border: none !important; }
.defocus-numbers caption { text-align: left; font-weight: 600; padding-bottom: 0.3em; }
.defocus-numbers th { text-align: left; font-weight: 400; opacity: 0.75; padding: 0.1em 0.6em 0.1em 0; }
.defocus-numbers td { text-align: right; white-space: nowrap; }
.defocus-tiles { display: grid; gap: 6px; }
.defocus-head { text-align: center; font-size: 0.85em; opacity: 0.8; }
.defocus-tile { position: relative; background: #111; border-radius: 6px; overflow: hidden; min-height: 40px; }
.defocus-tile img { width: 100%; height: auto; display: block; image-rendering: pixelated; }
.defocus-tile p { position: absolute; inset: auto 0 0 0; margin: 0; padding: 0.35em 0.5em; font-size: 0.72em;
  line-height: 1.25; color: white; background: rgba(0, 0, 0, 0.72); opacity: 0; }
.defocus-tile:hover p, .defocus-tile:focus p { opacity: 1; }
.defocus-refused p { position: static; opacity: 1; }
.defocus-tile:focus { outline: 3px solid var(--color-accent); }
.defocus-note { font-size: 0.85em; opacity: 0.75; }
#photograph img { cursor: crosshair; }
@media (max-width: 640px) {
  .gradio-container { padding: 8px !important; }
  #desk { flex-direction: column-reverse; }
  #charts { flex-direction: column; }
  .defocus-tile p { font-size: 0.6em; }
}
"""


def theme(gradio: Any) -> Any:
    """A quiet theme with one warm accent."""
    colours = {"primary_hue": "amber", "neutral_hue": "stone"}
    return gradio.themes.Base(**colours, font=list(FONTS), font_mono=list(MONOSPACE), radius_size="md")


def progress_line(text: str, done: float | None = None, *, alert: bool = False) -> str:
    """A line of the page's status: some words, with a bar where it is known how much is done."""
    import html

    words = html.escape(text)
    if alert:
        return f"<p class='defocus-alert' role='alert'>{words}</p>"
    bar = (
        ""
        if done is None
        else f"<span class='defocus-bar' aria-hidden='true'><span style='width:{done:.0%}'></span></span>"
    )
    return f"<p role='status'>{bar}{words}</p>"
