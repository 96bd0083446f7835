"""The command that serves, and the pytest fixtures."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from tosnative.testing.serve import main


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
