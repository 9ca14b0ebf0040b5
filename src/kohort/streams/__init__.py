"""Stateful stream tasks. Experimental: names and formats may change without notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.streams.app import App
    from kohort.streams.dsl import Stream, Table
    from kohort.streams.errors import BuildError, RecordFailedError, StateError, StreamsError
    from kohort.streams.serdes import JSON, Serde
    from kohort.streams.settings import StreamSettings
    from kohort.streams.windows import WindowedKey

__all__ = [
    "App",
    "JSON",
    "Serde",
    "Stream",
    "StreamSettings",
    "Table",
    "WindowedKey",
    # errors
    "BuildError",
    "RecordFailedError",
    "StateError",
    "StreamsError",
]

__getattr__ = importer(
    __name__,
    {
        "App": "kohort.streams.app",
        "StreamSettings": "kohort.streams.settings",
        "WindowedKey": "kohort.streams.windows",
    }
    | dict.fromkeys(["JSON", "Serde"], "kohort.streams.serdes")
    | dict.fromkeys(["Stream", "Table"], "kohort.streams.dsl")
    | dict.fromkeys(
        ["BuildError", "RecordFailedError", "StateError", "StreamsError"], "kohort.streams.errors"
    ),
)
