"""What others said, as part of a message: one line, printable, bounded."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(text: str, most: int = 1000) -> str:
    """The text with white space as single blanks and everything else that cannot be printed escaped; at most `most` characters.

    What a service, a proxy or a file says may hold line breaks, terminal codes and lone surrogates, which would forge lines of a
    log or make it fail.
    """
    text = " ".join(text[: 2 * most].split())
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= most else text[: most - 3] + "..."
