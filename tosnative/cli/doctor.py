"""The subcommand doctor: is the set-up right, and if not, what is to be done? One line for each question."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tosnative.cli.output import count, say, say_json
from tosnative.cli.places import Remote
from tosnative.cli.session import Session
from tosnative.client import TosClient
from tosnative.config import environment_credentials, resolve_endpoint
from tosnative.errors import TosAccessError, TosConnectionError, TosException, TosNotFoundError, TosTimeoutError

__all__ = ["doctor"]

_SIGNS = {"ok": "ok  ", "failed": "FAIL", "unknown": "?   "}
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question; `advice` says what to do where it is not ok."""

    question: str
    state: str  # ok, failed or unknown
    text: str
    advice: str = ""

    def line(self) -> str:
        return f"{_SIGNS[self.state]}  {self.question:11}  {self.text}" + (f" -> {self.advice}" if self.advice else "")


def doctor(session: Session) -> int:
    """Ask every question that can be asked; exit code 1 where one of the answers is a failure."""
    findings = [_versions(), _endpoint(session), _credentials()]
    where: Remote | None = session.args.uri
    if any(finding.state == "failed" for finding in findings):
        findings += [Finding(question, "unknown", "not asked") for question in ("connection", "clock", "bucket")]
    elif where is None:
        advice = "name a bucket: tosnative doctor tos://bucket"
        findings += [
            Finding(question, "unknown", "not asked", advice) for question in ("connection", "clock", "bucket")
        ]
    else:
        findings += _service(session.client, where)
    for finding in findings:
        if session.json:
            say_json(asdict(finding))
        else:
            say(finding.line())
    return 1 if any(finding.state == "failed" for finding in findings) else 0


def _versions() -> Finding:
    found = []
    for name in ("tosnative", "torch", "tos", "urllib3"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return Finding("versions", "ok", ", ".join(found))


def _endpoint(session: Session) -> Finding:
    try:
        endpoint = resolve_endpoint(session.args.endpoint, session.args.region)
    except ValueError as error:
        return Finding("endpoint", "failed", str(error), "see --endpoint and --region")
    return Finding("endpoint", "ok", f"{endpoint.url}, region {endpoint.region}")


def _credentials() -> Finding:
    advice = "set TOS_ACCESS_KEY and TOS_SECRET_KEY"
    try:
        found = environment_credentials()
    except ValueError as error:
        return Finding("credentials", "failed", str(error), advice)
    if found is None:
        return Finding("credentials", "failed", "there are none in the environment", advice)
    token = " and TOS_SECURITY_TOKEN" if found[2] else ""
    return Finding("credentials", "ok", f"from TOS_ACCESS_KEY, TOS_SECRET_KEY{token}")


def _service(client: TosClient, where: Remote) -> list[Finding]:
    """Ask the service one signed question after the other; the first failure says which of the answers is bad."""
    steps: list[tuple[Callable[[], object], str]] = [
        (lambda: client.head_bucket(where.bucket), "exists"),
        (lambda: client.list_page(where.bucket, where.key, max_keys=1), "exists and can be listed"),
    ]
    text = ""
    for ask, text in steps:  # noqa: B007 - the last text is the one that holds
        try:
            ask()
        except TosException as error:
            return _diagnose(error, where)
    return [
        Finding("connection", "ok", f"{client.endpoint.url} answers"),
        Finding("clock", "ok", "within what signatures allow"),
        Finding("bucket", "ok", f"{where} {text}"),
        _leftovers(client, where),
    ]


def _diagnose(error: TosException, where: Remote) -> list[Finding]:
    """Which of connection, clock, credentials and bucket a failure blames."""
    text = str(error)
    connection = Finding("connection", "ok", "the service answers")
    clock = Finding("clock", "ok", "within what signatures allow")
    unknown = Finding("bucket", "unknown", f"{where} could not be asked for")
    if isinstance(error, (TosConnectionError, TosTimeoutError)):
        advice = "check the endpoint's name and port, DNS, the network and HTTP(S)_PROXY"
        return [Finding("connection", "failed", text, advice), Finding("clock", "unknown", "not asked"), unknown]
    if error.error.code == "RequestTimeTooSkewed":
        return [connection, Finding("clock", "failed", text, f"it is {time.ctime()} here; set the clock"), unknown]
    if isinstance(error, TosNotFoundError):
        return [connection, clock, Finding("bucket", "failed", text, "check its name and region, or create it")]
    if isinstance(error, TosAccessError):
        return [
            connection,
            clock,
            Finding("bucket", "failed", text, "check the keys and what they may do with this bucket"),
        ]
    return [connection, Finding("clock", "unknown", "not asked"), Finding("bucket", "failed", text)]


def _leftovers(client: TosClient, where: Remote) -> Finding:
    yesterday = time.time() - _DAY_S
    try:
        found = client.list_uploads(where.bucket, where.key)
        old = sum(upload.initiated is not None and upload.initiated < yesterday for upload in found)
    except TosException as error:
        return Finding("uploads", "unknown", str(error))
    if not old:
        return Finding("uploads", "ok", "none is older than a day")
    advice = f"tosnative uploads {where} --abort-older-than 1d"
    return Finding("uploads", "unknown", f"{count(old, 'upload')} older than a day, each costs storage", advice)
