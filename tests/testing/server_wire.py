"""A client that says exactly what a test wants said, for the tests of the local server."""

import socket
from dataclasses import dataclass, field


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes = b""
    interim: list[int] = field(default_factory=list)


class Wire:
    """One connection; sends bytes and reads answers strictly."""

    def __init__(self, tos, host="bkt.localhost"):
        self.host = host
        self.socket = socket.create_connection((tos.host, tos.port), timeout=20)
        self.stream = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stream.close()
        self.socket.close()

    def send(self, method, target, body=b"", **headers):
        names = {"Host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body:
            names.setdefault("Content-Length", str(len(body)))
        lines = "".join(f"{name}: {value}\r\n" for name, value in names.items())
        self.socket.sendall(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    def head(self):
        line = self.stream.readline()
        if not line:
            raise EOFError("closed instead of an answer")
        assert line.endswith(b"\r\n"), line
        status, headers = int(line.split(b" ")[1]), {}
        while (line := self.stream.readline()) != b"\r\n":
            assert line.endswith(b"\r\n"), line
            name, _, value = line.decode("latin-1").partition(":")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value.strip()
        return Reply(status, headers)

    def reply(self, method="GET"):
        """The next answer; raises EOFError if its body is cut short."""
        reply, interim = self.head(), []
        while reply.status < 200:
            interim.append(reply.status)
            reply = self.head()
        reply.interim = interim
        if reply.headers.get("transfer-encoding") == "chunked":
            reply.body = self._chunks()
        elif method != "HEAD" and reply.status not in (204, 304):
            size = int(reply.headers["content-length"])
            reply.body = self.stream.read(size)
            if len(reply.body) < size:
                raise EOFError(f"{len(reply.body)} of {size} bytes")
        return reply

    def _chunks(self):
        body = b""
        while size := int(self.stream.readline(), 16):
            body += self.stream.read(size)
            assert self.stream.read(2) == b"\r\n"
        assert self.stream.readline() == b"\r\n"
        return body

    def ask(self, method, target, body=b"", **headers):
        self.send(method, target, body, **headers)
        return self.reply(method)

    def at_end(self):
        """Whether the server has closed properly; waits for it, or for bytes."""
        return self.stream.read(1) == b""
