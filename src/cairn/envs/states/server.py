"""Serves the pages, and what they download, to browsers on this machine."""

import http.server
import threading
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cairn.errors import SetupError

_FILES = "/files/"
_PATIENCE = 15.0  # seconds for a request to be said, and for the last ones at closing
_SLOWEST_MS = 10_000


class _Pages(http.server.SimpleHTTPRequestHandler):
    timeout = _PATIENCE

    def __init__(self, *arguments: object, downloads: Path, closing: threading.Event, directory: str) -> None:
        self._downloads = downloads
        self._closing = closing
        super().__init__(*arguments, directory=directory)  # pyright: ignore[reportArgumentType] - the server's own three

    def do_GET(self) -> None:
        """A file; with `?slow=MS`, after so long."""
        wait = parse_qs(urlsplit(self.path).query).get("slow", ["0"])[0]
        self._closing.wait(min(_SLOWEST_MS, int(wait) if wait.isdigit() else 0) / 1000)
        super().do_GET()

    def translate_path(self, path: str) -> str:
        """What was downloaded lies in a folder of its own."""
        if path.startswith(_FILES):
            return str(self._downloads / Path(urlsplit(path).path).name)
        return super().translate_path(path)

    def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002 - the base class's name
        """Says nothing."""
        del format


class PageServer:
    """A server on a loopback port of its own."""

    def __init__(self, *, site: Path, downloads: Path) -> None:
        self._closing = threading.Event()
        handler = partial(_Pages, downloads=downloads, closing=self._closing, directory=str(site))
        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        except OSError as error:
            raise SetupError(f"no server for the pages could be started on 127.0.0.1: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="pages")
        self._thread.start()

    @property
    def origin(self) -> str:
        """As pages have it, with the port."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving; requests under way are answered at once. Idempotent."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_PATIENCE)
