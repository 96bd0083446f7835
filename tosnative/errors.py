"""What can go wrong, as exceptions that say what happened, to which object, and what to do.

    TosException                 the root: args[0] is a TosError
    ├── TosNotFoundError         no such bucket, key or upload (also a FileNotFoundError)
    ├── TosExistsError           the key exists and must not be overwritten (also a FileExistsError)
    ├── TosAccessError           who you are is not known, or may not do this (also a PermissionError)
    ├── TosChangedError          the object is no longer the version that was asked for
    ├── TosUnavailableError      the service was throttling or out of order until the deadline
    ├── TosConnectionError       no connection, or one that kept breaking (also a ConnectionError)
    ├── TosTimeoutError          nothing came, or too slowly, until the deadline (also a TimeoutError)
    ├── TosIntegrityError        bytes, lengths or checksums do not agree
    ├── TosAbortedError          a write that was given up: nothing became visible
    └── TosOutcomeUnknownError   a write whose success could not be established

Every exception can be built from one string and can be pickled; the text of its cause travels with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tosnative.quoting import one_line

__all__ = [
    "TosAbortedError",
    "TosAccessError",
    "TosChangedError",
    "TosConnectionError",
    "TosError",
    "TosException",
    "TosExistsError",
    "TosIntegrityError",
    "TosNotFoundError",
    "TosOutcomeUnknownError",
    "TosTimeoutError",
    "TosUnavailableError",
    "from_service",
]


@dataclass(frozen=True, slots=True)
class TosError:
    """What the service (or the network) said about one operation.

    message: one sentence, without secrets. status_code: HTTP status, None where no answer came.
    ec: the service's fine-grained error code. request_id: quote it to the service's support.
    code: the service's error name, such as NoSuchKey. operation: the HTTP method or the name of the call.
    attempts: the failures before the last one, oldest first. elapsed_s: seconds from the first attempt to giving up.
    cause: the text of what raised it, where the exception itself is not there any more (pickle drops it).
    """

    message: str
    status_code: int | None = None
    ec: str | None = None
    request_id: str | None = None
    code: str | None = None
    operation: str | None = None
    bucket: str | None = None
    key: str | None = None
    hint: str | None = None
    attempts: tuple[str, ...] = ()
    elapsed_s: float | None = None
    cause: str | None = None

    def __str__(self) -> str:
        caused = f"; caused by {self.cause}" if self.cause else ""
        hint = f"; {self.hint}" if self.hint else ""
        # One line, whatever is in a key or in what a service says.
        return one_line("".join((self._where(), self.message, self._facts(), self._history(), caused, hint)), 10_000)

    def _where(self) -> str:
        where = "" if self.bucket is None else f"tos://{self.bucket}/{self.key or ''}"
        text = " ".join(part for part in (self.operation, where) if part)
        return f"{text}: " if text else ""

    def _facts(self) -> str:
        status = " ".join(str(part) for part in (self.status_code, self.code) if part)
        facts = [status, f"EC {self.ec}" if self.ec else "", f"request id {self.request_id}" if self.request_id else ""]
        facts = [fact for fact in facts if fact]
        return f" ({', '.join(facts)})" if facts else ""

    def _history(self) -> str:
        if not self.attempts:
            return ""
        took = f" in {self.elapsed_s:.1f} s" if self.elapsed_s is not None else ""
        return f"; gave up after {len(self.attempts) + 1} attempts{took}, earlier: {'; '.join(self.attempts[-3:])}"


class TosException(Exception):
    """The root of all errors of this library; `args[0]` is always a TosError, whatever it was built from."""

    def __init__(self, error: TosError | str = "") -> None:
        super().__init__(error if isinstance(error, TosError) else TosError(str(error)))

    @property
    def error(self) -> TosError:
        """The facts: status, codes, request id, bucket and key."""
        error: TosError = self.args[0]
        return error

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        error = self.error
        if self.__cause__ is not None and error.cause is None:
            text = str(self.__cause__)
            if text not in str(error):
                error = replace(error, cause=f"{type(self.__cause__).__name__}: {text}"[:2000])
        return (type(self), (error,), self.__dict__) if self.__dict__ else (type(self), (error,))

    def with_context(self, **facts: object) -> TosException:
        """Return an exception of the same kind whose TosError has these fields replaced where they were empty."""
        missing = {name: value for name, value in facts.items() if not getattr(self.error, name)}
        return type(self)(replace(self.error, **missing))  # type: ignore[arg-type]  # names are TosError's fields


class TosNotFoundError(TosException, FileNotFoundError):
    """No such bucket, key or upload."""


class TosExistsError(TosException, FileExistsError):
    """The key exists, and the request forbade overwriting it."""


class TosAccessError(TosException, PermissionError):
    """Credentials that are unknown, expired, wrongly signed with, or not allowed to do this."""


class TosChangedError(TosException):
    """The object is no longer the version that was asked for; no byte of another version was returned."""


class TosUnavailableError(TosException):
    """The service answered 429 or 5xx until the deadline."""


class TosConnectionError(TosException, ConnectionError):
    """No connection could be made, or every connection broke."""


class TosTimeoutError(TosException, TimeoutError):
    """Nothing arrived, or too little, until the deadline."""


class TosIntegrityError(TosException):
    """Lengths, ranges or checksums do not agree; no such byte was returned as good."""


class TosAbortedError(TosException):
    """A write that was given up. Nothing became visible under the key."""


class TosOutcomeUnknownError(TosException):
    """A write whose last request was sent and never answered: the object may or may not be there, whole either way."""


_BY_CODE: dict[str, type[TosException]] = {
    "NoSuchBucket": TosNotFoundError,
    "NoSuchKey": TosNotFoundError,
    "NoSuchUpload": TosNotFoundError,
    "DuplicateObject": TosExistsError,
}
_BY_STATUS: dict[int, type[TosException]] = {
    401: TosAccessError,
    403: TosAccessError,
    404: TosNotFoundError,
    407: TosAccessError,
    408: TosTimeoutError,
    412: TosChangedError,
    429: TosUnavailableError,
}
# EC values from the public SDKs, which decide on them where a HEAD has no body.
_EC_NO_BUCKET, _EC_NO_KEY, _EC_EXISTS = "0006-00000001", "0017-00000003", "0017-00000004"
_HINT_BY_EC = {
    _EC_NO_BUCKET: "check the bucket's name and that the endpoint is the bucket's region",
    _EC_NO_KEY: "check the key; keys are case-sensitive and have no leading slash",
}
_HINT_BY_CODE = {
    "NoSuchBucket": _HINT_BY_EC[_EC_NO_BUCKET],
    "NoSuchKey": _HINT_BY_EC[_EC_NO_KEY],
    "NoSuchUpload": "the upload was completed or aborted by somebody else",
    "InvalidAccessKeyId": "check TOS_ACCESS_KEY, or the ak of your CredentialProvider",
    "SignatureDoesNotMatch": "check the secret key and the region",
    "RequestTimeTooSkewed": "this machine's clock is more than 15 minutes off; set it",
    "ExpiredToken": "the security token expired; use a provider that refreshes it",
    "InvalidSecurityToken": "check TOS_SECURITY_TOKEN",
    "AccessDenied": "ask for the permission on this bucket and key",
}


_ELSEWHERE = "the bucket may be in another region: check the endpoint"
_THROTTLED = "the service asks for patience: lower the number of workers or of requests in flight, or raise deadline_s"
_OUT_OF_ORDER = "the service is out of order: try again later, and quote the request id to its support"
_HINT_BY_STATUS = {
    **dict.fromkeys((301, 302, 307, 308), _ELSEWHERE),
    401: "check the credentials and the endpoint",
    403: "check the credentials, and their permission on this bucket and key",
    407: "the proxy asks for a user and a password: proxy=http://user:password@host:port",
    **dict.fromkeys((429, 503), _THROTTLED),
    **dict.fromkeys((500, 502, 504), _OUT_OF_ORDER),
}


def kind_of(status: int | None, code: str | None, ec: str | None) -> type[TosException]:
    """The class for an answer of the service."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if ec == _EC_EXISTS:
        return TosExistsError
    if status is not None and status >= 500:
        return TosUnavailableError
    return _BY_STATUS.get(status or 0, TosException)


def from_service(error: TosError) -> TosException:
    """Return the exception for what the service said, with a hint of what to do where one is known."""
    hint = error.hint or _HINT_BY_CODE.get(error.code or "") or _HINT_BY_EC.get(error.ec or "")
    hint = hint or _HINT_BY_STATUS.get(error.status_code or 0)
    if hint is None and error.status_code == 404:
        hint = "check the bucket's name and the key" if error.key else _HINT_BY_EC[_EC_NO_BUCKET]
    return kind_of(error.status_code, error.code, error.ec)(replace(error, hint=hint))
