"""Progress is bytes per interval, whatever form the answer has, in both directions; a trickle counts as none."""

import threading
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import read_request, serving

from tosnative.errors import TosTimeoutError

PIECE = bytes(8192)
INTERVALS = 12


def paced(head: bytes, pieces: list[bytes], pause_s: float = 0.1) -> Any:
    """Send the head, then a piece every `pause_s`."""

    def script(connection: Any) -> None:
        read_request(connection)
        connection.sendall(head)
        for piece in pieces:
            threading.Event().wait(pause_s)
            connection.sendall(piece)

    return script


FORMS = {
    "length": (b"Content-Length: %d\r\n" % (INTERVALS * len(PIECE)), [PIECE] * INTERVALS),
    "chunked": (b"Transfer-Encoding: chunked\r\n", [b"2000\r\n%s\r\n" % PIECE] * INTERVALS + [b"0\r\n\r\n"]),
    "end": (b"", [PIECE] * INTERVALS),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_slow_body_that_moves_in_every_interval_is_left_alone(make_client: MakeClient, form: str) -> None:
    header, pieces = FORMS[form]
    with serving(paced(b'HTTP/1.1 200 OK\r\nETag: "e"\r\n%s\r\n' % header, pieces)) as server:
        client = make_client(endpoint=server.endpoint, stall_timeout_s=0.6, max_retry_count=0)
        assert client.get("test", "k").wait().getvalue() == PIECE * INTERVALS
        assert server.accepted == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_trickle_is_no_progress(make_client: MakeClient, form: str) -> None:
    header, _ = FORMS[form]
    drops = [b"1\r\nx\r\n" if form == "chunked" else b"x"] * 2000
    slow = paced(b'HTTP/1.1 200 OK\r\nETag: "e"\r\n%s\r\n' % header, drops, 0.02)
    with serving(slow) as server:
        client = make_client(endpoint=server.endpoint, stall_timeout_s=0.3, max_retry_count=0)
        with pytest.raises(TosTimeoutError, match=r"fewer than 4096 bytes in 0\.3 s") as caught:
            client.get("test", "k").wait()
        check_error(caught.value)
