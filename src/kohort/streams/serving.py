"""Answers queries of an application's stores over HTTP; needs the extra `ui`.

Clients may ask any instance: if it does not process the key's task, it redirects them to the owner,
whose address is in the control topic (like `application.server` of Kafka Streams).
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import urlencode

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kohort.errors import ConfigError
from kohort.region.ui.guard import equal, is_local_name, is_loopback, token_of
from kohort.streams.app.steps import AnySerde, Anything, Found, Storing
from kohort.streams.app.topology import Part
from kohort.streams.app.windows import AggregateWindows, WindowedKey
from kohort.streams.assignment.tasks import Task
from kohort.streams.errors import KeyElsewhereError, NoSuchStoreError, NotRunningError
from kohort.streams.runtime.holding import Role
from kohort.streams.settings import StreamSettings, address_of

_SENT_ON = "sent_on"
_END_S = 1
_KEY_CHARACTERS_MAX = 65_536


class Queried(Protocol):
    """The interface of an instance for the server; see `ProgramInstance`."""

    @property
    def member_id(self) -> str:
        """Member id assigned by the group."""

    @property
    def tasks(self) -> Mapping[Task, Role]:
        """Its tasks, with its role for each."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the program's stores."""

    def step_of(self, store: str) -> tuple[Part, Storing]:
        """Return the step that owns a store."""

    def find(self, store: str, key: object, *, stale: bool = False) -> Found:
        """Return the value of a key in a store."""


class QueryServer:
    """Answers `GET /` and `GET /stores/NAME?key=KEY` on the running event loop.

    Args:
        instance: The instance whose stores are read, and that knows the owners of other keys.
        settings: Its settings, with `query_listen`.

    Attributes:
        url: The address at which other hosts reach it.

    Raises:
        ConfigError: The server cannot listen on the address, or other machines can reach it and no
            token is set.
    """

    def __init__(self, instance: Queried, settings: StreamSettings) -> None:
        self._instance = instance
        host, port = address_of(settings.query_listen or "")
        self._token = _token(host, settings.query_token_file)
        self._socket = _listen(host, port)
        self.url = settings.query_url or _url(host, self._socket.getsockname()[1])
        routes = [Route("/", self._about), Route("/stores/{store:path}", self._store)]
        config = uvicorn.Config(
            Starlette(routes=routes),
            access_log=False,  # keys are the application's private data
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_END_S,
            ws="none",
            lifespan="off",
        )
        self._server = _Server(config)

    async def __aenter__(self) -> Self:
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        try:
            await self._serving
        finally:
            self._socket.close()

    async def _about(self, request: Request) -> Response:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        tasks = {str(task): role.name.lower() for task, role in self._instance.tasks.items()}
        stores = list(self._instance.stores)
        return _json(
            {"member": self._instance.member_id, "url": self.url, "stores": stores, "tasks": tasks}
        )

    async def _store(self, request: Request) -> Response:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        asked, store = request.query_params, request.path_params["store"]
        try:
            _, step = self._instance.step_of(store)
            key = _key_of(step, asked)
            found = self._instance.find(store, key, stale=_is_set(asked, "stale"))
            return _json(self._answer(step, store, found))
        except NoSuchStoreError as error:
            return _error(404, str(error))
        except _BadQuery as error:
            return _error(400, str(error))
        except NotRunningError as error:
            return _error(503, str(error))
        except KeyElsewhereError as error:
            return self._elsewhere(error, request)

    def _answer(self, step: Storing, store: str, found: Found) -> Mapping[str, object]:
        return {
            "store": store,
            **_shown(step.value, found.value),
            "task": str(found.task),
            "member": self._instance.member_id,
            "role": "owner" if found.is_owner else "follower",
            "lag": found.lag,
        }

    def _elsewhere(self, error: KeyElsewhereError, request: Request) -> Response:
        """Redirect to the owner, once: two outdated instances must not redirect to each other."""
        is_own = error.url == self.url
        if not error.url or is_own or _SENT_ON in request.query_params:
            return _error(503, f"{error}; retry soon")
        asked = urlencode([*request.query_params.multi_items(), (_SENT_ON, "true")])
        place = f"{error.url.rstrip('/')}{request.url.path}?{asked}"
        return _error(307, str(error), {"Location": place})

    def _refusal(self, request: Request) -> Response | None:
        if self._token is None:
            if is_local_name(request):
                return None
            return _error(421, "use the address on this machine: 127.0.0.1 or localhost")
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind == "Bearer" and equal(given, self._token):
            return None
        return _error(401, "send the token as `Authorization: Bearer TOKEN`")


class _BadQuery(ValueError):
    """A query is invalid."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the application: it commits before it ends."""
        yield


def _key_of(step: Storing, asked: Mapping[str, str]) -> object:
    """Return the key of a query; for a windowed store it includes a start time."""
    if not isinstance(step, AggregateWindows):
        return _plain_key(step.key, asked)
    start = asked.get("start_ms", "")
    if not start.isascii() or not start.isdigit() or len(start) > 18:
        raise _BadQuery(f"{step.name} has windows: give start_ms, milliseconds since the epoch")
    start_ms = int(start)
    return WindowedKey(_plain_key(step.inner, asked), start_ms, start_ms + step.span.size_ms)


def _plain_key(serde: AnySerde, asked: Mapping[str, str]) -> Anything:
    text, encoded = asked.get("key"), asked.get("key_base64")
    if (text is None) == (encoded is None):
        raise _BadQuery("give the key as `key=...`, or its bytes as `key_base64=...`")
    if len(text or encoded or "") > _KEY_CHARACTERS_MAX:
        raise _BadQuery(f"the key is longer than {_KEY_CHARACTERS_MAX} characters")
    try:
        if encoded is not None:
            return serde.deserialize(base64.b64decode(encoded, validate=True))
        key = _from_text(serde, text or "")
        serde.serialize(key)
    except _BadQuery:
        raise
    except Exception as error:
        raise _BadQuery(f"not a key of serde {serde.name}: {error}") from error
    return key


def _from_text(serde: AnySerde, text: str) -> Anything:
    if serde.name == "str":
        return text
    if serde.name == "int":
        return int(text)
    if serde.name == "bytes":
        return text.encode()
    if serde.name == "json":
        return serde.deserialize(text.encode())
    raise _BadQuery(f"serde {serde.name} has no text: give the bytes as `key_base64=...`")


def _shown(serde: AnySerde, value: object) -> Mapping[str, object]:
    """Return a value as JSON if possible, or else its stored bytes."""
    try:
        if not isinstance(value, bytes):
            return {"value": msgspec.Raw(msgspec.json.encode(value))}
    except (TypeError, ValueError, RecursionError):
        pass  # a value of the application's own type
    return {"value_base64": base64.b64encode(serde.serialize(value)).decode()}


def _is_set(asked: Mapping[str, str], name: str) -> bool:
    value = asked.get(name, "false")
    if value not in ("true", "false"):
        raise _BadQuery(f"{name}={value!r} is neither true nor false")
    return value == "true"


def _json(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(data) + b"\n",
        status,
        {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})},
        "application/json",
    )


def _error(status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    again = {"Retry-After": "1"} if status == 503 else {}
    return _json({"error": why}, status, {**again, **(headers or {})})


def _token(host: str, file: str | Path | None) -> str | None:
    if file is None and not is_loopback(host):
        raise ConfigError(
            f"query_listen: other machines can reach {host}: give query_token_file, a file"
            " with the token that queries must carry"
        )
    return token_of(host, None if file is None else Path(file))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"query_listen: cannot listen on {host}:{port}: {error.strerror or error}"
        ) from error


def _url(host: str, port: int) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104  # it is refused
        raise ConfigError(
            f"query_listen: other hosts cannot use the address {host}: give query_url, such as"
            f' "http://HOST:{port}"'
        )
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
