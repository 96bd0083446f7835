"""Clean-up for objects that are dropped without close(): handed over without a lock, done by a thread that ends when it is done.

`__del__` can run at any allocation, in the thread that holds the very lock it would need, so it may only append to a deque.
"""

from __future__ import annotations

import _thread
import atexit
import logging
import multiprocessing.process
import multiprocessing.util
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

__all__ = ["Closing", "drain", "later", "watch", "within"]

# At exit, clean-up that another thread is doing gets this long: an upload that stays open is found by its age later.
_EXIT_WAIT_S = 30.0
_jobs: deque[Callable[[], object]] = deque()
_running = False  # a thread drains the deque; two at once would be harmless
_busy = _thread.allocate_lock()  # held while jobs are done, so that exit can wait for them
_waited_for: set[threading.Event] = set()  # what `within` has begun; exit waits for it too


class Closing(Protocol):
    """What `watch` keeps an eye on."""

    def abort_at_exit(self) -> object:
        """Give up what is open; called once when the process ends in an orderly way."""


_open: weakref.WeakSet[Closing] = weakref.WeakSet()
_registered_in = 0  # the process whose exit is hooked


def later(owner_pid: int, job: Callable[[], object]) -> None:
    """Have `job` called soon by another thread. Takes no lock. Does nothing in a child forked after `owner_pid` made it."""
    global _running
    if owner_pid != os.getpid():
        return
    _jobs.append(job)
    if not _running:
        _running = True
        try:
            # threading.Thread.start takes locks of its own; this does not.
            _thread.start_new_thread(_drain_all, ())
        except RuntimeError:  # the interpreter is ending, or there are too many threads: the exit hook does it
            _running = False


def within(seconds: float, job: Callable[[], object]) -> bool:
    """Have `job` done by a thread of its own and wait for at most `seconds`; it goes on after that. Returns whether it is done.

    Not behind what `later` was given: that may hang for as long as the service does.
    """
    done = threading.Event()

    def do() -> None:
        try:
            _try(job)
        finally:
            _waited_for.discard(done)
            done.set()

    _waited_for.add(done)
    try:
        _thread.start_new_thread(do, ())
    except RuntimeError:  # as above
        do()
    return done.wait(seconds)


def _try(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception as error:  # noqa: BLE001 - one failure must not keep the others from being done
        logging.getLogger("tosnative").warning("clean-up failed: %s", error)


def _drain_all() -> None:
    global _running
    drain()
    _running = False
    if _jobs:  # appended between the last look and the line above
        drain()


def drain() -> None:
    """Do what was handed over, and wait for what another thread is doing of it. Failures are logged: nobody is left to be told."""
    if not _busy.acquire(timeout=_EXIT_WAIT_S):
        return
    try:
        while _jobs:
            try:
                job = _jobs.popleft()
            except IndexError:
                return
            _try(job)
    finally:
        _busy.release()


def watch(item: Closing) -> None:
    """Call item.abort_at_exit() when this process ends while `item` still exists. Holds no strong reference.

    In the main process through atexit; in multiprocessing's children, which skip atexit, through its finalizers.
    """
    global _registered_in
    if _registered_in != os.getpid():
        _registered_in = os.getpid()
        if multiprocessing.process.parent_process() is None:
            atexit.register(_at_exit, os.getpid())
        else:
            # High priority: before multiprocessing's own queues and pools are torn down.
            multiprocessing.util.Finalize(None, _at_exit, args=(os.getpid(),), exitpriority=1000)
    _open.add(item)


def _at_exit(pid: int) -> None:
    if pid != os.getpid():
        return
    for item in list(_open):
        try:
            item.abort_at_exit()
        except Exception as error:  # noqa: BLE001 - every open item gets its turn
            logging.getLogger("tosnative").warning("at exit: %s", error)
    drain()
    until = time.monotonic() + _EXIT_WAIT_S
    for done in list(_waited_for):
        done.wait(max(0.0, until - time.monotonic()))


def _in_child() -> None:
    global _running, _busy
    _jobs.clear()
    _waited_for.clear()
    _open.clear()
    _running, _busy = False, _thread.allocate_lock()


os.register_at_fork(after_in_child=_in_child)
