"""Configuration checks itself, hides its secrets, and is the only reader of the environment."""

import pickle
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.config import (
    ConnectionOptions,
    TosClientConfig,
    _default_cas,
    environment_credentials,
    with_environment,
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("part_size", (1 << 20) - 1),
        ("part_size", (5 << 30) + 1),
        ("shared_prefetch_tasks", 0),
        ("shared_upload_part_tasks", -1),
        ("max_retry_count", -1),
        ("deadline_s", 0),
        ("deadline_s", float("nan")),
        ("memory_budget_bytes", 1 << 20),
        ("hedge_percent", -1),
        ("hedge_percent", 101),
    ],
)
def test_a_wrong_setting_is_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        TosClientConfig(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connect_timeout_s", 0),
        ("first_byte_timeout_s", -1),
        ("stall_timeout_s", float("nan")),
        ("idle_timeout_s", 0),
        ("max_connections", 0),
        ("ca_bundle", "/no/such/file.pem"),
        ("client_cert", ("/no/such/cert.pem", "/no/such/key.pem")),
    ],
)
def test_a_wrong_connection_option_is_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        ConnectionOptions(**{field: value})


@given(st.floats(), st.integers(), st.floats())
def test_any_numbers_make_a_config_or_a_value_error(deadline: float, part_size: int, percent: float) -> None:
    try:
        config = TosClientConfig(deadline_s=deadline, part_size=part_size, hedge_percent=percent)
    except ValueError:
        return
    assert config.deadline_s > 0
    assert pickle.loads(pickle.dumps(config)) == config


def test_a_config_is_a_value() -> None:
    config = TosClientConfig()
    assert config.with_crc(True) is config
    assert config.with_crc(False).enable_crc is False
    assert hash(config) == hash(TosClientConfig())
    with pytest.raises(AttributeError):
        config.part_size = 1  # type: ignore[misc]


def test_the_proxy_s_password_is_not_shown() -> None:
    options = ConnectionOptions(proxy="http://user:p4ssw0rd@proxy:3128")
    for text in (repr(options), str(options), repr(TosClientConfig(connection=options))):
        assert "p4ssw0rd" not in text
        assert "proxy:3128" in text


def test_environment_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOS_ACCESS_KEY", "TOS_SECRET_KEY", "TOS_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert environment_credentials() is None
    monkeypatch.setenv("TOS_ACCESS_KEY", "ak")
    with pytest.raises(ValueError, match="TOS_SECRET_KEY is not set"):
        environment_credentials()
    monkeypatch.setenv("TOS_SECRET_KEY", "sk")
    assert environment_credentials() == ("ak", "sk", None)
    monkeypatch.setenv("TOS_SECURITY_TOKEN", "token")
    assert environment_credentials() == ("ak", "sk", "token")
    monkeypatch.delenv("TOS_ACCESS_KEY")
    with pytest.raises(ValueError, match="TOS_ACCESS_KEY is not set"):
        environment_credentials()


def test_the_environment_names_the_cas_to_trust(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    plain = ConnectionOptions()
    assert with_environment(plain).ca_bundle == _default_cas()
    for name in reversed(names):  # each goes before those set so far
        path = tmp_path / name
        path.write_text("")
        monkeypatch.setenv(name, str(path))
        assert with_environment(plain).ca_bundle == str(path)
    given_one = ConnectionOptions(ca_bundle=str(tmp_path))
    assert with_environment(given_one) is given_one
    unverified = ConnectionOptions(verify=False)
    assert with_environment(unverified) is unverified
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with pytest.raises(ValueError, match="REQUESTS_CA_BUNDLE names '/no/such/file'"):
        with_environment(plain)


def test_without_any_the_system_s_cas_then_certifi_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def system(cafile: str | None, capath: str | None) -> None:
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: SimpleNamespace(cafile=cafile, capath=capath))

    system("/etc/ca.pem", None)
    assert _default_cas() == "/etc/ca.pem"
    system(None, str(tmp_path))
    assert (_default_cas() or "").endswith("cacert.pem"), "an empty directory holds none"
    (tmp_path / "one.pem").write_text("")
    assert _default_cas() == str(tmp_path)
