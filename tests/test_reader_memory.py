"""What reading a large object costs in memory beside the buffer it goes into: measured by the kernel, in a process of its own."""

import subprocess
import sys
import zlib
from collections.abc import Iterator

import pytest

from tosnative.config import ReaderType
from tosnative.testing import LocalTos

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
MIB = 1 << 20
SIZE = 256 * MIB
PART = 8 * MIB  # the default

PROGRAM = """
import sys, zlib
from tosnative.client import TosClient
from tosnative.config import ReaderType
from tosnative.credentials import CredentialProvider
from tosnative.reader import TosObjectReader

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))

endpoint, region, ak, sk, kind, call = sys.argv[1:]
client = TosClient(region=region, endpoint=endpoint, cred=CredentialProvider(ak, sk))
with TosObjectReader(client, "demo", "small", reader_type=ReaderType[kind]) as reader:
    reader.read()  # what reading needs once
buffer = bytearray(256 << 20) if call == "readinto" else b""
for at in range(0, len(buffer), 4096):
    buffer[at] = 1  # so that it is really there
before = memory("VmRSS")
with TosObjectReader(client, "demo", "large", reader_type=ReaderType[kind]) as reader:
    if call == "readinto":
        assert reader.readinto(buffer) == len(buffer)
    else:
        buffer = reader.read()
    assert reader.verified
grown = memory("VmHWM") - before - (0 if call == "readinto" else len(buffer))
print(grown, zlib.crc32(buffer))
"""


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as server:
        server.put("demo", "small", b"small")
        server.put("demo", "large", pattern())
        yield server


def pattern() -> bytes:
    return b"".join(bytes([number % 251]) * MIB for number in range(SIZE // MIB))


@pytest.mark.parametrize("call", ["readinto", "read"])
@pytest.mark.parametrize("kind", ReaderType)
def test_256_mib_in_one_call_take_less_than_two_parts_beside_the_buffer(
    tos: LocalTos, kind: ReaderType, call: str
) -> None:
    command = [sys.executable, "-c", PROGRAM, tos.endpoint, tos.region, tos.ak, tos.sk, kind.name, call]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    grown, crc = map(int, done.stdout.split())
    assert grown < 2 * PART
    assert crc == zlib.crc32(pattern())
