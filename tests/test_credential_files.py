"""Files of credentials: in their forms, rotating, and those that hold none, of which nothing is quoted."""

import json
import os
import pickle
import traceback
from pathlib import Path

import pytest
from secrets_shown import SECRETS, shows_no_secret

from tosnative.credential_files import Credentials, parse_time, read_credentials_file
from tosnative.credentials import FileCredentials

FORMS = [
    json.dumps({"ak": SECRETS[0], "sk": SECRETS[1], "token": SECRETS[2]}),
    json.dumps({"AccessKeyId": SECRETS[0], "SecretAccessKey": SECRETS[1], "SessionToken": SECRETS[2]}),
    f"[default]\naccess_key = {SECRETS[0]}\nsecret_key = {SECRETS[1]}\nsecurity_token = {SECRETS[2]}\n",
    f"[default]\naccess_key_id={SECRETS[0]}\nsecret_access_key={SECRETS[1]}\nsession_token={SECRETS[2]}\n[x]\nak=n\n",
]


@pytest.mark.parametrize("text", FORMS)
def test_files_in_their_forms(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    provider = FileCredentials(path)
    assert provider.current() == Credentials(*SECRETS)
    shows_no_secret(provider, pickle.dumps(provider))
    assert pickle.loads(pickle.dumps(provider)).current() == provider.current()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[default",
        "[other]\nak=a\nsk=b\n",
        '{"ak": "a"}',
        f'{{"sk": "{SECRETS[1]}"',
        "plain words",
        '{"a":' * 50_000,
        f'{{"ak": ["a"], "sk": "{SECRETS[1]}"}}',
        f'{{"ak": "a", "sk": "{SECRETS[1]}\\nx"}}',
        f'{{"ak": "a", "sk": "{SECRETS[1]}", "token": "\\ud800"}}',
        f'{{"ak": "a", "sk": "{SECRETS[1]}", "expires_at": "{SECRETS[2]}"}}',
        f'{{"ak": "a", "sk": "{SECRETS[1]}", "expires_at": NaN}}',
    ],
)
def test_files_that_hold_none_say_so_without_quoting_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credentials"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)) as caught:
        read_credentials_file(str(path))
    shows_no_secret(caught.value, caught.value.__cause__)


def test_a_file_in_another_encoding_is_not_quoted_either(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_bytes(f'{{"ak": "a", "sk": "{SECRETS[1]}\xe9"}}'.encode("latin-1"))
    with pytest.raises(ValueError, match="neither JSON nor INI") as caught:
        FileCredentials(path)
    assert SECRETS[1] not in "".join(traceback.format_exception(caught.value))


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text('{"ak": "a", "sk": "s"}', encoding="utf-8-sig")
    assert FileCredentials(path).current() == Credentials("a", "s")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e300", "1767323045000"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="no time"):
        parse_time(text)


def test_a_file_that_rotates_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text('{"ak": "a1", "sk": "s"}')
    provider = FileCredentials(path)
    first = provider.current()
    path.write_text('{"ak": "a2", "sk": "s"}')
    os.utime(path, ns=(1, 1))
    assert provider.current().ak == "a1", "looked at every few seconds only"
    provider._looked -= 100  # the time passes
    assert provider.current().ak == "a2"
    path.write_text("half writ")
    os.utime(path, ns=(2, 2))
    provider._looked -= 100
    assert provider.current().ak == "a2", "what was read serves until the service rejects it"
    path.write_text('{"ak": "a3", "sk": "s"}')
    assert provider.rejected(first) is True
    assert provider.current().ak == "a3"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("1767323045", 1767323045.0),
        ("2026-01-02T03:04:05Z", 1767323045.0),
        ("2026-01-02T03:04:05", 1767323045.0),
        ("2026-01-02T03:04:05.5Z", 1767323045.5),
        ("2026-01-02T03:04:05.25+00:00", 1767323045.25),
        ("2026-01-02T03:04:05.250000000Z", 1767323045.25),
        ("2026-01-02T04:04:05+01:00", 1767323045.0),
    ],
)
def test_times(text: str, seconds: float | None) -> None:
    assert parse_time(text) == seconds
