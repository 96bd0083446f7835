"""The local server among processes: forks, spawns, its own process, who asked."""

import multiprocessing
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import urllib.request
import warnings

import pytest
from server_wire import Wire

from tosnative.testing import LocalTos


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def tos(request):
    with LocalTos(bucket="bkt", hns_buckets=["tree"], check_signatures=False, process=request.param) as server:
        yield server


def fetch(tos, key):
    with urllib.request.urlopen(f"{tos.endpoint}/bkt/{key}", timeout=20) as answer:
        return answer.read()


def read_in_child(tos, results):
    results.put((tos.endpoint, tos.bucket, tos.cred.sk, fetch(tos, "key")))
    try:
        tos.keys("bkt")
    except RuntimeError as error:
        results.put(str(error))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_have_the_address_and_nothing_else(tos, method):
    tos.put("bkt", "key", b"for all")
    context = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=read_in_child, args=(tos, results))
    child.start()
    assert results.get(timeout=50) == (tos.endpoint, "bkt", tos.sk, b"for all")
    assert "only an address" in results.get(timeout=50)
    child.join()
    assert child.exitcode == 0
    assert tos.keys("bkt") == ["key"]


def test_pickling_leaves_the_server_behind(tos):
    copy = pickle.loads(pickle.dumps(tos))
    assert (copy.endpoint, copy.cred) == (tos.endpoint, tos.cred)
    with pytest.raises(RuntimeError, match="address"):
        copy.put("bkt", "key", b"")
    copy.close()
    assert tos.keys("bkt") == []


def test_forks_in_the_middle_of_answers_do_no_harm():
    with LocalTos(bucket="bkt", check_signatures=False) as tos:
        data = os.urandom(8 << 20)
        tos.put("bkt", "big", data)
        for _ in range(20):
            with Wire(tos) as wire:
                wire.send("GET", "/big")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside the test's own threads
                    child = os.fork()
                if child == 0:
                    os._exit(0 if open_sockets_of(tos.port) == 1 else 1)  # the test's own client
                assert wire.reply().body == data
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def open_sockets_of(port):
    """How many of this process's TCP descriptors have that port at one end."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            sock = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with sock:
            try:
                ends = [sock.getsockname()]
                ends.append(sock.getpeername())
            except OSError:
                pass
            found += any(isinstance(end, tuple) and end[1] == port for end in ends)
    return found


def test_a_server_process_ends_with_its_owner():
    script = "import os; from tosnative.testing import LocalTos; t = LocalTos(process=True); print(t.pid); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True)
    pid = int(done.stdout)
    deadline = threading.Event()
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        deadline.wait(0.02)
    pytest.fail("the server's process goes on without its owner")


@pytest.mark.skipif(not os.path.isdir("/proc/net"), reason="needs Linux's /proc")
def test_processes_behind_a_connection_are_known_on_request():
    with LocalTos(bucket="bkt", check_signatures=False, identify=True) as tos:
        with Wire(tos) as wire:
            wire.ask("GET", "/mine")
        context = multiprocessing.get_context("fork")
        child = context.Process(target=ask_once, args=(tos,))
        child.start()
        child.join()
        assert [(record.key, record.processes) for record in tos.requests] == [
            ("mine", (os.getpid(),)),
            ("childs", (child.pid,)),
        ]


def ask_once(tos):
    with Wire(tos) as wire:
        wire.ask("GET", "/childs")


def test_out_of_descriptors_is_survived():
    script = (
        "import resource, socket\n"
        "from tosnative.testing import LocalTos\n"
        "tos = LocalTos(bucket='bkt', check_signatures=False)\n"
        "tos.put('bkt', 'key', b'x')\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "held = []\n"
        "try:\n"
        "    while True: held.append(socket.create_connection((tos.host, tos.port), timeout=20))\n"
        "except OSError: pass\n"
        "for one in held: one.close()\n"
        "import urllib.request\n"
        "print(urllib.request.urlopen(tos.endpoint + '/bkt/key', timeout=20).read())\n"
        "tos.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "b'x'\n", done.stderr


def test_a_stop_while_clients_connect(tos):
    """An event of a round may be about the port that another one of it has closed."""
    address = ("127.0.0.1", int(tos.endpoint.rpartition(":")[2]))
    ended = threading.Event()

    def knock():
        while not ended.is_set():
            try:
                socket.create_connection(address, timeout=5).close()
            except OSError:
                pass

    knocking = [threading.Thread(target=knock) for _ in range(4)]
    for thread in knocking:
        thread.start()
    for _ in range(20):
        tos.stop()
        tos.start()
    ended.set()
    for thread in knocking:
        thread.join()
    assert tos.keys("bkt") == []
