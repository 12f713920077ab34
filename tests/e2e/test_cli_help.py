"""What `defocus` says of itself: groups, whole sentences, completion, one convention for all commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from defocus.cli import GROUPS, root_command, run


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, but for groups."""
    for name, member in getattr(command, "commands", {}).items():
        yield from commands(member, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = [pytest.param(command, id=" ".join(path)) for path, command in commands(root_command())]


def test_commands_stand_in_groups_with_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{heading}:\n") for heading in GROUPS]
    assert places == sorted(places)
    assert "\nCommands:" not in shown  # each has its group
    assert "..." not in shown.partition("First steps:")[2]
    words = " ".join(shown.split())
    assert "Restore test sets with each model of a table, measure the results, and write tables and figures." in words
    assert run(["lens", "--help"]) == 0
    assert "\nCommands:\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_options_follow_one_convention(command: Any) -> None:
    assert (command.help or "").strip().partition("\n\n")[0].endswith("."), "a description is made of sentences"
    for parameter in command.params:
        assert parameter.help, f"{parameter.name}: no help"
        if parameter.name in ("field", "focus_at"):
            assert parameter.nargs == 1
            assert "X,Y" in parameter.help
        if parameter.name in ("plot", "figure", "output"):
            assert command.name == "depth", "what a command makes is its --out"


def test_shells_complete_commands_lenses_and_options() -> None:
    def completions(line: str) -> list[str]:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_DEFOCUS_COMPLETE": "complete_bash"}
        command = [sys.executable, "-m", "defocus"]
        return subprocess.check_output(command, env=os.environ | words, text=True).split()

    assert completions("defocus psf-g") == ["psf-grid", "psf-gallery"]
    assert completions("defocus psf leica-summicron") == ["leica-summicron-50-f2"]
