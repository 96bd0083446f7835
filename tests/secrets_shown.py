"""Credentials for tests, and what nothing may show of them."""

SECRETS = ("AKIDSECRETTAIL", "sk-very-secret", "token-very-secret")


def shows_no_secret(*texts: object) -> None:
    for text in texts:
        for secret in ("SECRETTAIL", "sk-very-secret", "token-very-secret"):
            assert secret not in str(text)
            assert secret not in repr(text)
