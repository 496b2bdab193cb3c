"""The page of ``ukjax.explore`` on this machine: a small HTTP server, which is accessible only from this machine."""

import contextlib
import json
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, runtime_checkable

from .._errors import InputError
from .page import open_address

HOST = "127.0.0.1"


@runtime_checkable
class Served(Protocol):
    """The content that is served: a page, and the scenes of new motions."""

    def page(self) -> str:
        """The text of the page."""
        ...

    def scene(self, values: Mapping[str, float]) -> dict[str, Any]:
        """The scene for the values of its sliders."""
        ...


def server_of(exploration: Served, port: int) -> ThreadingHTTPServer:
    """A server of the page and of new motions, not yet started. Raises ``InputError`` if the port cannot be used."""
    page = exploration.page().encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            address = urllib.parse.urlsplit(self.path)
            if self.headers.get("Host", "").rpartition(":")[0] not in (HOST, "localhost"):
                # a page of another site whose name resolves to this machine
                self.answer(HTTPStatus.FORBIDDEN, "text/plain", b"only for this machine")
            elif address.path == "/":
                self.answer(HTTPStatus.OK, "text/html; charset=utf-8", page)
            elif address.path == "/motion":
                self.answer(*_motion(exploration, address.query))
            else:
                self.answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found")

        def answer(self, status: HTTPStatus, kind: str, content: bytes):
            with contextlib.suppress(ConnectionError):  # the page was closed meanwhile
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = False

    try:
        return Server((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"port {port} at {HOST} cannot be used: {error}") from None


def serve(exploration: Served, port: int, show: bool) -> None:
    """Serve until Ctrl-C."""
    with server_of(exploration, port) as server:
        address = f"http://{HOST}:{server.server_port}/"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if show:
            open_address(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def _motion(exploration, query):
    """Status, type and content of the answer to the values in a query."""
    try:
        values = {name: float(value) for name, value in urllib.parse.parse_qsl(query, strict_parsing=bool(query))}
        written = exploration.scene(values)
    except (InputError, ValueError) as error:
        return HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", str(error).encode()
    return HTTPStatus.OK, "application/json", json.dumps(written).encode()
