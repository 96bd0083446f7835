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

from contents import BUCKET, Contents, block, pieces

from tosnative.testing.certificates import Certificate, self_made

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

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
  root {home}/objects;
  {servers}
}}
"""
# Every request has an Authorization that is none of HTTP's Basic kind. nginx delays the refusal (auth_delay is the one
# way to have it wait that its packages bring) and serves the file in its place.
NGINX_FAR = """
    location / {{ auth_basic bench; auth_basic_user_file {home}/users; auth_delay 20ms; error_page 401 =200 @object; }}
    location @object {{ auth_basic off; limit_rate 100000000; }}
"""
NGINX_TLS = "ssl_certificate {chain}; ssl_certificate_key {key}; ssl_session_cache shared:bench:1m;"


class LocalServer:
    """The project's own server. kind: as local_server.py takes it. Given a certificate it speaks TLS too on its port."""

    def __init__(self, contents: Contents, kind: str, certificate: Certificate | None) -> None:
        pair = [str(certificate.chain), str(certificate.key)] if certificate else None
        asked = json.dumps({"contents": dataclasses.asdict(contents), "kind": kind, "certificate": pair})
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
    """nginx over a folder that holds the objects. ports: by place without its "read", such as "" or "-far-tls"."""

    def __init__(self, contents: Contents, certificate: Certificate | None) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="tosnative-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        places = ("", "-far", "-tls", "-far-tls") if certificate else ("", "-far")
        self.ports = {place: free_port() for place in places}
        try:
            self._write_objects(contents)
            (self._home / "users").write_text("")
            config = self._home / "nginx.conf"
            blocks = "".join(self._block(place, port, certificate) for place, port in self.ports.items())
            config.write_text(NGINX.format(home=self._home, servers=blocks))
            command = [nginx_command() or "nginx", "-c", str(config), "-e", str(self._home / "error.log")]
            self._process = subprocess.Popen(command)
            for port in self.ports.values():
                wait_for_port(port)
        except BaseException:
            self.close()
            raise

    def _block(self, place: str, port: int, certificate: Certificate | None) -> str:
        tls, block = place.endswith("-tls"), ""
        if tls and certificate is not None:
            block += NGINX_TLS.format(chain=certificate.chain, key=certificate.key)
        if place.startswith("-far"):
            block += NGINX_FAR.format(home=self._home)
        return f"server {{ listen 127.0.0.1:{port} {'ssl ' if tls else ''}backlog=2048; {block} }}\n"

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

    Places: "near", "far" and "sink" are ours; "read" and "read-far" are nginx where there is one; "listing" is ours. The same
    with "-tls" at the end are spoken to over TLS, where the `openssl` command can make a certificate.
    """

    def __init__(self, contents: Contents, nginx: bool) -> None:
        self._contents = contents
        self.nginx_version = nginx_version() if nginx else None
        self._nginx: Nginx | None = None
        self._local: dict[str, LocalServer] = {}
        self._home = Path(tempfile.mkdtemp(prefix="tosnative-bench-tls-"))
        has_openssl = shutil.which("openssl") is not None
        self.certificate = self_made(self._home, [BUCKET]) if has_openssl else None

    def offers(self, place: str) -> bool:
        return self.certificate is not None or not place.endswith("-tls")

    def endpoint(self, place: str) -> str:
        """The address of a place. A name, since some clients want bucket.host; they know what localhost is."""
        return f"http{'s' if place.endswith('-tls') else ''}://localhost:{self._port(place)}"

    def ca_bundle(self, place: str) -> str | None:
        """What a client has to trust there."""
        return str(self.certificate.ca_bundle) if self.certificate and place.endswith("-tls") else None

    def name(self, place: str) -> str:
        return "nginx" if place.startswith("read") and self.nginx_version else "local"

    def _port(self, place: str) -> int:
        if place.startswith("read") and self.nginx_version:
            if self._nginx is None:
                self._nginx = Nginx(self._contents, self.certificate)
            return self._nginx.ports[place.removeprefix("read")]
        kind = place.removesuffix("-tls")
        kind = {"read": "near", "read-far": "far"}.get(kind, kind)
        if kind not in self._local:
            self._local[kind] = LocalServer(self._contents, kind, self.certificate)
        return self._local[kind].port

    def close(self) -> None:
        if self._nginx is not None:
            self._nginx.close()
        for server in self._local.values():
            server.close()
        shutil.rmtree(self._home, ignore_errors=True)


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
