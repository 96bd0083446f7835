"""Numbers that all processes of a tree see."""

import multiprocessing
import os
import pickle

import pytest
from descriptors import open_files

from tosnative.position import SkipCounter
from tosnative.shared import SharedNumbers, unnamed_file


def _add(numbers: SharedNumbers, skips: SkipCounter, at: int) -> None:
    numbers[at] += at + 1
    skips.add(at)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_descendants_write_into_the_same_memory(method: str) -> None:
    context = multiprocessing.get_context(method)
    numbers, skips = SharedNumbers(3), SkipCounter()
    numbers[0] = -5
    skips.add(None)
    for at in range(3):
        process = context.Process(target=_add, args=(numbers, skips, at))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert [numbers[at] for at in range(len(numbers))] == [-4, 2, 3]
    assert numbers.total(1) == 5
    assert skips.total == 4


def test_pickled_otherwise_it_is_a_copy() -> None:
    numbers = SharedNumbers(2)
    numbers[1] = 7
    copy = pickle.loads(pickle.dumps(numbers))
    numbers[1] = 8
    assert copy[1] == 7


def test_no_descriptor_is_left() -> None:
    before = open_files()
    for _ in range(50):
        SharedNumbers(1)
        os.close(unnamed_file())
    assert open_files() == before


def test_without_memfd_a_deleted_file_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    numbers = SharedNumbers(2)
    numbers[1] = 1
    assert pickle.loads(pickle.dumps(numbers))[1] == 1
