"""Services beside TOS that credentials come from, as small HTTP servers."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Answering(http.server.BaseHTTPRequestHandler):
    """Answers with a body, and logs nothing."""

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def running(server: http.server.HTTPServer) -> Iterator[None]:
    """Serves in a thread of its own, until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()
