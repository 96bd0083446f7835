"""One request's way through the server: authenticated, processed and answered, or in the scripted trouble it meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tosnative.testing.arrivals import RequestRecord
from tosnative.testing.errors import invalid_argument
from tosnative.testing.faults import Action
from tosnative.testing.messages import Buffer, Request, Response
from tosnative.testing.rendering import Answer, Renderer, distorted, error_response, scripted_refusal


class Service(Protocol):
    """Who knows the answers: the server."""

    renderer: Renderer

    def respond(self, request: Request, request_id: str) -> Response: ...


class Carrier(Protocol):
    """Who brings the answer to the client: the connection."""

    def send(self, answer: Answer, rate: float | None, keep_alive: bool) -> None: ...

    def after(self, delay_s: float, call: Callable[[], None]) -> None: ...

    def reset(self) -> None: ...

    def hang(self) -> None: ...


class Exchange:
    """A request that a connection is busy with.

    `rate` bounds both bodies in bytes per second, None: as fast as it goes. `hanging`: there will be no answer.
    """

    __slots__ = ("action", "carrier", "hanging", "keep_alive", "rate", "record", "request", "service")

    def __init__(
        self,
        service: Service,
        carrier: Carrier,
        request: Request,
        record: RequestRecord,
        action: Action | None,
        keep_alive: bool,
    ) -> None:
        self.service = service
        self.carrier = carrier
        self.request = request
        self.record = record
        self.action = action
        self.keep_alive = keep_alive
        self.hanging = False
        self.rate = _traffic_limit(request)
        if action is not None and action.bandwidth_bytes_s is not None:
            self.rate = min(action.bandwidth_bytes_s, self.rate or action.bandwidth_bytes_s)

    def breaks_after(self, received_bytes: int) -> bool:
        """Whether the connection is to be lost now that so much of the request's body has come."""
        limit = None if self.action is None else self.action.reset_after_request_bytes
        return limit is not None and received_bytes >= limit

    def run(self, body: Buffer) -> None:
        """The request is complete: answer it, now or when the script says so."""
        self.request.body = body
        self.record.body_bytes = len(body)
        action = self.action
        if action is None:
            request_id = self.service.renderer.request_id()
            response = self.service.respond(self.request, request_id)
            self._send(self._rendered(response, request_id))
        elif action.reset_after_request_bytes is not None:
            self.carrier.reset()  # the body was shorter than that
        elif isinstance(action.delay_s, (int, float)) and action.delay_s > 0:
            self.carrier.after(action.delay_s, lambda: self._run_scripted(action))
        else:
            self._run_scripted(action)

    def _run_scripted(self, action: Action) -> None:
        if action.reset == "before":
            return self.carrier.reset()
        if action.hang == "before":
            return self.carrier.hang()
        if action.ignore_range:
            self.request.headers = {name: v for name, v in self.request.headers.items() if name != "range"}
        request_id = self.service.renderer.request_id()
        response = scripted_refusal(action, self.request, request_id) or self.service.respond(self.request, request_id)
        if action.reset == "after":
            return self.carrier.reset()
        if action.hang == "after":
            return self.carrier.hang()
        answer = distorted(self.service.renderer, action, self.request, response, request_id, self.keep_alive)
        self.keep_alive = self.keep_alive and not action.close
        return self._send(answer)

    def _rendered(self, response: Response, request_id: str) -> Answer:
        render = self.service.renderer.render
        try:
            return render(self.request, response, request_id, self.keep_alive)
        except ValueError as error:
            refusal = error_response(invalid_argument(f"Unusable in a header: {error}."), self.request, request_id)
            return render(self.request, refusal, request_id, self.keep_alive)

    def _send(self, answer: Answer) -> None:
        self.record.status = answer.status
        self.record.sent_bytes = answer.body_bytes
        self.carrier.send(answer, self.rate, self.keep_alive)


def _traffic_limit(request: Request) -> float | None:
    """What the client asked to be throttled to, in bytes per second (it says it in bits)."""
    text = request.headers.get("x-tos-traffic-limit") or request.query.get("x-tos-traffic-limit")
    return int(text) / 8 if text and text.isascii() and text.isdigit() and int(text) else None
