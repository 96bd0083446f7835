"""Ranks of torch.distributed over DataLoader workers."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from dataset_objects import as_is, connection, fill, key_only
from torch.utils.data import DataLoader

from tosnative.datasets import TosIterableDataset
from tosnative.testing import LocalTos

pytestmark = pytest.mark.timeout(120)
KEYS = [f"p/{number:04d}" for number in range(22)]


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as tos:
        fill(tos, "p/", len(KEYS))
        yield tos


@pytest.fixture
def rank_1_of_3() -> Iterator[None]:
    """A process group of three, as its rank 1 sees it; it talks to nobody."""
    # Importing it registers the backend "fake".
    import torch.testing._internal.distributed.fake_pg  # noqa: F401

    dist.init_process_group("fake", store=dist.HashStore(), rank=1, world_size=3)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("form", "method"),
    [("default group", "fork"), ("group", "fork"), ("mesh", "fork"), ("default group", "spawn"), ("group", "spawn")],
)
def test_workers_know_the_rank_of_the_process_that_started_them(
    tos: LocalTos, rank_1_of_3: None, form: str, method: str
) -> None:
    expected = KEYS[1::3]
    sharding: object = True
    if form == "group":
        sharding, expected = dist.new_group([0, 1]), KEYS[1::2]
    elif form == "mesh":
        sharding = dist.device_mesh.init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))["dp"]
    dataset = TosIterableDataset.from_prefix(
        "tos://demo/p/",
        transform=key_only,
        sharding=sharding,  # type: ignore[arg-type]
        **connection(tos),
    )
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=method, collate_fn=as_is)
    got = [key for batch in loader for key in batch]
    assert sorted(got) == expected


SCRIPT = """
    import sys
    import torch.distributed as dist
    from torch.utils.data import DataLoader
    sys.path.insert(0, {tests!r})
    from dataset_objects import key_only
    from tosnative import CredentialProvider, TosIterableDataset

    dataset = TosIterableDataset.from_prefix(
        "tos://demo/p/", transform=key_only, sharding=True, uneven="pad", shuffle=True,
        region={region!r}, endpoint={endpoint!r}, cred=CredentialProvider({ak!r}, {sk!r}),
    )
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + {rendezvous!r}, rank=rank, world_size=3)
    batches = 0
    keys = []
    for batch in DataLoader(dataset, batch_size=2, num_workers=2):
        # A rank with fewer batches than another would leave it waiting here for ever.
        dist.barrier()
        keys += batch
    dist.barrier()
    print(*keys)
    dist.destroy_process_group()
"""


def test_a_dataset_made_before_the_process_group_gives_every_rank_equally_many(tos: LocalTos, tmp_path: Path) -> None:
    program = textwrap.dedent(SCRIPT).format(
        tests=str(Path(__file__).parent),
        region=tos.region,
        endpoint=tos.endpoint,
        ak=tos.ak,
        sk=tos.sk,
        rendezvous=str(tmp_path / "rendezvous"),
    )
    ranks = [
        subprocess.Popen([sys.executable, "-c", program, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(3)
    ]
    try:
        answers = [rank.communicate(timeout=100)[0].split() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * 3
    assert {len(keys) for keys in answers} == {8}
    assert {key for keys in answers for key in keys} == set(KEYS)
