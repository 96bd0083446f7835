"""LocalTos as users hold it: its contents, its processes, its life."""

import contextlib
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import warnings

import pytest
import tos as official
import urllib3
from server_wire import Wire

from tosnative.testing import LocalTos
from tosnative.testing.errors import ServiceError
from tosnative.testing.serve import main


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def tos(request):
    with LocalTos(bucket="bkt", hns_buckets=["tree"], check_signatures=False, process=request.param) as server:
        yield server


def fetch(tos, key):
    with urllib.request.urlopen(f"{tos.endpoint}/bkt/{key}", timeout=20) as answer:
        return answer.read()


def test_contents_are_at_hand(tos):
    tos.put("bkt", "b", memoryview(b"2"))
    tos.put("bkt", "a/中", b"1")
    assert tos.keys("bkt") == ["a/中", "b"]
    assert tos.keys("bkt", "a/") == ["a/中"]
    assert tos.get("bkt", "a/中") == b"1"
    tos.delete("bkt", "b")
    tos.delete("bkt", "b")
    assert tos.keys("bkt") == ["a/中"]
    tos.create_bucket("more", bucket_type="hns")
    tos.create_bucket("more", bucket_type="hns")
    assert tos.keys("more") == []
    with pytest.raises(ServiceError, match="NoSuchKey") as caught:
        tos.get("bkt", "missing")
    assert caught.value.status == 404
    with pytest.raises(ServiceError, match="NoSuchBucket"):
        tos.keys("missing")


def test_more_keys_than_a_page_holds():
    with LocalTos(bucket="bkt") as tos:
        names = [f"{i:05d}" for i in range(2345)]
        for name in names:
            tos.put("bkt", name, b"")
        assert tos.keys("bkt") == names


def test_put_takes_a_copy():
    with LocalTos(bucket="bkt") as tos:
        data = bytearray(b"before")
        tos.put("bkt", "key", data)
        data[:] = b"after!"
        assert tos.get("bkt", "key") == b"before"


def test_uploads_are_listed(tos):
    with Wire(tos) as wire:
        upload = json.loads(wire.ask("POST", "/big?uploads").body)["UploadId"]
        assert tos.uploads("bkt") == [("big", upload)]
        assert wire.ask("DELETE", f"/big?uploadId={upload}").status == 204
    assert tos.uploads("bkt") == []


def test_requests_are_recorded(tos):
    tos.put("bkt", "key", b"0123456789")
    with Wire(tos) as wire:
        wire.ask("GET", "/key?versionId=", Range="bytes=2-4", User_Agent="me/1")
        wire.ask("PUT", "/other", b"abc")
        peer = wire.socket.getsockname()
    first, second = tos.requests
    assert (first.method, first.bucket, first.key, first.range) == ("GET", "bkt", "key", "bytes=2-4")
    assert (first.status, first.sent_bytes, first.query, first.user_agent) == (206, 3, {"versionId": ""}, "me/1")
    assert (second.method, second.body_bytes, second.status) == ("PUT", 3, 200)
    assert first.connection == second.connection
    assert tuple(first.peer) == peer
    tos.clear_requests()
    assert tos.requests == []


def test_restart_comes_back_at_the_same_place(tos):
    tos.put("bkt", "key", b"kept")
    with Wire(tos) as wire:
        wire.ask("GET", "/key")
        tos.restart()
        with pytest.raises((EOFError, ConnectionError)):
            wire.ask("GET", "/key")
    assert fetch(tos, "key") == b"kept"


def test_stop_refuses_until_start(tos):
    tos.put("bkt", "key", b"kept")
    tos.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((tos.host, tos.port), timeout=20)
    assert tos.get("bkt", "key") == b"kept"
    tos.start()
    assert fetch(tos, "key") == b"kept"


def test_close_ends_everything(tos):
    threads = threading.active_count()
    tos.close()
    tos.close()
    assert threading.active_count() <= threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((tos.host, tos.port), timeout=20)
    with pytest.raises(RuntimeError, match="closed"):
        tos.keys("bkt")


def test_addresses():
    with LocalTos(buckets=["one", "two"], ak="A", sk="S", token="T", region="cn-here") as tos:
        assert tos.bucket == "one"
        assert tos.endpoint == f"http://127.0.0.1:{tos.port}"
        assert tos.localhost_endpoint == f"http://localhost:{tos.port}"
        assert (tos.cred.ak, tos.cred.sk, tos.cred.security_token) == (tos.ak, tos.sk, tos.token) == ("A", "S", "T")
        assert "S" not in repr(tos.cred).replace("LocalCredentials", "")
        assert tos.environ() == {
            "TOS_ENDPOINT": tos.endpoint,
            "TOS_REGION": "cn-here",
            "TOS_ACCESS_KEY": "A",
            "TOS_SECRET_KEY": "S",
            "TOS_SECURITY_TOKEN": "T",
        }


def test_ipv6_loopback():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        tos = LocalTos(bucket="bkt", check_signatures=False, host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    with tos:
        tos.put("bkt", "key", b"six")
        assert tos.endpoint == f"http://[::1]:{tos.port}"
        assert fetch(tos, "key") == b"six"


def test_unsigned_requests_are_refused_by_default():
    with LocalTos(bucket="bkt") as tos, Wire(tos) as wire:
        reply = wire.ask("GET", "/key")
        assert (reply.status, json.loads(reply.body)["Code"]) == (403, "AccessDenied")
        assert wire.ask("HEAD", "/key").status == 403


def test_root_keeps_what_is_stored(tmp_path):
    for process in (False, True):
        with LocalTos(bucket="bkt", root=tmp_path, process=process, check_signatures=False) as tos:
            tos.put("bkt", f"key-{process}", b"kept")
    with LocalTos(root=tmp_path, check_signatures=False) as tos:
        assert tos.keys("bkt") == ["key-False", "key-True"]
        assert fetch(tos, "key-True") == b"kept"


def test_a_port_that_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for process in (False, True):
            with pytest.raises(OSError, match="in use"):
                LocalTos(port=port, process=process)


def test_a_wrong_switch_is_an_error():
    with pytest.raises(TypeError, match="chekc_signatures"):
        LocalTos(chekc_signatures=False)


# -- TLS and proxying


def test_tls_and_plain_on_one_port():
    with LocalTos(bucket="bkt", check_signatures=False, tls=True) as tos:
        data = bytes(range(256)) * 20_000
        assert tos.endpoint.startswith("https://127.0.0.1:")
        with urllib3.PoolManager(ca_certs=tos.ca_bundle, retries=False) as pool:
            for endpoint in (tos.endpoint, tos.localhost_endpoint):
                assert pool.request("PUT", f"{endpoint}/bkt/key", body=data).status == 200
                assert pool.request("GET", f"{endpoint}/bkt/key").data == data
        with urllib3.PoolManager(retries=False) as pool:
            assert pool.request("GET", f"{tos.proxy_url}/bkt/key").data == data
            with pytest.raises(urllib3.exceptions.SSLError):
                pool.request("GET", f"{tos.endpoint}/bkt/key")
        assert fetch_after_failed_handshake(tos) == data
    assert not os.path.exists(tos.ca_bundle)


def fetch_after_failed_handshake(tos):
    with urllib3.PoolManager(ca_certs=tos.ca_bundle, retries=False) as pool:
        return pool.request("GET", f"{tos.endpoint}/bkt/key").data


def test_https_through_a_tunnel():
    with LocalTos(bucket="bkt", check_signatures=False, tls=True, process=True) as tos:
        tos.put("bkt", "key", b"tunnelled")
        with urllib3.ProxyManager(tos.proxy_url, ca_certs=tos.ca_bundle, retries=False) as pool:
            assert pool.request("GET", "https://bkt.tos.local/key").data == b"tunnelled"
            assert pool.request("GET", "http://bkt.tos.local/key").data == b"tunnelled"
        found = [(record.method, record.proxied) for record in tos.requests]
        assert found == [("CONNECT", True), ("GET", True), ("GET", True)]


# -- processes


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
    script = "import os; from tosnative.testing import LocalTos; t = LocalTos(process=True); print(t._control.pid); os._exit(0)"
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


# -- the command


def served(*arguments):
    command = [sys.executable, "-m", "tosnative.testing.serve", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_where_it_is_and_ends_cleanly(end, tmp_path):
    with served("--json", "--bucket", "demo", "--hns", "tree", "--root", str(tmp_path), "--no-signatures") as process:
        found = json.loads(process.stdout.readline())
        assert found["buckets"] == ["demo", "tree"]
        assert found["environ"]["TOS_ENDPOINT"] == found["endpoint"]
        with urllib.request.urlopen(f"{found['endpoint']}/demo?list-type=2", timeout=20) as answer:
            assert json.load(answer)["KeyCount"] == 0
        process.send_signal(end)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 0


def test_serve_prints_exports_for_a_person():
    with served("--ak", "me", "--sk", "it's", "--bucket", "demo") as process:
        lines = [process.stdout.readline() for _ in range(6)]
        process.terminate()
        process.communicate(timeout=20)
    exports = [line.strip() for line in lines if "export" in line]
    script = "\n".join([*exports, 'echo "$TOS_ACCESS_KEY $TOS_SECRET_KEY $TOS_REGION"'])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "me it's cn-test\n"


def test_serve_warns_when_everybody_can_reach_it():
    with served("--host", "0.0.0.0", "--no-signatures") as process:
        process.stdout.readline()
        process.terminate()
        _, warning = process.communicate(timeout=20)
    assert "0.0.0.0" in warning
    assert "Everybody" in warning
    assert "without any signature" in warning


def test_serve_says_why_it_cannot_start(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 1
    assert "cannot start" in capsys.readouterr().err
    assert main(["--bucket", "Not_A_Name"]) == 1
    assert "InvalidBucketName" in capsys.readouterr().err


def test_fixtures(tmp_path):
    (tmp_path / "test_users_own.py").write_text(
        "import os\n"
        "def test_one(local_tos, local_tos_session):\n"
        "    local_tos.put('test', 'key', b'x')\n"
        "    assert local_tos_session.keys('test') == []\n"
        "def test_two(tos_env):\n"
        "    assert tos_env.keys('test') == []\n"
        "    assert os.environ['TOS_ENDPOINT'] == tos_env.endpoint\n"
    )
    listed = subprocess.run([sys.executable, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    plugin = [] if "tosnative " in listed else ["-p", "tosnative.testing.fixtures"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_public_objects_need_no_signature():
    with LocalTos(bucket="bkt", token="T/+=") as local, sdk(local) as client:
        client.put_object("bkt", "public", content=b"x", acl=official.ACLType.ACL_Public_Read)
        client.put_object("bkt", "private", content=b"x")
        with Wire(local) as wire:
            assert wire.ask("GET", "/public").status == 200
            assert wire.ask("GET", "/private").status == 403
            assert wire.ask("PUT", "/public", b"y").status == 403


@contextlib.contextmanager
def sdk(local, **changed):
    """The official SDK, through the server as its proxy."""
    found = {"ak": local.ak, "sk": local.sk, "region": local.region, "security_token": local.token, **changed}
    proxy = {"proxy_host": local.host, "proxy_port": local.port}
    client = official.TosClientV2(endpoint="http://no.such.host", dns_cache_time=0, max_retry_count=0, **found, **proxy)
    try:
        yield client
    finally:
        client.close()


def test_the_official_client_is_let_in_and_strangers_are_not():
    with LocalTos(bucket="bkt", token="T/+=") as local:
        key = "d/中 a+b~.txt"
        with sdk(local) as client:
            client.put_object("bkt", key, content=(b"y" * 1000 for _ in range(100)))
            assert client.get_object("bkt", key).read() == b"y" * 100_000
            assert [found.key for found in client.list_objects_type2("bkt", prefix="d/中 ").contents] == [key]
            query = {"response-content-type": "a b/+x"}
            url = client.pre_signed_url(official.HttpMethodType.Http_Method_Get, "bkt", key, query=query).signed_url
            with urllib3.ProxyManager(local.proxy_url, retries=False) as pool:
                assert pool.request("GET", url).headers["content-type"] == "a b/+x"
                assert pool.request("GET", url + "0").status == 403
        for wrong, code in [
            ({"sk": "another"}, "SignatureDoesNotMatch"),
            ({"ak": "another"}, "InvalidAccessKeyId"),
            ({"security_token": "another"}, "InvalidSecurityToken"),
            ({"security_token": None}, "InvalidSecurityToken"),
            ({"region": "cn-other"}, "AccessDenied"),
        ]:
            with sdk(local, **wrong) as client, pytest.raises(official.exceptions.TosServerError) as caught:
                client.get_object("bkt", key)
            assert (caught.value.status_code, caught.value.code) == (403, code)


def test_large_bodies_over_tls_and_slowly():
    with LocalTos(bucket="bkt", check_signatures=False, tls=True) as tos:
        data = os.urandom(300_000)
        tos.faults.add(bandwidth_bytes_s=3_000_000)
        with urllib3.PoolManager(ca_certs=tos.ca_bundle, retries=False) as pool:
            assert pool.request("PUT", f"{tos.endpoint}/bkt/key", body=data).status == 200
            assert pool.request("GET", f"{tos.endpoint}/bkt/key").data == data
            assert (
                pool.request("PUT", f"{tos.endpoint}/bkt/chunks", body=iter([data, data]), chunked=True).status == 200
            )
        assert tos.get("bkt", "chunks") == data + data
