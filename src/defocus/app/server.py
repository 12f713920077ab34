"""The server of the page: where it listens, what it keeps private, and its end."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from importlib.util import find_spec

from ..errors import DefocusError, MissingExtraError
from .private_files import MEGABYTE, PrivateFolder

LOOPBACK = "127.0.0.1"
PORT = 7860


@dataclass(frozen=True)
class ServerSettings:
    """Where the page listens, and the limits of a visitor."""

    host: str = LOOPBACK
    port: int | None = None
    most_upload_mb: int = 64
    deadline_s: float = 120.0
    warm: bool = True  # compile in the background what finished pictures need, too


class PageServer:
    """A page that is served until it is closed."""

    def __init__(self, settings: ServerSettings) -> None:
        if find_spec("gradio") is None:
            raise MissingExtraError("the page to play with", "web")
        check_host(settings.host)
        self.folder = PrivateFolder()
        # Before gradio is imported: nothing is sent anywhere, and files of visitors stay in our folder.
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ["GRADIO_TEMP_DIR"] = str(self.folder.path / "gradio")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import gradio

        from . import page_look
        from .darkroom import Darkroom
        from .job_line import JobLine
        from .page import Page

        self.darkroom = Darkroom(JobLine(settings.deadline_s), self.folder)
        self.darkroom.start(fine=settings.warm)
        self.blocks = Page(self.darkroom).blocks
        self.blocks.queue(max_size=256, api_open=False)
        try:
            _, self.address, _ = self.blocks.launch(
                server_name=settings.host,
                server_port=settings.port,
                prevent_thread_lock=True,
                quiet=True,
                share=False,
                show_error=False,
                allowed_paths=[],
                max_file_size=settings.most_upload_mb * MEGABYTE,
                enable_monitoring=False,
                footer_links=[],
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                theme=page_look.theme(gradio),
                css_paths=page_look.STYLE_SHEET,
            )
        except OSError as error:
            raise DefocusError(f"{settings.host}:{settings.port or PORT}: {error}; choose another --port") from None

    def wait(self) -> None:
        """Serve until Ctrl-C."""
        try:
            self.blocks.block_thread()
        finally:
            self.close()

    def close(self) -> None:
        """End the server and remove what visitors left."""
        self.blocks.close(verbose=False)
        self.darkroom.close()


def check_host(host: str) -> None:
    """Raise `DefocusError` where this machine cannot listen: gradio would try a hundred ports."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.bind(place)
    except OSError as error:
        raise DefocusError(
            f"--host {host}: this machine cannot listen there ({error.strerror}); {LOOPBACK} is this machine alone, "
            "0.0.0.0 everybody who reaches it"
        ) from None
