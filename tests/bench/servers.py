"""The servers of a run: nginx over a folder where it is installed, the project's own, each in its own process."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from contents import Contents, block, pieces

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# Every request has an Authorization that is none of HTTP's Basic kind. nginx delays the refusal (auth_delay is the one
# way to have it wait that its packages bring) and serves the file in its place.
NGINX = """
daemon off;
master_process off;
worker_processes 1;
pid {home}/nginx.pid;
error_log {home}/error.log error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  tcp_nodelay on;
  keepalive_requests 100000000;
  keepalive_timeout 300s;
  open_file_cache max=20000 inactive=1h;
  default_type application/octet-stream;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi;
  scgi_temp_path {home}/scgi;
  server {{
    listen 127.0.0.1:{near} backlog=2048;
    root {home}/objects;
  }}
  server {{
    listen 127.0.0.1:{far} backlog=2048;
    root {home}/objects;
    location / {{ auth_basic bench; auth_basic_user_file {home}/users; auth_delay 20ms; error_page 401 =200 @object; }}
    location @object {{ auth_basic off; limit_rate 100000000; }}
  }}
}}
"""


class LocalServer:
    """The project's own server. kind: as local_server.py takes it."""

    def __init__(self, contents: Contents, kind: str) -> None:
        asked = json.dumps({"contents": dataclasses.asdict(contents), "kind": kind})
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(HERE / "local_server.py"), asked]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError("the local server did not start: see above")
        self.port = int(json.loads(line)["port"])

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Nginx:
    """nginx over a folder that holds the objects; `near` and `far` are its ports."""

    def __init__(self, contents: Contents) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="tosnative-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._write_objects(contents)
            self.near, self.far = free_port(), free_port()
            config = self._home / "nginx.conf"
            config.write_text(NGINX.format(home=self._home, near=self.near, far=self.far))
            (self._home / "users").write_text("")
            command = [nginx_command() or "nginx", "-c", str(config), "-e", str(self._home / "error.log")]
            self._process = subprocess.Popen(command)
            wait_for_port(self.far)
        except BaseException:
            self.close()
            raise

    def _write_objects(self, contents: Contents) -> None:
        source = memoryview(block())
        for number, (key, size) in enumerate(contents.objects()):
            path = self._home / "objects" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                for start, stop in pieces(size, number):
                    file.write(source[start:stop])

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


class Servers:
    """Starts what is asked for, once. With `nginx` off, or where it is not installed, ours serves the reads as well.

    Places: "near" and "far" are ours; "read" and "read-far" are nginx where there is one; "listing" is ours.
    """

    def __init__(self, contents: Contents, nginx: bool) -> None:
        self._contents = contents
        self.nginx_version = nginx_version() if nginx else None
        self._nginx: Nginx | None = None
        self._local: dict[str, LocalServer] = {}

    def endpoint(self, place: str) -> str:
        """The address of a place. A name, since some clients want bucket.host; they know what localhost is."""
        return f"http://localhost:{self._port(place)}"

    def name(self, place: str) -> str:
        return "nginx" if place.startswith("read") and self.nginx_version else "local"

    def _port(self, place: str) -> int:
        if place.startswith("read"):
            if self.nginx_version:
                if self._nginx is None:
                    self._nginx = Nginx(self._contents)
                return self._nginx.far if place == "read-far" else self._nginx.near
            place = "far" if place == "read-far" else "near"
        if place not in self._local:
            self._local[place] = LocalServer(self._contents, place)
        return self._local[place].port

    def close(self) -> None:
        if self._nginx is not None:
            self._nginx.close()
        for server in self._local.values():
            server.close()


def nginx_command() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def nginx_version() -> str | None:
    command = nginx_command()
    if command is None:
        return None
    said = subprocess.run([command, "-v"], capture_output=True, text=True, check=False).stderr
    return said.strip().rpartition("/")[2] or None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int, patience_s: float = 20.0) -> None:
    """Return once the port answers. Raises: TimeoutError."""
    until = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise TimeoutError(f"nothing listens on port {port}") from None
            time.sleep(0.02)
