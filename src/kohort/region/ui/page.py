"""Serves the page of a region with Starlette and uvicorn."""

from __future__ import annotations

import asyncio
import html
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from kohort.errors import ConfigError, KohortError
from kohort.region.inspecting import RegionWaitError, ask
from kohort.region.machines.records import DRAIN, RESET
from kohort.region.prometheus import ViewCollector, registry_of
from kohort.region.settings import ClientSettings
from kohort.region.ui.guard import Guard
from kohort.region.ui.view import Watch

# Changes within this time are sent together; a comment keeps an idle stream alive.
_TOGETHER_S = 0.2
_SILENCE_S = 15.0
_END_S = 1
_LOOK_S = 0.1

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# Files that are the same for every region need no token.
_FILES = {"/page.css": "text/css", "/page.js": "text/javascript"}


class Page:
    """The page of one region.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        guard: Decides which requests are allowed.
        timeout_s: Timeout of a requested drain or reset, in seconds.
    """

    def __init__(
        self, region: str, settings: ClientSettings, guard: Guard, timeout_s: float = 60.0
    ) -> None:
        self._watch = Watch(region, settings)
        self._guard = guard
        self._timeout_s = timeout_s
        self._is_over = False
        routes = [
            Route("/", self._guarded(self._page)),
            Route("/events", self._guarded(self._events)),
            Route("/metrics", self._guarded(self._metrics)),
            Route("/drain", self._guarded(self._drain), methods=["POST"]),
            Route("/reset", self._guarded(self._reset), methods=["POST"]),
            *(Route(path, _file) for path in _FILES),
        ]
        self.app = Starlette(routes=routes, lifespan=self._lifespan)

    def end(self) -> None:
        """End the streams of open pages, which otherwise continue forever."""
        self._is_over = True
        self._watch.tell()

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(self._watch.run())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _guarded(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            refused = self._guard.refusal(request)
            if refused is None:
                response = await answer(request)
            else:
                status, why = refused
                response = PlainTextResponse(f"{why}\n", status)
            response.headers.update(_HEADERS)
            return response

        return guarded

    # ------------------------------------------------------------------------------------- showing

    async def _page(self, request: Request) -> Response:
        text = _read("/page.html").replace("{region}", html.escape(self._watch.region))
        status = 503 if self._watch.error else 200
        response = Response(text, status, media_type="text/html; charset=utf-8")
        if self._guard.is_first_load(request):
            response.headers["Set-Cookie"] = self._guard.cookie()
        return response

    async def _metrics(self, request: Request) -> Response:
        from prometheus_client.exposition import choose_encoder

        registry = registry_of(ViewCollector(self._watch.view()))
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": kind})

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        watch, timeline, seen = self._watch, None, 0
        while not self._is_over:
            change = watch.change  # first, so that no change is missed
            is_fresh = watch.timeline is not timeline
            if is_fresh:
                timeline, seen = watch.timeline, 0
            yield _event("view", watch.view())
            happenings = [each.as_dict() for each in watch.timeline.since(seen)]
            seen = watch.timeline.version
            if is_fresh or happenings:
                yield _event("timeline", {"fresh": is_fresh, "happenings": happenings})
            try:
                async with asyncio.timeout(_SILENCE_S):
                    await change.wait()
                await asyncio.sleep(_TOGETHER_S)
            except TimeoutError:
                yield ": still here\n\n"

    # -------------------------------------------------------------------------------------- asking

    async def _drain(self, _: Request) -> Response:
        return await self._ask(DRAIN, force=False)

    async def _reset(self, request: Request) -> Response:
        return await self._ask(RESET, force=request.query_params.get("force") == "true")

    async def _ask(self, what: str, *, force: bool) -> Response:
        watch = self._watch
        refused = watch.refusal()
        if refused:
            return JSONResponse({"error": refused}, 409)
        watch.running = what
        watch.tell()
        try:
            why = "asked for on the web page"
            timeout_s = self._timeout_s
            state = await ask(
                watch.region, watch.settings, what, force=force, why=why, timeout_s=timeout_s
            )
        except KohortError as error:
            status = 504 if isinstance(error, RegionWaitError) else 502
            return JSONResponse({"error": str(error)}, status)
        finally:
            watch.running = ""
            watch.tell()
        if what == DRAIN:
            return JSONResponse({"done": f"Checkpoint {state.completed} is complete."})
        done = f"Attempt {state.attempt} continues from checkpoint {state.completed}."
        return JSONResponse({"done": done})


def _event(name: str, data: Mapping[str, object]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _read(path: str) -> str:
    return (files("kohort.region.ui") / path.lstrip("/")).read_text(encoding="utf-8")


async def _file(request: Request) -> Response:
    path = request.url.path
    return Response(_read(path), media_type=_FILES[path], headers=_HEADERS)


class Serving:
    """Serves a page over HTTP.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        host: Address to listen on.
        port: Port to listen on; 0: a free port.
        token: The token that opens the page; None: no token is needed.

    Raises:
        ConfigError: The address cannot be listened on.
    """

    def __init__(
        self, region: str, settings: ClientSettings, host: str, port: int, token: str | None
    ) -> None:
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        asked = "" if token is None else f"?token={quote(token, safe='')}"
        self.address = f"http://{shown}:{self.port}/{asked}"
        self._page = Page(region, settings, Guard(token, self.port))
        # Do not log requests: the first one contains the token.
        config = uvicorn.Config(
            self._page.app,
            access_log=False,
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_END_S,
            ws="none",
        )
        self._server = uvicorn.Server(config)

    async def run(self) -> None:
        """Serve until `stop` is called or a signal arrives."""
        ending = asyncio.create_task(self._end_streams())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            ending.cancel()
            self._socket.close()

    async def _end_streams(self) -> None:
        """End the streams once the server should stop, which only a flag shows."""
        while not self._server.should_exit:  # noqa: ASYNC110  # it sets no event
            await asyncio.sleep(_LOOK_S)
        self._page.end()

    def stop(self) -> None:
        """Make `run` return soon; may be called from any thread."""
        self._server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"the page cannot listen on {host}:{port}: {error.strerror}") from error
