"""Leads the official SDK's tests to a local server: `*.localhost` and the public endpoint they name resolve to it.

Some tests wait half a minute and more for a change to reach every part of the real service; those waits are cut. The
short ones, which are part of what is tested, stay.
"""

import os
import socket
import time
from urllib.parse import urlsplit

_PORT = urlsplit(os.environ["Endpoint"]).port  # noqa: SIM112 - the SDK's tests name it so
_LONGEST_WAIT_S = 10
_resolve, _sleep = socket.getaddrinfo, time.sleep


def _getaddrinfo(host, port, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    if name and name.endswith((".localhost", ".volces.com")):
        host, port = "127.0.0.1", _PORT
    return _resolve(host, port, *args, **kwargs)


def _shorter_sleep(seconds):
    _sleep(seconds if seconds <= _LONGEST_WAIT_S else 0.1)


socket.getaddrinfo = _getaddrinfo
time.sleep = _shorter_sleep
