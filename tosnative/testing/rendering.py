"""From what the storage says to the bytes of an answer, right ones and, on purpose, wrong ones. No sockets."""

from __future__ import annotations

import enum
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from tosnative.testing.errors import ServiceError
from tosnative.testing.faults import Action
from tosnative.testing.http import HttpDate, chunked, response_head
from tosnative.testing.messages import Buffer, Request, Response

CRC_HEADER = "x-tos-hash-crc64ecma"
HOST_ID = "local-tos"
_json_type = {"Content-Type": "application/json"}
_default_codes = {429: "TooManyRequests", 503: "ServiceUnavailable", 403: "AccessDenied", 404: "NoSuchKey"}


class Ending(enum.Enum):
    """What becomes of the connection once the answer's bytes are sent."""

    KEEP = "keep"
    CLOSE = "close"
    RESET = "reset"
    STALL = "stall"


@dataclass(slots=True)
class Answer:
    """The bytes to send, how many of them are body, and what follows them."""

    status: int
    buffers: list[Buffer]
    body_bytes: int
    ending: Ending = Ending.KEEP


class Renderer:
    """Completes responses with what every answer carries; numbers the requests."""

    def __init__(self) -> None:
        self._date = HttpDate()
        self._numbers = itertools.count(1)

    def request_id(self) -> str:
        return f"{next(self._numbers):032x}"

    def render(self, request: Request, response: Response, request_id: str, keep_alive: bool) -> Answer:
        """The plain answer: what TOS itself would send."""
        pieces, head_length = wire_body(request, response)
        head = self.head(response, request_id, keep_alive, head_length)
        return Answer(response.status, [head, *pieces], sum(map(len, pieces)))

    def head(self, response: Response, request_id: str, keep_alive: bool, length: int | None) -> bytes:
        """The head; `length` is what Content-Length says unless the response has its own, None: chunked."""
        date = self._date.now()
        fixed = f"Server: TosServer\r\nDate: {date}\r\nx-tos-request-id: {request_id}\r\nx-tos-id-2: {HOST_ID}\r\n"
        if length is None:
            fixed += "Transfer-Encoding: chunked\r\n"
        elif "Content-Length" not in response.headers:
            fixed += f"Content-Length: {length}\r\n"
        if not keep_alive:
            fixed += "Connection: close\r\n"
        return response_head(response.status, fixed, response.headers)


def wire_body(request: Request, response: Response) -> tuple[list[Buffer], int]:
    """The body as sent, and the length that the head announces (a HEAD's answer announces what it does not send)."""
    status, body = response.status, response.body
    pieces: list[Buffer] = [memoryview(piece).cast("B") for piece in pieces_of(body) if len(piece)]
    if status in (204, 304) or status < 200:
        return [], 0
    length = sum(map(len, pieces))
    if request.method == "HEAD":
        return [], length if status < 300 else 0
    return pieces, length


def pieces_of(body: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    return (body,) if isinstance(body, (bytes, bytearray, memoryview)) else body


def error_response(error: ServiceError, request: Request, request_id: str) -> Response:
    """The JSON that TOS explains an error with; the code that survives a HEAD travels in a header."""
    document = error_document(error.code, error.message, error.ec, request, request_id)
    document.update(error.extra)
    headers = dict(_json_type)
    if error.ec:
        headers["x-tos-ec"] = error.ec
    headers.update(error.headers)
    return Response(error.status, headers, json.dumps(document).encode())


def error_document(code: str, message: str, ec: str, request: Request, request_id: str) -> dict[str, str]:
    resource = "/".join(["", *(part for part in (request.bucket, request.key) if part)]) or "/"
    document = {"Code": code, "Message": message, "RequestId": request_id, "HostId": HOST_ID, "Resource": resource}
    if ec:
        document["EC"] = ec
    return document


def scripted_refusal(action: Action, request: Request, request_id: str) -> Response | None:
    """The error that an action answers with instead of having the request processed, if it does."""
    if action.error_in_200 is not None:
        message = "A scripted failure, told in the body."
        document = error_document(action.error_in_200, message, action.ec, request, request_id)
        return Response(200, dict(_json_type), json.dumps(document).encode())
    if action.expired_token:
        message = action.message or "The security token has expired."
        error = ServiceError(403, action.code or "ExpiredToken", message, action.ec)
    elif action.status is not None:
        code = action.code or _default_codes.get(action.status, "InternalError")
        error = ServiceError(action.status, code, action.message or "A scripted failure.", action.ec)
    else:
        return None
    if action.retry_after_s is not None:
        error.headers["Retry-After"] = f"{action.retry_after_s:g}"
    return error_response(error, request, request_id)


def distorted(
    renderer: Renderer, action: Action, request: Request, response: Response, request_id: str, keep_alive: bool
) -> Answer:
    """The answer as the action spoils it. The stored bytes are never changed."""
    headers = {name: value for name, value in response.headers.items() if not _spoils(action, name)}
    if action.crc == "wrong":
        headers[CRC_HEADER] = _wrong_crc(response.headers)
    if action.content_range is not None:
        headers["Content-Range"] = action.content_range
    pieces, length = wire_body(request, response)
    sends_body = bool(pieces)
    if action.extra_bytes and request.method != "HEAD":
        pieces.append(bytes(action.extra_bytes))
        length += action.extra_bytes
    if action.flip_byte_at is not None:
        pieces = _flipped(pieces, action.flip_byte_at)
    coded = action.chunk_bytes is not None and sends_body
    if action.chunk_bytes is not None and coded:
        pieces = chunked(pieces, action.chunk_bytes)
    keep_alive = keep_alive and not action.close
    changed = Response(response.status, headers, b"")
    head = renderer.head(changed, request_id, keep_alive, None if coded else length)
    pieces, ending = _cut(action, pieces)
    if action.close_idle and ending is Ending.KEEP:
        ending = Ending.CLOSE
    interim: list[Buffer] = [response_head(status, "", {}) for status in action.interim]
    return Answer(response.status, [*interim, head, *pieces], sum(map(len, pieces)), ending)


def _spoils(action: Action, name: str) -> bool:
    lower = name.lower()
    if lower == CRC_HEADER:
        return action.crc is not None
    if lower == "content-length":
        return action.chunk_bytes is not None or action.extra_bytes > 0
    return lower == "content-range" and action.content_range is not None


def _wrong_crc(headers: dict[str, str]) -> str:
    right = next((value for name, value in headers.items() if name.lower() == CRC_HEADER), "0")
    return str(int(right) ^ 1)


def _flipped(pieces: list[Buffer], at: int) -> list[Buffer]:
    changed = list(pieces)
    for number, piece in enumerate(pieces):
        if at < len(piece):
            copy = bytearray(piece)
            copy[at] ^= 0xFF
            changed[number] = copy
            break
        at -= len(piece)
    return changed


def _cut(action: Action, pieces: list[Buffer]) -> tuple[list[Buffer], Ending]:
    """The body up to where the trouble strikes. A cut at or after the body's end strikes after its last byte."""
    cuts = [
        (action.reset_after_bytes, Ending.RESET),
        (action.truncate_after_bytes, Ending.CLOSE),
        (action.stall_after_bytes, Ending.STALL),
    ]
    struck = [(at, ending) for at, ending in cuts if at is not None]
    if not struck:
        return pieces, Ending.KEEP
    left, ending = min(struck, key=lambda cut: cut[0])
    kept: list[Buffer] = []
    for piece in pieces:
        if left <= 0:
            break
        kept.append(memoryview(piece)[:left])
        left -= len(piece)
    return kept, ending
