"""No command is silent for long: on a terminal each says what it is at before its work begins."""

from __future__ import annotations

import importlib
import io
import re
import sys
import time
from pathlib import Path

import pytest

from defocus.cli import progress, run
from defocus.errors import DefocusError

TESSAR = "zeiss-tessar-50-f3.5"
# The command, and where its work begins.
COMMANDS = {
    f"lens show {TESSAR}": "defocus.survey:measure_one",
    f"lens draw {TESSAR} --out OUT/a.png": "defocus.draw:draw_layout",
    f"lens spots {TESSAR} --out OUT/a.png": "defocus.draw:draw_spots",
    f"lens card {TESSAR} --out OUT/a.png": "defocus.draw:draw_card",
    "lens survey OUT --out OUT/a.csv": "defocus.survey:survey_folder",
    f"psf {TESSAR}": "defocus.camera:Camera.psf",
    f"psf-grid {TESSAR} --out OUT/a.png": "defocus.draw:compute_psf_grid",
    f"wavefront {TESSAR} --out OUT/a.png": "defocus.draw:draw_wavefronts",
    f"pupils {TESSAR} --out OUT/a.png": "defocus.draw:draw_pupils",
    f"through-focus {TESSAR} --depths-m 1,2 --out OUT/a.png": "defocus.draw:draw_through_focus",
    f"blur scene:table --lens {TESSAR} --out OUT/a.png": "defocus.scene.procedural:make_scene",
    f"refocus scene:table --lens {TESSAR} --focus-m 1,2 --out OUT/a.gif": "defocus.scene.procedural:make_scene",
    "develop OUT/lens.json --out OUT/a.png": "defocus.photo:read_photo",
    "depth OUT/lens.json --out OUT/a.npz": "defocus.photo:read_photo",
    "scene table --out OUT/a.png": "defocus.scene.procedural:Scene.picture",
    "synth check OUT/plan.toml": "defocus.synth.check:preview_plan",
    "synth verify OUT": "defocus.synth.verify:verify_folder",
    "synth show OUT train-000000": "defocus.synth.show:show_pair",
    "synth report OUT": "defocus.synth.report:write_report",
}


CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A terminal that keeps what was shown."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_it_is_at(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lens.json").write_text("{}")
    (tmp_path / "plan.toml").write_text("seed = 1\n")
    terminal, texts = Terminal(), []

    def work(*_: object, **__: object) -> None:
        time.sleep(0.12)  # the bar is drawn ten times a second
        texts.append(terminal.getvalue())
        raise DefocusError("enough")

    module, _, path = COMMANDS[command].partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for one in owners:
        owner = getattr(owner, one)
    monkeypatch.setattr(owner, name, work)
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert run(command.replace("OUT", str(tmp_path)).split()) == 2
    assert "enough" in terminal.getvalue()
    assert texts
    assert re.search("[a-z]", CONTROLS.sub("", texts[0])), "an empty bar"
