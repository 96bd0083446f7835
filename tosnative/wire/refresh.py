"""Two helpers of the engine: credentials fetched beside the loop, and the switch interval while TLS transfers run."""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from tosnative.errors import TosAccessError, TosError
from tosnative.wire.channel import Channel
from tosnative.wire.pool import Pool
from tosnative.wire.retry import Failure, Kind
from tosnative.wire.transfer import Transfer

if TYPE_CHECKING:
    from tosnative.credentials import CredentialProvider

__all__ = ["Refresher", "SwitchInterval", "provider_failure"]

# Measured over TLS with a busy main thread: 3 MiB/s at Python's 5 ms, 30 to 110 MiB/s at 0.1 to 0.5 ms.
_SHORT_S = 0.0005


def provider_failure(error: BaseException) -> Failure:
    """A credential provider, which is foreign code, raised `error`: only its kind is shown, as its text may hold secrets."""
    told = TosError(f"the credential provider failed ({type(error).__name__})", hint="see its own log", cause="")
    return Failure(Kind.PROVIDER, told.message, exception=TosAccessError(told), cause=error)


class Refresher:
    """Asks providers, which may block, on a thread of its own; transfers that need the answer wait for the same one.

    done: called with each transfer and None (go on) or the Failure (give up), on that thread.
    """

    def __init__(self, done: Callable[[Transfer, Failure | None], None]) -> None:
        self._done = done
        self._lock = threading.Lock()  # guards _waiting
        self._waiting: dict[CredentialProvider, list[tuple[Transfer, Failure | None]]] = {}

    def fetch(self, transfer: Transfer) -> None:
        """There are no credentials yet, or they have expired."""
        self._ask(transfer, None)

    def replace(self, transfer: Transfer, failure: Failure) -> None:
        """The service rejected the credentials of the transfer's last attempt, with `failure`."""
        self._ask(transfer, failure)

    def transfers(self) -> Iterator[Transfer]:
        """Those that wait for an answer of their provider."""
        with self._lock:
            waiting = [transfer for entries in self._waiting.values() for transfer, _ in entries]
        yield from waiting

    def _ask(self, transfer: Transfer, failure: Failure | None) -> None:
        provider = transfer.target.provider
        with self._lock:
            waiting = self._waiting.get(provider)
            if waiting is not None:
                waiting.append((transfer, failure))
                return
            self._waiting[provider] = [(transfer, failure)]
        threading.Thread(target=self._work, args=(provider,), name="tosnative-credentials", daemon=True).start()

    def _work(self, provider: CredentialProvider) -> None:
        error: BaseException | None = None
        with self._lock:
            rejected = next((t.credentials for t, f in self._waiting[provider] if f is not None), None)
        newer = True
        try:
            if rejected is not None:
                newer = provider.rejected(rejected)
            else:
                provider.current()
        except Exception as caught:  # noqa: BLE001 - providers are foreign code
            error = caught
        with self._lock:
            waiting = self._waiting.pop(provider)
        for transfer, failure in waiting:
            if error is not None:
                self._done(transfer, provider_failure(error))
            elif failure is not None and not newer and transfer.credentials == rejected:
                failure.kind = Kind.FINAL
                if transfer.attempts is not None:
                    transfer.attempts.take_back()  # there was no further attempt
                self._done(transfer, failure)
            else:
                self._done(transfer, None)


class SwitchInterval:
    """Shortens sys.setswitchinterval while TLS transfers run, and puts back what was there.

    A TLS socket's calls give up the GIL; with a busy main thread each costs a whole switch interval to get it back.
    """

    def __init__(self) -> None:
        self._channels: set[Channel] = set()
        self._before: float | None = None

    def connected(self, channel: Channel, pool: Pool) -> None:
        transfer = pool.queue[0] if pool.queue else None
        if isinstance(channel.sock, ssl.SSLSocket) and transfer is not None and transfer.target.shorten_switch_interval:
            self._channels.add(channel)
            self.settle([channel])

    def closed(self, channel: Channel) -> None:
        self._channels.discard(channel)

    def settle(self, active: Iterable[Channel]) -> None:
        """Called now and then with what is at work: shorten while such channels are among them, restore otherwise."""
        if self._channels and not self._channels.isdisjoint(active):
            if self._before is None and sys.getswitchinterval() > _SHORT_S:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(_SHORT_S)
        elif self._before is not None:
            if abs(sys.getswitchinterval() - _SHORT_S) < 1e-6:  # nobody else has set it meanwhile
                sys.setswitchinterval(self._before)
            self._before = None
