"""The trouble of a run: every kind of fault, each as likely, so that together they hit a given share of the requests."""

from __future__ import annotations

from typing import Any

from tosnative.testing import LocalTos, Uniform

# Every GET of an object may meet these.
KINDS: dict[str, dict[str, Any]] = {
    "reset_before": {"reset": "before"},
    "reset_after": {"reset": "after"},
    "reset_mid_body": {"reset_after_bytes": 700},
    "truncated": {"truncate_after_bytes": 900},
    "stalled": {"stall_after_bytes": 500},
    "never_answered": {"hang": "before"},
    "answer_lost": {"hang": "after"},
    "unavailable": {"status": 503},
    "unavailable_retry_after": {"status": 503, "retry_after_s": 0.2},
    "throttled": {"status": 429},
    "internal": {"status": 500},
    "wrong_content_range": {"content_range": "bytes 3-77/98765"},
    "too_long": {"extra_bytes": 7},
    "chunked": {"chunk_bytes": 333},
    "closed_after": {"close": True},
    "closed_idle": {"close_idle": True},
    "range_ignored": {"ignore_range": True},
    "interim": {"interim": (102, 103)},
    "late": {"delay_s": Uniform(0.02, 0.4)},
}
# A wrong byte, or a wrong checksum, shows in the object's CRC64 only: where one answer brings the whole object, it is asked
# for again. In a range nothing shows it.
WHOLE_KINDS: dict[str, dict[str, Any]] = {
    "flipped": {"flip_byte_at": 333},
    "wrong_crc": {"crc": "wrong"},
}
# After these nothing comes any more, and nothing says so.
SILENT = frozenset({"stalled", "never_answered", "answer_lost"})


class FaultsMix:
    """The rules in force at a server, and how often each has struck."""

    def __init__(self, tos: LocalTos, share: float, silent: bool = True) -> None:
        """share: of all GETs of objects that are hit, 0 to 1. silent False leaves out the kinds of SILENT."""
        kinds = {kind: action for kind, action in KINDS.items() if silent or kind not in SILENT}
        each = share / (len(kinds) + len(WHOLE_KINDS))
        self._rules = {
            kind: tos.faults.add(method="GET", key="*", probability=each, **action) for kind, action in kinds.items()
        }
        self._rules |= {
            kind: tos.faults.add(method="GET", key="whole/*", probability=each, **action)
            for kind, action in WHOLE_KINDS.items()
        }

    def hits(self) -> dict[str, int]:
        return {kind: fault.hits for kind, fault in self._rules.items()}
