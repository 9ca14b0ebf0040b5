"The fixtures of `tests/client`."

from __future__ import annotations

from tests.client.conftest import bootstrap, topic

__all__ = ["bootstrap", "topic"]
