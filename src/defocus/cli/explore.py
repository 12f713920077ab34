"""`defocus explore`: a page to play with, in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from .progress import status_line


def explore(
    host: Annotated[
        str, "Where to listen; 127.0.0.1 is this machine alone, 0.0.0.0 everybody who reaches it."
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="The port. [default: 7860, or the next free one]", min=1, max=65535)
    ] = None,
    upload_mb: Annotated[int, typer.Option(help="The largest file that a visitor may drop.", min=1, max=4096)] = 64,
    time_limit_s: Annotated[
        float, typer.Option(help="The longest that one finished picture may take.", min=1.0)
    ] = 120.0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Play with lenses in the browser: layouts, points, photographs, deblurring. Ends with Ctrl-C."""
    with status_line("starting the page"):
        from ..app import PageServer, ServerSettings

        server = PageServer(ServerSettings(host, port, upload_mb, time_limit_s))
    typer.echo(f"the page is at {server.address} (Ctrl-C ends it)")
    if host not in ("127.0.0.1", "localhost", "::1"):
        typer.echo("note: everybody who reaches this machine can use it", err=True)
    if open_browser:
        typer.launch(server.address)
    server.wait()
