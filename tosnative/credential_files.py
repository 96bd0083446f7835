"""Credentials in files: JSON, or INI with a section per profile."""

from __future__ import annotations

import configparser
import datetime
import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Credentials", "parse_time", "read_credentials_file"]

_FRACTION = re.compile(r"\.\d+")


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
    """Read a JSON file, or an INI file with a section per profile.

    Names: ak / access_key / access_key_id / AccessKeyId, sk / secret_key / secret_access_key / SecretAccessKey,
    token / security_token / session_token / SessionToken, and optionally expires_at / ExpiredTime / Expiration
    (seconds since 1970, or ISO 8601). Raises: ValueError where the file does not hold credentials, OSError.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        values = json.loads(text) if text.lstrip().startswith("{") else _ini_section(text, profile)
    except (ValueError, configparser.Error):
        raise ValueError(f"{path} is neither JSON nor INI with credentials") from None  # the cause would quote secrets
    plain = {name.lower().replace("_", ""): value for name, value in values.items()}

    def pick(*names: str) -> str:
        return next((str(plain[name]) for name in names if plain.get(name)), "")

    ak, sk = pick("ak", "accesskey", "accesskeyid"), pick("sk", "secretkey", "secretaccesskey", "accesskeysecret")
    if not ak or not sk:
        raise ValueError(f"{path} holds no access key and secret key (profile {profile!r})")
    token = pick("token", "securitytoken", "sessiontoken") or None
    return Credentials(ak, sk, token, parse_time(pick("expiresat", "expiredtime", "expiration")))


def _ini_section(text: str, profile: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return dict(parser[profile]) if parser.has_section(profile) else dict(parser.defaults())


def parse_time(text: str) -> float | None:
    """Seconds since 1970 from such a number or from ISO 8601 (UTC where it names no zone); None from ""."""
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    text = text.replace("Z", "+00:00")
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:  # before Python 3.11 a fraction must have three or six digits
        moment = datetime.datetime.fromisoformat(_FRACTION.sub(lambda found: f"{found[0]:0<7}"[:7], text))
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)).timestamp()
