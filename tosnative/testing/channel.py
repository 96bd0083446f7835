"""A local server in a process of its own, and the private channel over which it is controlled."""

from __future__ import annotations

import copyreg
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tosnative.testing.control import Control, Settings
from tosnative.testing.errors import ServiceError

if TYPE_CHECKING:
    from tosnative.testing.arrivals import RequestRecord
    from tosnative.testing.faults import Rule

copyreg.pickle(ServiceError, lambda error: (ServiceError, (error.status, error.code, error.message, error.ec)))

START_S = 60.0
STOP_S = 10.0


class Remote:
    """The same methods as `Control`, carried out in a child process that serves and does nothing else.

    The channel is a socket pair that only the two processes hold. The child ends with `close`, or when this process
    does.
    """

    def __init__(self, settings: Settings) -> None:
        self._lock = threading.Lock()  # one call at a time on the channel
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": _python_path()}
        command = [sys.executable, "-m", "tosnative.testing.serve", "--control-fd", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._channel = Connection(ours.detach())
        _remotes.add(self)
        try:
            self._channel.send(settings)
            self._receive(START_S)
        except BaseException:
            self.close()
            raise

    def _call(self, name: str, *arguments: Any) -> Any:
        with self._lock:
            self._channel.send((name, arguments))
            return self._receive(None)

    def _receive(self, patience_s: float | None) -> Any:
        if patience_s is not None and not self._channel.poll(patience_s):
            raise TimeoutError(f"the local server's process did not start within {patience_s:g} s")
        try:
            error, result = self._channel.recv()
        except (EOFError, ConnectionError) as lost:
            raise RuntimeError("the local server's process has ended") from lost
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        self._channel.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def address(self) -> tuple[str, int]:
        host, port = self._call("address")
        return host, port

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._call("put", bucket, key, data)

    def get(self, bucket: str, key: str) -> bytes:
        return bytes(self._call("get", bucket, key))

    def delete(self, bucket: str, key: str) -> None:
        self._call("delete", bucket, key)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        return list(self._call("keys", bucket, prefix))

    def uploads(self, bucket: str) -> list[tuple[str, str]]:
        return list(self._call("uploads", bucket))

    def ensure_bucket(self, name: str, bucket_type: str = "fns") -> None:
        self._call("ensure_bucket", name, bucket_type)

    def requests(self) -> list[RequestRecord]:
        return list(self._call("requests"))

    def clear_requests(self) -> None:
        self._call("clear_requests")

    def connections(self) -> int:
        return int(self._call("connections"))

    def add_fault(self, rule: Rule) -> int:
        return int(self._call("add_fault", rule))

    def remove_fault(self, number: int) -> None:
        self._call("remove_fault", number)

    def clear_faults(self) -> None:
        self._call("clear_faults")

    def fault_hits(self, number: int) -> int:
        return int(self._call("fault_hits", number))

    def stop(self) -> None:
        self._call("stop")

    def start(self) -> None:
        self._call("start")


_remotes: weakref.WeakSet[Remote] = weakref.WeakSet()


def _hang_up_in_child() -> None:
    """The server's process must see its owner end, even if a forked child of the owner goes on."""
    for remote in list(_remotes):
        remote._channel.close()
    _remotes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hang_up_in_child)


def _python_path() -> str:
    package_home = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([package_home, inherited] if inherited else [package_home])


def serve_controlled(descriptor: int) -> None:
    """Be the child: build the server that the other end of the channel describes, serve until it hangs up."""
    channel = Connection(descriptor)
    try:
        control = _built(channel)
    except (EOFError, OSError):
        return
    if control is None:
        return
    server = control.server
    server.loop.selector.register(descriptor, 1, lambda _mask: _serve_call(channel, control))
    channel.send((None, None))
    try:
        server.serve_forever()
    finally:
        server.loop.selector.unregister(descriptor)
        channel.close()
        control.close()


def _built(channel: Connection[Any, Any]) -> Control | None:
    settings = channel.recv()
    try:
        return Control(settings)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told and raises it
        _send(channel, error, None)
        return None


def _serve_call(channel: Connection[Any, Any], control: Control) -> None:
    try:
        name, arguments = channel.recv()
    except (EOFError, OSError):
        control.server.loop.stop()
        return
    try:
        result = getattr(control, name)(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told and raises it
        _send(channel, error, None)
    else:
        _send(channel, None, result)


def _send(channel: Connection[Any, Any], error: Exception | None, result: object) -> None:
    if error is not None:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes: can the other side rebuild this error?
        except Exception:  # noqa: BLE001 - any failure to pickle means no
            error = RuntimeError(f"{type(error).__name__}: {error}")
    channel.send((error, result))
