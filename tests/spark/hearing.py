"""A source without Kafka that writes down what it is told of its batches."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from kohort.spark.completion.control import BatchDone, Control

# A word that has not come by then is not coming: it takes a second or two on a busy machine.
PATIENCE_S = 120


class HearingSource(DataSource):
    """Offers `batches` batches of one row; `file` gets a line for each word about them."""

    @classmethod
    def name(cls) -> str:
        return "hearing"

    def schema(self) -> str:
        return "batch int"

    def reader(self, schema: Any) -> DataSourceReader:
        raise NotImplementedError

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return HearingReader(dict(self.options))


class HearingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Numbers its batches from 1. Spark makes copies of it, so its constructor does nothing."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._ear: Ear | None = None

    @property
    def ear(self) -> Ear:
        if self._ear is None:
            self._ear = Ear(Path(self._options["file"]), Path(self._options["checkpoint"]))
        return self._ear

    def initialOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name
        return self._manifest(0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, object]:  # noqa: N802  # Spark's name
        number = start["topics"]["t"]["0"][1]
        if number == int(self._options["batches"]):
            return start
        return self.ear.expect(self._manifest(number + 1))

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802  # Spark's name
        ends = {"t": {"0": int(self._options["batches"])}}
        return {"topics": ends, "control": str(self.ear.control.directory)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.ear.expect(end)
        return [InputPartition(end["topics"]["t"]["0"][1])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def stop(self) -> None:
        if self._ear is not None:
            self._ear.wait_for_all()

    def _manifest(self, number: int) -> dict[str, object]:
        ranges = {"t": {"0": [max(number - 1, 0), number]}}
        return {"epoch": 1, "nonce": self._options["nonce"], "operator": "h", "topics": ranges}


class Ear:
    """Writes down each word about a batch that was given out, in a thread."""

    def __init__(self, file: Path, checkpoint: Path) -> None:
        self.control = Control()
        self._file = file
        self._checkpoint = checkpoint
        self._given: list[dict[str, object]] = []
        self._heard: list[dict[str, object]] = []
        self._changed = threading.Condition()
        signal.signal(signal.SIGTERM, _end)
        threading.Thread(target=self._write_down, daemon=True).start()

    def expect(self, manifest: dict[str, object]) -> dict[str, object]:
        with self._changed:
            if manifest not in self._given:
                self._given.append(manifest)
        return manifest

    def wait_for_all(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while len(self._heard) < len(self._given) and time.monotonic() < deadline:
                self._changed.wait(0.1)

    def _write_down(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(0.02)
                for end in self._given:
                    word = None if end in self._heard else self.control.done_of(end)
                    if word is not None:
                        self._note(word)
                        self._heard.append(end)
                        self._changed.notify_all()

    def _note(self, word: BatchDone) -> None:
        line = {
            "batch": word.batch_id,
            "is_stateful": word.is_stateful,
            "has_listener": self.control.has_listener,
            "was_committed": (self._checkpoint / "commits" / str(word.batch_id)).exists(),
        }
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _end(_signal: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)
