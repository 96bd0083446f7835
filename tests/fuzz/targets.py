"""All targets by name."""

from tests.fuzz import http_targets, page_targets, words_targets
from tests.fuzz.target import Target

__all__ = ["TARGETS"]

TARGETS: dict[str, Target] = {**http_targets.TARGETS, **words_targets.TARGETS, **page_targets.TARGETS}
