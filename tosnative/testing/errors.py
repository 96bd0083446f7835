"""What the local server refuses, as values: status, code, message and EC of every error it answers on its own.

Each function builds the error of one situation, so that no operation spells a code or an EC itself.
"""

from __future__ import annotations

from collections.abc import Mapping


class ServiceError(Exception):
    """A request that the service answers with an error.

    `status` is the HTTP status, `code` the word in the JSON body's `Code`, `ec` the fine-grained code that also travels
    in the `x-tos-ec` header (an answer to HEAD has no body). `headers` are added to the answer, `extra` to its body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        ec: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.ec = ec
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})


def no_such_bucket(bucket: str) -> ServiceError:
    return ServiceError(404, "NoSuchBucket", f"The bucket {bucket} does not exist.", "0006-00000001")


def no_such_key(key: str) -> ServiceError:
    return ServiceError(404, "NoSuchKey", f"The key {key} does not exist.", "0017-00000003", extra={"Key": key})


def no_such_upload(upload_id: str) -> ServiceError:
    return ServiceError(
        404, "NoSuchUpload", f"The upload {upload_id} does not exist: completed, aborted or never begun."
    )


def invalid_argument(message: str) -> ServiceError:
    return ServiceError(400, "InvalidArgument", message)


def malformed_body(message: str) -> ServiceError:
    return ServiceError(400, "MalformedBody", message)


def not_implemented(what: str) -> ServiceError:
    return ServiceError(501, "NotImplemented", f"The local server does not implement {what}.")


def method_not_allowed(message: str) -> ServiceError:
    return ServiceError(405, "MethodNotAllowed", message)


def precondition_failed(condition: str) -> ServiceError:
    return ServiceError(412, "PreconditionFailed", f"The precondition {condition} does not hold.")


def overwrite_forbidden(key: str, code: str) -> ServiceError:
    return ServiceError(409, code, f"The key {key} exists and the request forbids to overwrite it.", "0017-00000004")


def invalid_range(text: str, size: int, code: str) -> ServiceError:
    return ServiceError(
        416,
        code,
        f"The range {text} starts at or after the end of an object of {size} bytes.",
        headers={"Content-Range": f"bytes */{size}"},
    )


def not_appendable(key: str) -> ServiceError:
    return ServiceError(409, "NotAppendable", f"The object {key} is not appendable.", "0017-00000209")


def offset_mismatch(key: str, offset: int, size: int) -> ServiceError:
    return ServiceError(
        409, "OffsetNotMatched", f"The offset {offset} is not the size of {key}, {size} bytes.", "0017-00000208"
    )
