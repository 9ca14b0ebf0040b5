"""A SASL listener that accepts any token, and answers nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kohort.wire.codec import frame as frames
from kohort.wire.codec.schema import Message
from kohort.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_SERVED = ApiVersionsResponse(
    error_code=0,
    api_keys=tuple(ApiVersion(api_key=key, min_version=0, max_version=1) for key in (12, 17, 36)),
)
_KINDS = {17: SaslHandshakeRequest, 36: SaslAuthenticateRequest, 18: ApiVersionsRequest}


@asynccontextmanager
async def taking_tokens(session_ms: int = 0) -> AsyncIterator[int]:
    """Serve on loopback, and yield the port.

    Args:
        session_ms: Length of a session in milliseconds; 0 for no limit.
    """
    answers: dict[type[Message], Message] = {
        ApiVersionsRequest: _SERVED,
        SaslHandshakeRequest: SaslHandshakeResponse(error_code=0, mechanisms=()),
        SaslAuthenticateRequest: SaslAuthenticateResponse(
            error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=session_ms
        ),
    }

    open_ones: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)
        while size := await _read(reader, 4):
            frame = await _read(reader, int.from_bytes(size, "big"))
            if int.from_bytes(frame[:2], "big") in _KINDS:
                asked = frames.decode_request(memoryview(frame))
                answer = answers[type(asked.message)]
                writer.write(frames.encode_response(answer, asked.version, asked.correlation_id))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in open_ones:
            each.close()
        await asyncio.gather(*(each.wait_closed() for each in open_ones), return_exceptions=True)


async def _read(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
