"""One value per process: made once by many threads, made anew in a forked child."""

import os
import threading
import time

from tosnative.wire.process import ForkTurn, PerProcess


def test_many_threads_make_it_once() -> None:
    made: list[int] = []

    def make() -> list[int]:
        time.sleep(0.01)
        made.append(1)
        return made

    value: PerProcess[list[int]] = PerProcess(make)
    assert value.peek() is None
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(value.get())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
    assert all(one is made for one in found)
    assert value.peek() is made
    assert value.inherited() is None


def test_making_one_may_make_another() -> None:
    inner: PerProcess[int] = PerProcess(lambda: 1)
    outer: PerProcess[int] = PerProcess(lambda: inner.get() + 1)
    assert outer.get() == 2


def test_a_forked_child_has_its_own_and_can_tell_the_parent_s() -> None:
    value: PerProcess[int] = PerProcess(os.getpid)
    parent = value.get()
    held = threading.Event()
    done = threading.Event()
    slow: PerProcess[int] = PerProcess(lambda: (held.set(), done.wait(10), 1)[2])
    thread = threading.Thread(target=slow.get)
    thread.start()
    held.wait(10)
    pid = os.fork()  # while another thread is making a value
    if pid == 0:
        fine = value.peek() is None and value.inherited() == parent and value.get() == os.getpid()
        os._exit(0 if fine and value.inherited() is None else 1)
    done.set()
    thread.join()
    assert os.waitpid(pid, 0)[1] == 0
    assert value.get() == parent
    value.drop()
    assert value.peek() is None


def test_one_thread_forks_at_a_time() -> None:
    turn, steps = ForkTurn(), []
    begun = threading.Event()

    def other() -> None:
        begun.set()
        turn.take()
        steps.append("other")
        turn.give()

    turn.take()
    turn.take()  # a signal's handler forks while this thread is about to
    turn.give()
    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(10)
    time.sleep(0.02)
    steps.append("first")
    turn.give()
    thread.join()
    assert steps == ["first", "other"]
    turn.give()  # without a turn: nothing
    turn.take()
    turn.renew()  # as in a child
    turn.give()
    turn.take()
    turn.give()
