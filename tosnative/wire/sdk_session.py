"""The HTTP of the official SDK, with bounds: it reads whatever a service sends, however much and however slowly."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import requests
import requests.adapters

from tosnative.config import ConnectionOptions
from tosnative.quoting import one_line

__all__ = ["bound_session"]

# What the control plane is answered is small: the largest, the result of deleting a thousand keys, stays below 3 MiB.
_MOST_BODY = 16 << 20
_MOST_ERROR_BODY = 64 * 1024
_PIECE = 64 * 1024
# Fewer bytes than this in a whole stall interval count as no progress, as in the data plane.
_PROGRESS_BYTES = 4096


def bound_session(session: requests.Session, options: ConnectionOptions) -> None:
    """Have this session's answers read here, at once, before the SDK looks at them."""
    adapter = _BoundedAdapter(options.stall_timeout_s)
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)


class _BoundedAdapter(requests.adapters.HTTPAdapter):
    def __init__(self, stall_timeout_s: float) -> None:
        super().__init__()
        self._stall_timeout_s = stall_timeout_s

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        response = super().send(request, *args, **options)
        refused = response.status_code >= 300
        if request.method == "HEAD":
            body = b""
            if refused:  # the length is that of a GET's answer, which the SDK would miss
                response.headers["Content-Length"] = "0"
        else:
            body = self._take(response.raw, _MOST_ERROR_BODY if refused else _MOST_BODY, cut=refused)
        if refused and body:
            body = _readable(body)
            response.headers["Content-Length"] = str(len(body))
        response.raw = io.BytesIO(body)
        return response

    def _take(self, raw: Any, most: int, cut: bool) -> bytes:
        """The body, up to `most` bytes. cut: what follows is left. Raises: what the SDK knows as an exchange that failed."""
        data = bytearray()
        mark, until = 0, time.monotonic() + self._stall_timeout_s
        read = getattr(raw, "read1", raw.read)  # since urllib3 2.1
        try:
            while piece := read(_PIECE):
                data += piece
                if len(data) > most:
                    if cut:
                        break
                    raise requests.exceptions.ContentDecodingError(f"an answer of more than {most} bytes")
                now = time.monotonic()
                if len(data) - mark >= _PROGRESS_BYTES:
                    mark, until = len(data), now + self._stall_timeout_s
                elif now > until:
                    text = f"stalled: fewer than {_PROGRESS_BYTES} bytes in {self._stall_timeout_s:g} s"
                    raise requests.exceptions.ReadTimeout(text)
        except BaseException:
            raw.close()
            raise
        if len(data) > most:
            raw.close()
        return bytes(data[:most])


def _readable(body: bytes) -> bytes:
    """An error's body as the SDK can read it: a JSON object."""
    try:
        if isinstance(json.loads(body), dict):
            return body
    except (ValueError, RecursionError):
        pass
    return json.dumps({"Message": one_line(body[:1000].decode("utf-8", "replace"), 200)}).encode()
