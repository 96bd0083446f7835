"""Sockets, opened by urllib3's own connection classes on a few threads, then handed over to be driven non-blocking.

Name lookup, TCP, TLS verification, client certificates, proxies and CONNECT tunnels are urllib3's; so is what they log.
"""

from __future__ import annotations

import http.client
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import urllib3
import urllib3.connection
import urllib3.exceptions
import urllib3.util
import urllib3.util.ssl_

from tosnative.config import ConnectionOptions
from tosnative.wire.process import PerProcess
from tosnative.wire.retry import Failure, Kind

__all__ = ["Connector", "Origin", "proxy_authorization"]

_THREADS = 8
_NO_DELAY: list[tuple[int, int, int | bytes]] = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where connections go, and how: two requests share connections if and only if their origins are equal."""

    scheme: str
    host: str
    port: int
    proxy: str | None
    options: ConnectionOptions

    def __hash__(self) -> int:
        # Asked for each transfer: the options' many fields are left to the comparison, which equal origins seldom need.
        return hash((self.host, self.port))

    def __str__(self) -> str:
        through = f" through proxy {urlsplit(self.proxy).hostname}:{urlsplit(self.proxy).port}" if self.proxy else ""
        return f"{self.scheme}://{self.host}:{self.port}{through}"


def proxy_authorization(proxy: str) -> str | None:
    """The value of Proxy-Authorization for a proxy's URL, None where it names no user."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return None
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return urllib3.util.make_headers(proxy_basic_auth=user)["proxy-authorization"]


def _tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    context = urllib3.util.ssl_.create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if options.verify else ssl.CERT_NONE)
    if options.verify and options.ca_bundle:
        if os.path.isdir(options.ca_bundle):
            context.load_verify_locations(capath=options.ca_bundle)
        else:
            context.load_verify_locations(cafile=options.ca_bundle)
    elif options.verify:
        context.load_default_certs()
    if options.client_cert:
        context.load_cert_chain(*options.client_cert)
    return context


_contexts: PerProcess[dict[ConnectionOptions, ssl.SSLContext]] = PerProcess(dict)


def _context(options: ConnectionOptions) -> ssl.SSLContext:
    contexts = _contexts.get()
    found = contexts.get(options)
    if found is None:
        found = contexts[options] = _tls_context(options)
    return found


def _connection(origin: Origin) -> urllib3.connection.HTTPConnection:
    """The urllib3 connection to open for this origin, not yet connected."""
    timeout = origin.options.connect_timeout_s
    proxy = urlsplit(origin.proxy) if origin.proxy else None
    host, port = origin.host, origin.port
    if proxy is not None:
        host, port = proxy.hostname or "", proxy.port or (443 if proxy.scheme == "https" else 80)
    if origin.scheme == "http" and (proxy is None or proxy.scheme == "http"):
        return urllib3.connection.HTTPConnection(host, port, timeout=timeout, socket_options=_NO_DELAY)
    connection = urllib3.connection.HTTPSConnection(
        host,
        port,
        timeout=timeout,
        socket_options=_NO_DELAY,
        ssl_context=_context(origin.options),
        cert_reqs="CERT_REQUIRED" if origin.options.verify else "CERT_NONE",
    )
    if proxy is not None and origin.scheme == "https":
        authorization = proxy_authorization(origin.proxy or "")
        headers = {"Proxy-Authorization": authorization} if authorization else {}
        connection.set_tunnel(origin.host, origin.port, headers=headers, scheme="http")
    return connection


def open_socket(origin: Origin) -> socket.socket:
    """A connected, verified socket in non-blocking mode. Raises: Failure."""
    connection = _connection(origin)
    try:
        connection.connect()
    except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
        connection.close()
        raise _failure(origin, error) from error
    sock = connection.sock
    connection.sock = None
    assert sock is not None
    sock.setblocking(False)
    return sock


def _failure(origin: Origin, error: Exception) -> Failure:
    text = f"cannot connect to {origin}: {_plainly(error)[:500]}"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Failure(Kind.REFUSED, f"{text}; if its CA is your own, set ca_bundle", cause=error)
        if isinstance(cause, ssl.SSLError) and "WRONG_VERSION_NUMBER" in str(cause):
            return Failure(Kind.REFUSED, f"{text}; does the endpoint speak https at all?", cause=error)
        cause = cause.__cause__ or cause.__context__
    return Failure(Kind.CONNECT, text, cause=error)


def _plainly(error: Exception) -> str:
    """urllib3 puts the address of its object before the reason."""
    return str(error).rpartition("object at 0x")[2].partition(": ")[2] or str(error)


class Connector:
    """A few threads that open sockets. Each ends by itself when there is nothing more to open.

    opened: called on one of these threads with (origin, socket or Failure).
    """

    def __init__(self, opened: Callable[[Origin, socket.socket | Failure], None]) -> None:
        self._opened = opened
        self._wanted: queue.SimpleQueue[Origin] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards _threads and _held
        self._threads: set[threading.Thread] = set()
        self._held = False

    def open(self, origin: Origin, count: int = 1) -> None:
        """Open so many connections to `origin`, soon."""
        for _ in range(count):  # all of them first: a thread ends when there is nothing more to open
            self._wanted.put(origin)
        with self._lock:
            for _ in range(min(count, _THREADS)):
                self._start_thread()

    def _start_thread(self) -> None:
        if len(self._threads) < _THREADS and not self._held:
            thread = threading.Thread(target=self._work, name="tosnative-connect", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                # Decided under the lock that `open` takes after putting, so that no wish is left without a thread.
                try:
                    if self._held:
                        raise queue.Empty
                    origin = self._wanted.get_nowait()
                except queue.Empty:
                    self._threads.discard(threading.current_thread())
                    return
            try:
                result: socket.socket | Failure = open_socket(origin)
            except Failure as failure:
                result = failure
            except Exception as error:  # noqa: BLE001 - whoever waits for this connection must hear of it
                result = Failure(Kind.CONNECT, f"cannot connect to {origin}: {error!r}", cause=error)
            self._opened(origin, result)

    def hold(self, until: float) -> None:
        """Before a fork: begin nothing more, and wait for what is being opened, until this moment of time.monotonic().

        A child must not be made while a thread is inside the resolver or the TLS library, whose locks it would inherit.
        """
        with self._lock:
            self._held = True
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def go_on(self) -> None:
        """After `hold`."""
        with self._lock:
            self._held = False
            for _ in range(self._wanted.qsize()):
                self._start_thread()
