"""The writing side of the write marathon: each line on standard input asks for one save, in a process of its own.

    python -m tests.marathon.writing JSON

A save's process leaves Python in the ordinary way, exit hooks included, unless it is killed. Its exit status is that of
`Ended`, or minus the signal that killed it.
"""

from __future__ import annotations

import enum
import faulthandler
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

from tests.marathon.connectors import Place
from tests.marathon.shapes import SHAPES, STYLES, expected

# A save that takes longer says where it is.
_SLOW_S = 15.0
# How long a forked child may take to leave an inherited writer alone.
_CHILD_S = 5.0


class Ended(enum.IntEnum):
    """How a save ended that was not killed."""

    SAVED = 0
    CRASHED = 10
    OTHER_ERROR = 11
    CHILD_HUNG = 12
    UNKNOWN = 13
    REPLACED = 14  # another error took the place of what interrupted the save
    TERMINATED = 143


class Crash(Exception):
    """What the application raises in the middle of a save, wherever it is."""


def _crash(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Crash("the application failed")


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(Ended.TERMINATED)


class Forker:
    """On SIGUSR2 another process is forked that inherits the writer: by another thread, or between two writes."""

    def __init__(self, in_thread: bool) -> None:
        self.writer: Any = None
        self.hung = False
        self._in_thread = in_thread
        self._asked, self._ask = os.pipe()
        self._wanted = False
        self._thread = threading.Thread(target=self._wait, daemon=True)
        if in_thread:
            self._thread.start()
        signal.signal(signal.SIGUSR2, self._signalled)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._wanted = True
        if self._in_thread:
            os.write(self._ask, b"f")

    def _wait(self) -> None:
        if os.read(self._asked, 1) == b"f":
            self._fork()

    def between(self) -> None:
        """Called between two writes."""
        if self._wanted and not self._in_thread:
            self._wanted = False
            self._fork()

    def _fork(self) -> None:
        child = multiprocessing.get_context("fork").Process(target=_inherit, args=(self,))
        child.start()
        child.join(_CHILD_S)
        if child.is_alive():
            self.hung = True
            child.kill()
            child.join()

    def end(self) -> bool:
        """Whether the child, if there was one, ended."""
        if self._in_thread:
            os.write(self._ask, b"e")
            self._thread.join()
        return not self.hung


def _inherit(forker: Forker) -> None:
    """In the child: try to use the writer, then lose it."""
    writer, forker.writer = forker.writer, None
    try:
        writer.write(b"from the child")
        writer.close()
    except Exception:  # noqa: BLE001, S110 - ours refuses
        pass
    del writer
    gc.collect()


def _earlier(error: BaseException) -> Iterator[BaseException]:
    """What led to the error, as far as Python remembers."""
    before = error.__cause__ or error.__context__
    while before is not None:
        yield before
        before = before.__cause__ or before.__context__


def save(place: Place, asked: dict[str, Any]) -> int:
    """One save, in this process; returns how it ended."""
    faulthandler.dump_traceback_later(_SLOW_S)
    signal.signal(signal.SIGUSR1, _crash)
    signal.signal(signal.SIGTERM, _terminate)
    forker = Forker(asked["fork_in_thread"])
    store = place.module().TosCheckpoint(**place.keywords())
    try:
        writer = forker.writer = store.writer(place.url(asked["key"]))
        write = SHAPES[asked["shape"]]
        STYLES[asked["style"]](writer, lambda file: write(asked["generation"], file, forker.between))
    except Crash:
        return Ended.CRASHED
    except Exception as error:  # noqa: BLE001 - reported; the key is judged by the caller
        if type(error).__name__ == "TosOutcomeUnknownError":
            return Ended.UNKNOWN
        if any(isinstance(earlier, (Crash, SystemExit)) for earlier in _earlier(error)):
            return Ended.REPLACED
        traceback.print_exc()
        return Ended.OTHER_ERROR
    return Ended.SAVED if forker.end() else Ended.CHILD_HUNG


def _warm(place: Place) -> None:
    """Import all that a save needs; nothing is connected before the first byte moves."""
    place.module().TosCheckpoint(**place.keywords())
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # a pool of threads would not survive the fork


def main(spec: dict[str, Any]) -> int:
    place = Place(**spec["place"])
    known = {shape: [expected(shape, generation) for generation in (0, 1)] for shape in spec["shapes"]}
    _warm(place)
    print(json.dumps({"known": known}), flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = save(place, json.loads(line))
            return status
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"ended": os.waitstatus_to_exitcode(status)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
