"""The command line: one file per group of commands. Heavy modules are imported inside the commands.

One convention for all commands: `--out` names what a command makes, and its ending says as what (a command that can
write it in several ways takes `--out` several times); places are X,Y and lists have commas; sizes are WIDTHxHEIGHT;
options with a unit end in it (`--focus-m`, `--pixel-um`, `--wavelength-nm`).
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from .. import __version__
from ..errors import DefocusError
from .blur import blur
from .evaluate import ablate, downstream, evaluate, groundtruth
from .explore import explore
from .help_in_groups import HelpInGroups, command_group
from .lens import lens_app
from .options import command
from .photo import depth, develop, scene
from .psf import psf, psf_compare, psf_gallery, psf_grid, pupils, through_focus, wavefront
from .refocus import refocus
from .restore import deblur, train
from .synth import demo, synth_app

STOPPED = 130  # exit code of what Ctrl-C ended

# What `--help` shows, in this order.
GROUPS: dict[str, tuple[typer.Typer | Callable[..., None], ...]] = {
    "First steps": (demo, explore),
    "Lenses": (lens_app,),
    "Point spread functions": (psf, psf_grid, through_focus, psf_gallery, psf_compare, wavefront, pupils),
    "Photographs": (blur, refocus, scene, develop, depth),
    "Data sets": (synth_app,),
    "Restoration": (train, deblur),
    "Evaluation": (evaluate, ablate, groundtruth, downstream),
}


class RootHelp(HelpInGroups):
    """The help of `defocus` itself; typer would put groups of commands behind all others."""

    headings = tuple(GROUPS)


app = command_group("defocus", "Simulate how real photographic lenses blur a scene.", RootHelp)
for group, members in GROUPS.items():
    for member in members:
        if isinstance(member, typer.Typer):
            app.add_typer(member, rich_help_panel=group)
        else:
            command(app, group=group)(member)


def _version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"defocus {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Simulate how real photographic lenses blur a scene."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `defocus` command. Wrong use ends with exit code 2 and one line that helps."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it reads the metadata of every package to find some
    gc.set_threshold(50_000)  # Python's 700 looks for garbage a thousand times among what JAX imports
    code = run(sys.argv[1:] if arguments is None else arguments)
    gc.freeze()  # nor at the end, when all of it goes
    sys.exit(code)


@functools.cache
def root_command() -> Any:
    """The command line as click has it, which typer takes a while to make."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        code = int(root_command().main(list(arguments), prog_name="defocus", standalone_mode=False) or 0)
        if code == STOPPED:  # typer makes this of Ctrl-C, and says nothing
            typer.echo("defocus: stopped", err=True)
        return code
    except DefocusError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("defocus: stopped", err=True)
        return STOPPED
    except Exception as error:  # typer carries its own copy of click: its errors are known by what they can do
        if not hasattr(error, "format_message"):
            raise
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(context.get_help() if context else "", err=True)
            return 2
        text = error.format_message().strip()
        end = "" if text.endswith((".", "?", "!")) else "."
        message = f"{text}{end} See '{context.command_path if context else 'defocus'} --help'."
    typer.echo(f"defocus: {' '.join(message.split())}", err=True)
    return 2


__all__ = ["app", "main", "run"]
