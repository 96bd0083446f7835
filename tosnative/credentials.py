"""Who asks: access keys that are fixed, come from the environment or a file, or are handed out for a while by a provider.

A provider is asked before each request is signed. What expires is renewed ahead of time, by one thread per process, while
the old credentials still serve. Secrets appear in no repr; a provider that can look its secrets up again pickles without them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tosnative.config import environment_credentials
from tosnative.credential_files import Credentials, read_credentials_file
from tosnative.metrics import METRICS

__all__ = [
    "CredentialProvider",
    "Credentials",
    "EcsRoleCredentials",
    "EnvironmentCredentials",
    "FileCredentials",
    "RefreshingCredentials",
    "SdkCredentials",
    "as_provider",
]

# Renewed this long before they expire; the SDK's providers use 5 to 10 minutes.
_AHEAD_S = 300.0
# What has just been handed out is used for so long, though it should have expired: this machine's clock may be wrong, and the
# service is the judge of that.
_TRUSTED_S = 10.0
# Between a renewal that failed and the next try.
_AGAIN_S = 1.0


class CredentialProvider:
    """Fixed credentials: an access key, its secret, and an optional security token.

    The base of all kinds: `current()` is what the next request is signed with. Pickles with its secrets, as it has
    nowhere else to get them from; the other kinds pickle as the way to look them up.
    """

    def __init__(self, ak: str, sk: str, security_token: str | None = None) -> None:
        if not ak or not sk:
            raise ValueError("CredentialProvider needs an access key (ak) and a secret key (sk), both not empty")
        self._fixed: Credentials | None = Credentials(ak, sk, security_token or None)

    @property
    def ak(self) -> str:
        return self.current().ak

    @property
    def sk(self) -> str:
        return self.current().sk

    @property
    def security_token(self) -> str | None:
        return self.current().token

    def current(self) -> Credentials:
        """The credentials to sign with now. May block while they are fetched for the first time, or after they expired."""
        assert self._fixed is not None
        return self._fixed

    def ready(self) -> Credentials | None:
        """The same without ever blocking: None where they have to be fetched first (by `current`)."""
        return self._fixed

    def rejected(self, stale: Credentials) -> bool:
        """The service called `stale` expired: fetch anew (may block). False where there is nothing newer to be had."""
        return False

    def __repr__(self) -> str:
        fixed = self.ready()
        return f"{type(self).__name__}({'ak=' + repr(fixed.ak[:4] + '...') if fixed else ''})"


class RefreshingCredentials(CredentialProvider):
    """Credentials that `fetch` hands out for a while.

    fetch: returns Credentials; called by one thread at a time, ahead of expiry in the background, and at once where the
    service says that they expired. Must be picklable for use in spawned workers (a module-level function, say).
    """

    def __init__(self, fetch: Callable[[], Credentials]) -> None:
        self._fetch = fetch
        self._start()

    def _start(self) -> None:
        self._fixed = None
        self._until = self._renew_at = 0.0  # when they expire, and when they are renewed ahead (seconds since 1970)
        self._renewing = False
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards the fields above; never held while fetching by `ready`

    def __getstate__(self) -> dict[str, Any]:
        return {"_fetch": self._fetch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def _check_process(self) -> None:
        # The lock may have been held by a thread that does not exist in this forked child.
        if self._pid != os.getpid():
            kept = self._fixed, self._until, self._renew_at
            self._start()
            self._fixed, self._until, self._renew_at = kept

    def current(self) -> Credentials:
        found = self.ready()
        return found if found is not None else self._renew(None)

    def ready(self) -> Credentials | None:
        self._check_process()
        found = self._fixed
        if found is None or found.expires_at is None:
            return found
        now = time.time()
        if now >= self._until:
            return None
        if now >= self._renew_at and not self._renewing:
            self._renewing = True
            threading.Thread(
                target=self._renew_quietly, args=(found,), name="tosnative-credentials", daemon=True
            ).start()
        return found

    def rejected(self, stale: Credentials) -> bool:
        self._check_process()
        return self._renew(stale) != stale

    def _renew(self, stale: Credentials | None) -> Credentials:
        """Fetch once, however many threads ask: those that waited take what the first one got."""
        with self._lock:
            found = self._fixed
            if found is not None and found != stale and (found.expires_at is None or self._until > time.time()):
                return found
            found = self._fetch()
            METRICS.credential_refreshes += 1
            if found.expires_at is not None:
                now = time.time()
                lives_s = max(found.expires_at - now, _TRUSTED_S)
                # Half its life where that is short, so that a source that repeats itself is not asked at each request.
                self._until, self._renew_at = (
                    now + lives_s,
                    now + (lives_s - _AHEAD_S if lives_s > _AHEAD_S else lives_s / 2),
                )
            self._fixed = found
            return found

    def _renew_quietly(self, stale: Credentials) -> None:
        # A failure ahead of expiry is not yet one: the next use tries again, and says so once they have expired.
        try:
            self._renew(stale)
        except Exception:  # noqa: BLE001 - providers are foreign code
            self._renew_at = time.time() + _AGAIN_S
        finally:
            self._renewing = False


class EnvironmentCredentials(CredentialProvider):
    """TOS_ACCESS_KEY, TOS_SECRET_KEY and TOS_SECURITY_TOKEN, read again when the service says that they expired."""

    def __init__(self) -> None:
        self._read()

    def _read(self) -> None:
        found = environment_credentials()
        if found is None:
            raise ValueError(
                "no credentials: pass cred=CredentialProvider(ak, sk), or set TOS_ACCESS_KEY and TOS_SECRET_KEY"
            )
        self._fixed = Credentials(*found)

    def rejected(self, stale: Credentials) -> bool:
        self._read()
        return self._fixed != stale

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class FileCredentials(CredentialProvider):
    """A file that somebody rotates (see `read_credentials_file` for its forms); read again when it changes."""

    _LOOK_EVERY_S = 5.0
    _HALF_WRITTEN_S = (0.05, 0.2, 0.75)

    def __init__(self, path: str | os.PathLike[str], profile: str = "default") -> None:
        self._path, self._profile = os.fspath(path), profile
        self._look()

    def _look(self) -> None:
        stamp = os.stat(self._path).st_mtime_ns
        self._fixed = read_credentials_file(self._path, self._profile)
        self._stamp, self._looked = stamp, time.monotonic()

    def ready(self) -> Credentials | None:
        now = time.monotonic()
        if now - self._looked > self._LOOK_EVERY_S:
            self._looked = now
            try:
                if os.stat(self._path).st_mtime_ns != self._stamp:
                    self._look()
            except (OSError, ValueError):
                pass  # half written, or about to be replaced: what was read serves until the service rejects it
        return self._fixed

    def current(self) -> Credentials:
        found = self.ready()
        assert found is not None
        return found

    def rejected(self, stale: Credentials) -> bool:
        for pause_s in self._HALF_WRITTEN_S:
            try:
                self._look()
                break
            except (OSError, ValueError):
                time.sleep(pause_s)  # somebody may be writing it at this very moment
        else:
            self._look()
        return self._fixed != stale

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._path, self._profile)


class SdkCredentials(RefreshingCredentials):
    """Any provider of the official `tos` SDK, or any object whose get_credentials() gives ak, sk and token.

    provider: such an object, or a picklable function without arguments that makes one (needed for spawned workers where
    the provider itself cannot be pickled).
    """

    # The SDK's providers renew by themselves; asking again this often costs nothing.
    _ASK_EVERY_S = 60.0

    def __init__(self, provider: Any) -> None:
        self._source = provider
        super().__init__(self._ask)

    def _start(self) -> None:
        super()._start()
        # Made anew in a forked child where that is possible, as a lock of the old one may have been held.
        self._provider: Any = None

    def rejected(self, stale: Credentials) -> bool:
        # Before it expires a provider of the SDK gives what it has; a new one has nothing.
        self._provider = None
        return super().rejected(stale)

    def _ask(self) -> Credentials:
        provider = self._provider
        if provider is None:
            provider = self._source if hasattr(self._source, "get_credentials") else self._source()
            self._provider = provider
        found = provider.get_credentials()
        return Credentials(
            found.get_ak(),
            found.get_sk(),
            found.get_security_token() or None,
            time.time() + _AHEAD_S + self._ASK_EVERY_S,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_source"])  # type: ignore[misc]  # unpickling is construction from the same source


def _ecs_provider(role: str) -> Any:
    import tos.credential  # noqa: PLC0415 - the SDK is needed on instances with a role only

    return tos.credential.EcsCredentialsProvider(role)


class EcsRoleCredentials(SdkCredentials):
    """The role of the ECS instance this runs on, through the official SDK's provider."""

    def __init__(self, role_name: str) -> None:
        if not role_name:
            raise ValueError("EcsRoleCredentials needs the name of the instance's role")
        self._role = role_name
        super().__init__(lambda: _ecs_provider(role_name))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._role,)


def as_provider(cred: object | None) -> CredentialProvider:
    """Take what a user passes as `cred`: a provider of ours or of the SDK, an object with ak and sk, or None (environment).

    Raises: ValueError where None is given and the environment has no credentials, TypeError for anything else.
    """
    if cred is None:
        return EnvironmentCredentials()
    if isinstance(cred, CredentialProvider):
        return cred
    if hasattr(cred, "get_credentials"):
        return SdkCredentials(cred)
    ak, sk = getattr(cred, "ak", None), getattr(cred, "sk", None)
    if isinstance(ak, str) and isinstance(sk, str):
        token = getattr(cred, "security_token", None) or getattr(cred, "token", None)
        return CredentialProvider(ak, sk, token)
    raise TypeError(f"cred must be a CredentialProvider or a provider of the tos SDK, not {type(cred).__name__}")
