"""What tests of distributed checkpoints share: a service of their own, and where the checkpoint is.

A test module takes what it needs as its own: `tos = dcp_service.tos`, `pytestmark = dcp_service.ALONE`.
"""

from collections.abc import Iterator

import pytest

from tosnative.testing import LocalTos

URL = "tos://demo/run/step-1/"
# What torch says of a process that saves without others.
ALONE = pytest.mark.filterwarnings("ignore:torch.distributed is")


@pytest.fixture
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        yield server
