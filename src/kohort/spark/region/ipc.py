"""Communication between the sink of a query in a region and the process of its source.

Both have access to the source's directory (`control.py`). The source writes a file there for the
open batch, with the states of its partitions. The sink called for the batch finds it, writes the
results of its tasks, and waits until the source answers whether they count.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from kohort.region.errors import RegionQueryError
from kohort.spark.checkpoint.manifest import Manifest
from kohort.spark.completion.control import sources_in, why_not_drained, write_whole
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.region.sinks.sink import TaskFile

log = logging.getLogger("kohort.spark")

_OFFER = "offer-"
_HANDED = "handed-"
_ANSWER = "answer-"
_ENDED = "ended"
_POLL_S = 0.01
_LOOK_S = 0.5
_WATCH_S = 0.2

States = Mapping[TopicPartition, bytes]


class HandOver(Struct, frozen=True):
    """The sink's results for a batch.

    Attributes:
        files: Durable files of the tasks.
        states: The states of partitions after the batch, if it changed them.
        sink: The pickled sink; only with the first batch of a run.
        keeps_state: Whether there is a function, which needs the states of its partitions.
    """

    files: Sequence[TaskFile] = ()
    states: States = field(default_factory=dict)
    sink: bytes = b""
    keeps_state: bool = False

    def to_json(self) -> str:
        """Return the results as text."""
        return json.dumps(
            {
                "files": list(self.files),
                "states": _listed(self.states),
                "sink": b64encode(self.sink).decode(),
                "keeps_state": self.keeps_state,
            }
        )

    @staticmethod
    def from_json(text: str) -> HandOver:
        """Parse a text written by `to_json`."""
        read = json.loads(text)
        states, sink = _states(read["states"]), b64decode(read["sink"])
        return HandOver(read["files"], states, sink, read["keeps_state"])


class Channel:
    """The source's end.

    Args:
        directory: The source's directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def offer(self, batch: Manifest, states: States) -> None:
        """Announce an open batch."""
        write_whole(self._directory / f"{_OFFER}{_key(batch)}", json.dumps(_listed(states)))

    def withdraw(self, batch: Manifest) -> None:
        """Announce that the batch is no longer open."""
        (self._directory / f"{_OFFER}{_key(batch)}").unlink(missing_ok=True)

    def handed(self) -> Iterator[tuple[str, HandOver]]:
        """Yield the results handed over, with their batches; each must be answered."""
        with suppress(FileNotFoundError):
            for each in self._directory.glob(f"{_HANDED}*"):
                yield each.name.removeprefix(_HANDED), HandOver.from_json(each.read_text())

    def answer(self, key: str, *, counts: bool) -> None:
        """Answer whether results count."""
        for each in self._directory.glob(f"{_ANSWER}*"):
            each.unlink(missing_ok=True)
        (self._directory / f"{_HANDED}{key}").unlink(missing_ok=True)
        write_whole(self._directory / f"{_ANSWER}{key}", json.dumps(counts))

    def end(self) -> None:
        """Announce that the operator has stopped cleanly, so that the query stops as well."""
        write_whole(self._directory / _ENDED, "")

    @staticmethod
    def is_of(key: str, batch: Manifest | None) -> bool:
        """Whether results were handed over for this batch."""
        return batch is not None and key == _key(batch)


class OpenBatch:
    """The sink's end: the open batch of a source.

    Args:
        source: The source's directory.
        batch: The batch.
    """

    def __init__(self, source: Path, batch: Manifest) -> None:
        self._source = source
        self._key = _key(batch)
        self._batch = batch

    @staticmethod
    def find(application: Path, batch: Manifest) -> OpenBatch | None:
        """Return the batch; None if no source of the application has it open.

        Args:
            application: The directory of the application's sources.
            batch: The batch that Spark runs.
        """
        for source in sources_in(application):
            if (source / f"{_OFFER}{_key(batch)}").exists():
                # A killed process leaves its files behind, and Spark repeats the batch in the next
                # run.
                reason = why_not_drained(source)
                is_gone = reason is not None and reason.is_final
                return None if is_gone else OpenBatch(source, batch)
        return None

    @property
    def operator(self) -> str:
        """The name of the operator that offers it."""
        return self._batch.operator

    @property
    def source(self) -> Path:
        """The source's directory."""
        return self._source

    def states(self) -> dict[TopicPartition, bytes]:
        """Return the states of the batch's partitions; none if it is no longer open."""
        with suppress(FileNotFoundError):
            return _states(json.loads((self._source / f"{_OFFER}{self._key}").read_text()))
        return {}

    def hand_over(self, made: HandOver) -> bool:
        """Hand over the results, and return whether they count.

        Raises:
            RegionQueryError: The source's process ended before it answered. The results may count,
                so none of them may be removed.
        """
        if not self._source.exists():
            return False
        write_whole(self._source / f"{_HANDED}{self._key}", made.to_json())
        answer = self._source / f"{_ANSWER}{self._key}"
        look_at = time.monotonic() + _LOOK_S
        while not answer.exists():
            if time.monotonic() > look_at:
                self._check_source()
                look_at += _LOOK_S
            time.sleep(_POLL_S)
        return bool(json.loads(answer.read_text()))

    def _check_source(self) -> None:
        reason = why_not_drained(self._source)
        if (reason is not None and reason.is_final) or not self._source.exists():
            raise RegionQueryError(
                f"operator {self._batch.operator} of region {self._batch.region} ended before it "
                f"took batch {self._batch.batch} over ({reason.why if reason else 'it has left'}). "
                "Restart the query: the region continues after its last checkpoint"
            )


def watch_end(source: Path, stop: Callable[[], object], operator: str) -> None:
    """Stop a query once its operator has stopped cleanly: a source cannot stop its own query.

    Args:
        source: The source's directory; if it is gone, the query has already ended.
        stop: Stops the query.
        operator: The operator's name, for the log.
    """

    def watch() -> None:
        while source.exists():
            if (source / _ENDED).exists():
                log.info("operator %s has ended with a last checkpoint: its query stops", operator)
                try:
                    stop()
                except Exception:  # a Spark error, which a thread cannot raise
                    log.exception(
                        "the query of operator %s cannot be stopped, and reads nothing more: stop "
                        "it by query.stop()", operator,
                    )  # fmt: skip
                return
            time.sleep(_WATCH_S)

    threading.Thread(target=watch, name="kohort-region-end", daemon=True).start()


def _key(batch: Manifest) -> str:
    return f"{batch.nonce}-{batch.epoch}-{batch.batch}"


def _listed(states: States) -> list[tuple[str, int, str]]:
    return [(*place, b64encode(state).decode()) for place, state in states.items()]


def _states(listed: Sequence[tuple[str, int, str]]) -> dict[TopicPartition, bytes]:
    return {TopicPartition(topic, number): b64decode(state) for topic, number, state in listed}
