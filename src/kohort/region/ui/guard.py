"""Access control for the page of a region.

A page that only this machine can reach needs no token. Then browsers may use only certain host
names, so that no foreign name can point at it (DNS rebinding). Otherwise a token opens it: in a
header, or in the address of the first load, which sets a cookie derived from it. A change must come
from the page itself (CSRF), or carry the token in a header, which no foreign page can set.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request

from kohort.errors import ConfigError

_TOKEN_LENGTH_MIN = 16
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Decides which requests are allowed.

    Args:
        token: The token; None: every user of this machine may use the page.
        port: The port of the page; browsers share cookies among all ports.
    """

    def __init__(self, token: str | None, port: int) -> None:
        self._token = token
        self._session = _session_of(token or secrets.token_urlsafe(32), port)
        self._cookie_name = f"kohort-region-{port}"

    def refusal(self, request: Request) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal; None: the request is allowed."""
        if self._token is None and not is_local_name(request):
            return 421, "use the page by its address on this machine: 127.0.0.1 or localhost"
        if not self._is_known(request):
            return 401, (
                "the page needs its token: open the address that `kohort region ui` printed, or "
                "send it as `Authorization: Bearer TOKEN`"
            )
        if request.method != "GET" and not (_is_own(request) or self._has_header(request)):
            return 403, "changes must come from the page itself: the request has another Origin"
        return None

    def _is_known(self, request: Request) -> bool:
        if self._token is None or self._has_header(request):
            return True
        given = request.cookies.get(self._cookie_name, "")
        return equal(given, self._session) or self.is_first_load(request)

    def _has_header(self, request: Request) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return self._token is not None and kind == "Bearer" and equal(given, self._token)

    def is_first_load(self, request: Request) -> bool:
        """Whether the token is in the address, which only works for the page itself."""
        given = request.query_params.get("token", "")
        is_page = request.method == "GET" and request.url.path == "/"
        return self._token is not None and is_page and equal(given, self._token)

    def cookie(self) -> str:
        """Return the value of `Set-Cookie` that grants access to the page."""
        jar = SimpleCookie({self._cookie_name: self._session})
        morsel = jar[self._cookie_name]
        morsel["path"], morsel["samesite"], morsel["httponly"] = "/", "Strict", True
        return morsel.OutputString()


def _session_of(token: str, port: int) -> str:
    """Return the cookie's value: stable across restarts, and it does not reveal the token."""
    return hmac.new(token.encode(), f"kohort region ui {port}".encode(), "sha256").hexdigest()


def equal(given: str, right: str) -> bool:
    """Compare secrets in constant time."""
    return hmac.compare_digest(given.encode(), right.encode())


def _host_of(request: Request) -> str | None:
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname
    except ValueError:
        return None


def is_local_name(request: Request) -> bool:
    """Whether a request's host names this machine: foreign names must not point at it."""
    host = _host_of(request)
    return host is not None and is_loopback(host)


def _is_own(request: Request) -> bool:
    """Whether a request comes from a page of the same host."""
    origin = request.headers.get("origin", "")
    return bool(origin) and urlsplit(origin).netloc == request.headers.get("host", "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(host: str, file: Path | None) -> str | None:
    """Return the token for a page that listens on a host; None: it needs none.

    Args:
        host: The host.
        file: The file with the token; None: create a token if other machines can reach the host.

    Raises:
        ConfigError: The file cannot be read, or the token in it is too short.
    """
    if file is None:
        return None if is_loopback(host) else secrets.token_urlsafe(24)
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token cannot be read from {file}: {error}") from error
    if len(token) < _TOKEN_LENGTH_MIN:
        raise ConfigError(
            f"the token in {file} has {len(token)} characters and needs {_TOKEN_LENGTH_MIN}"
        )
    return token
