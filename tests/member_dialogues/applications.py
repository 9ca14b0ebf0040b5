"""Applications that use a consumer, whosever it is: what they are told to do, and what they say.

A host runs many of them, each with a thread of its own. A command names in `do` what its consumer
is to do. An event is what an application `says` of itself (a line of the answer), how it is now,
that it is `done` with a command, or how it `failed` in one.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, Self, cast

from tests.real_kafka.broker import FAST_START, KAFKA_LIBS
from tests.system.kafka.assignors.driver import tool

SOURCE = Path(__file__).with_name("Members.java")
END_S = 20.0

Command = Mapping[str, object]
Event = Mapping[str, object]
Hear = Callable[[Event], None]


class Host(Protocol):
    """Runs applications."""

    def listen(self, name: str, hear: Hear) -> None:
        """Have an application of this name; `hear` is called with its events, in any thread."""

    def tell(self, name: str, command: Command) -> None:
        """Have an application do something."""


class JavaHost:
    """Applications with Kafka's own KafkaConsumer, in one Java process (Members.java)."""

    def __init__(self, servers: str, folder: Path) -> None:
        """Compile it; needs a JDK.

        Args:
            servers: Where the broker listens.
            folder: Where the classes go.
        """
        folder.mkdir(parents=True, exist_ok=True)
        libraries = f"{KAFKA_LIBS}/*"
        subprocess.run([tool("javac"), "-cp", libraries, "-d", folder, SOURCE], check=True)
        self._command = [
            *(tool("java"), *FAST_START, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"),
            *("-cp", f"{folder}:{libraries}", "Members", servers),
        ]
        self._hears: dict[str, Hear] = {}
        self._writing = threading.Lock()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(END_S)
        self._reader.join(END_S)

    def listen(self, name: str, hear: Hear) -> None:
        """See `Host`."""
        self._hears[name] = hear

    def tell(self, name: str, command: Command) -> None:
        """See `Host`."""
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(json.dumps({**command, "to": name}) + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith("}\n"):  # a kill may cut the last one
                    event = cast("dict[str, object]", json.loads(line))
                    self._hears[str(event.pop("from"))](event)
