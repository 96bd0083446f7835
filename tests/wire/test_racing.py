"""When late answers are looked for."""

from collections.abc import Iterator

import pytest
from conftest import AK, SK

from tosnative.client import TosClient
from tosnative.credentials import CredentialProvider
from tosnative.wire.loop import TICK_S, Loop
from tosnative.wire.upkeep import tick

CLIENT = TosClient(endpoint="http://127.0.0.1:1", region="r", cred=CredentialProvider(AK, SK))


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_after_a_pause_the_first_batch_is_looked_after_as_soon_as_any_other(loop: Loop) -> None:
    loop.enqueue(CLIENT.download("test", "k"))
    assert loop.next_tick <= loop.now + TICK_S
    (pool,) = loop.pools.values()
    for _ in range(64):
        pool.hedge.answered(0.001)
    pool.queue.clear()
    loop.now += 10.0
    tick(loop)
    assert loop.next_tick > loop.now + 1.0, "nothing is under way"
    loop.enqueue(CLIENT.download("test", "k"))
    assert pool.hedge.delay is not None
    assert loop.next_tick <= loop.now + pool.hedge.delay
