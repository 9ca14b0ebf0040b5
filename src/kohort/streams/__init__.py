"""Stateful stream tasks. Experimental: names and formats may change without notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.lazy import importer

if TYPE_CHECKING:
    from kohort.streams.app.api import App
    from kohort.streams.app.dsl import Stream, Table
    from kohort.streams.app.serdes import JSON, Serde
    from kohort.streams.app.windows import WindowedKey
    from kohort.streams.errors import BuildError, RecordFailedError, StateError, StreamsError
    from kohort.streams.settings import StreamSettings

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

if not TYPE_CHECKING:  # a checker reads the imports above, and reports other names
    __getattr__, __dir__ = importer(
        __name__,
        __all__,
        {
            "App": "kohort.streams.app.api",
            "StreamSettings": "kohort.streams.settings",
            "WindowedKey": "kohort.streams.app.windows",
        }
        | dict.fromkeys(["JSON", "Serde"], "kohort.streams.app.serdes")
        | dict.fromkeys(["Stream", "Table"], "kohort.streams.app.dsl")
        | dict.fromkeys(
            ["BuildError", "RecordFailedError", "StateError", "StreamsError"],
            "kohort.streams.errors",
        ),
    )
