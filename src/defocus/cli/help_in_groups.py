"""Help of commands in groups, each with its first sentence as a whole.

click shows one flat list and cuts what does not fit a line; typer's panels need rich, whose import alone takes as long
as the rest of `--help`.
"""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperGroup


class HelpInGroups(TyperGroup):
    """Commands under the headings that `rich_help_panel` gives them; those without one are plain commands."""

    headings: tuple[str, ...] = ()  # in this order

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group that has some, in the order in which they were added."""
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in self.headings}
        for name, command in self.commands.items():
            if not command.hidden:
                heading = getattr(command, "rich_help_panel", None)
                groups.setdefault(heading if isinstance(heading, str) else "Commands", []).append(
                    (name, first_sentence(command.help or ""))
                )
        width = max((len(name) for rows in groups.values() for name, _ in rows), default=0)
        for heading, rows in groups.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl([(name.ljust(width), text) for name, text in rows])


def command_group(name: str, about: str, help_class: type[HelpInGroups] = HelpInGroups) -> typer.Typer:
    """An application of commands; alone, its name shows its help."""
    plain: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(name=name, cls=help_class, help=about, no_args_is_help=True, **plain)


def first_sentence(text: str) -> str:
    """The first sentence of a text, on one line."""
    sentence = re.match(r".*?\.(?=\s|$)|.*", text.strip(), re.DOTALL)
    return " ".join(sentence[0].split()) if sentence else ""
