"The fixtures of `tests/streams`."

from __future__ import annotations

from tests.streams.conftest import embedded, servers

__all__ = ["embedded", "servers"]
