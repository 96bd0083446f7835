"""A throw-away certificate authority for a local server, made by the `openssl` command."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    """PEM files: the server's chain and key, and the bundle that a client has to trust."""

    chain: Path
    key: Path
    ca_bundle: Path


def self_made(directory: Path, buckets: Iterable[str]) -> Certificate:
    """Make an authority and a certificate for 127.0.0.1, localhost and tos.local, and for these buckets on them.

    Raises:
        RuntimeError: there is no `openssl` command, or it fails.
    """
    if shutil.which("openssl") is None:
        raise RuntimeError("tls=True needs the openssl command; pass tls=(certificate chain, key) instead")
    domains = ("localhost", "127.0.0.1", "tos.local")
    names = ["DNS:localhost", "DNS:tos.local", "DNS:*.tos.local", "IP:127.0.0.1", "IP:::1"]
    names += [f"DNS:{bucket}.{domain}" for bucket in buckets for domain in domains]
    made = Certificate(directory / "server.pem", directory / "server.key", directory / "ca.pem")
    ca_key, request, extensions = directory / "ca.key", directory / "server.csr", directory / "server.ext"
    extensions.write_text(
        f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n"
        "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    key_usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    subject = ["-subj", "/CN=local TOS authority"]
    _openssl("req", "-x509", *curve, "-days", "30", *subject, *key_usage, "-keyout", ca_key, "-out", made.ca_bundle)
    _openssl("req", *curve, "-subj", "/CN=local TOS", "-keyout", made.key, "-out", request)
    signed_by: list[str | Path] = ["-CA", made.ca_bundle, "-CAkey", ca_key, "-CAcreateserial", "-days", "30"]
    _openssl("x509", "-req", "-in", request, *signed_by, "-extfile", extensions, "-out", made.chain)
    return made


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
