"""Credentials in files: JSON, or INI with a section per profile."""

from __future__ import annotations

import configparser
import datetime
import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Credentials", "parse_credentials", "parse_time", "read_credentials_file"]

_FRACTION = re.compile(r"\.\d+")
_EXPIRY = ("expiresat", "expiredtime", "expiration")
# Beyond the years that a date can name: milliseconds, say, where seconds belong.
_MOST_SECONDS = 1e12


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """An access key, its secret, an optional security token, and when they expire (seconds since 1970; None: never)."""

    ak: str
    sk: str
    token: str | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        for name, what in (("ak", "access key"), ("sk", "secret key"), ("token", "security token")):
            value = getattr(self, name)
            if value is None and name == "token":
                continue
            plain = value.strip() if isinstance(value, str) else ""
            # They become part of a header: a line break in one would begin another header. The value is not shown.
            if (not plain and name != "token") or not plain.isprintable() or any(c.isspace() for c in plain):
                raise ValueError(f"the {what} is empty, or holds spaces or control characters")
            object.__setattr__(self, name, plain or None)

    def __repr__(self) -> str:
        return f"Credentials(ak='{self.ak[:4]}...', sk='***', token={'***' if self.token else None}, expires_at={self.expires_at})"


def read_credentials_file(path: str, profile: str = "default") -> Credentials:
    """Read a file of credentials; see `parse_credentials`. Raises: ValueError where it does not hold any, OSError."""
    return parse_credentials(Path(path).read_bytes(), path, profile)


def parse_credentials(data: bytes, path: str, profile: str = "default") -> Credentials:
    """Credentials in JSON, or in INI with a section per profile; UTF-8. path: what messages call the file.

    Names: ak / access_key / access_key_id / AccessKeyId, sk / secret_key / secret_access_key / SecretAccessKey,
    token / security_token / session_token / SessionToken, and optionally expires_at / ExpiredTime / Expiration
    (seconds since 1970, or ISO 8601). Raises: ValueError, which quotes nothing of the file, where it does not hold credentials.
    """
    try:
        text = data.decode("utf-8-sig")
        values = json.loads(text) if text.lstrip().startswith("{") else _ini_section(text, profile)
    except (ValueError, RecursionError, AttributeError, configparser.Error):
        raise ValueError(f"{path} is neither JSON nor INI with credentials") from None  # the cause would quote secrets
    plain = {name.lower().replace("_", ""): value for name, value in values.items()}

    def pick(*names: str) -> str:
        return next((plain[name] for name in names if isinstance(plain.get(name), str) and plain[name]), "")

    ak, sk = pick("ak", "accesskey", "accesskeyid"), pick("sk", "secretkey", "secretaccesskey", "accesskeysecret")
    if not ak or not sk:
        raise ValueError(f"{path} holds no access key and secret key (profile {profile!r})")
    token = pick("token", "securitytoken", "sessiontoken") or None
    try:
        expires_at = parse_time(str(next((plain[name] for name in _EXPIRY if plain.get(name)), "")))
    except ValueError:
        raise ValueError(f"{path} says when its credentials expire, but that is no time") from None
    try:
        return Credentials(ak, sk, token, expires_at)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _ini_section(text: str, profile: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return dict(parser[profile]) if parser.has_section(profile) else dict(parser.defaults())


def parse_time(text: str) -> float | None:
    """Seconds since 1970 from such a number or from ISO 8601 (UTC where it names no zone); None from "".

    Raises: ValueError where it is neither, or lies beyond the years that a date can name.
    """
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return _parse_date(text.replace("Z", "+00:00"))
    if not abs(seconds) < _MOST_SECONDS:
        raise ValueError(f"no time: {text[:40]!r} seconds")
    return seconds


def _parse_date(text: str) -> float:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:  # before Python 3.11 a fraction must have three or six digits
        moment = datetime.datetime.fromisoformat(_FRACTION.sub(lambda found: f"{found[0]:0<7}"[:7], text))
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)).timestamp()
