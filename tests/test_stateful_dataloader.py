"""torchdata's StatefulDataLoader saves and resumes the iterable dataset worker by worker, in the same order."""

from collections.abc import Iterator
from typing import Any

import pytest
from dataset_objects import connection, fill, key_only

from tosnative.datasets import TosIterableDataset
from tosnative.testing import LocalTos

stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:.set_vital. is deprecated"),
]


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as tos:
        fill(tos, "p/", 23)
        yield tos


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_saved_after_every_batch(tos: LocalTos, workers: int) -> None:
    def loader() -> Any:
        dataset = TosIterableDataset.from_prefix("tos://demo/p/", transform=key_only, shuffle=True, **connection(tos))
        return stateful.StatefulDataLoader(dataset, batch_size=2, num_workers=workers)

    whole = list(loader())
    for taken in range(0, len(whole) + 1, 1 if workers == 0 else 3):
        interrupted = loader()
        batches = iter(interrupted)
        head = [next(batches) for _ in range(taken)]
        resumed = loader()
        resumed.load_state_dict(interrupted.state_dict())
        assert head + list(resumed) == whole
        assert sorted(key for batch in resumed for key in batch) == sorted(key for batch in whole for key in batch)
