"""Kafka's verifiable clients: Java programs that say as lines of JSON what happens to them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from tests.real_kafka.broker import java_command

DEADLINE_S = 60.0

Seen = tuple[int, int]  # partition and offset


class Tool:
    """One of them, running.

    Attributes:
        events: what it said so far.
    """

    def __init__(self, news: threading.Condition, name: str, *arguments: str) -> None:
        """Start it; `news` is notified of each event."""
        self.events: list[dict[str, Any]] = []
        self._news = news
        self._process = subprocess.Popen(
            java_command(f"org.apache.kafka.tools.{name}", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{") and line.endswith("}\n"):  # a kill may cut the last one
                    with self._news:
                        self.note(json.loads(line))
                        self._news.notify_all()

    def note(self, event: dict[str, Any]) -> None:
        """Learn from an event."""
        self.events.append(event)

    def end(self, how: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        self._process.send_signal(how)
        self.join()

    def join(self) -> None:
        """Wait for the end."""
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)

    def named(self, name: str) -> list[dict[str, Any]]:
        """Its events of one name."""
        return [event for event in self.events if event["name"] == name]


class JavaMember(Tool):
    """A VerifiableConsumer: it commits each batch of records after it said what was in it.

    Attributes:
        owned: the partitions it has.
        seen: the records it was given.
        committed: the last offset that it stored of each partition.
        uncommitted: what it was given and did not commit at once: another member may be given
            that, too.
        errors: why commits failed.
    """

    def __init__(self, news: threading.Condition, *arguments: str) -> None:
        """Start it; `news` is notified of each event."""
        self.owned: set[int] = set()
        self.seen: Counter[Seen] = Counter()
        self.committed: dict[int, int] = {}
        self.uncommitted: set[Seen] = set()
        self.errors: list[str] = []
        self._batch: set[Seen] = set()
        super().__init__(news, "VerifiableConsumer", *arguments)

    def note(self, event: dict[str, Any]) -> None:
        """Learn from an event."""
        super().note(event)
        match event["name"]:
            case "partitions_assigned":
                self.owned |= {each["partition"] for each in event["partitions"]}
            case "partitions_revoked":
                self.owned -= {each["partition"] for each in event["partitions"]}
            case "record_data":
                record = event["partition"], event["offset"]
                self.seen[record] += 1
                self._batch.add(record)
                self.uncommitted.add(record)
            case "offsets_committed":
                self._committed(event)

    def _committed(self, event: dict[str, Any]) -> None:
        if event["success"]:
            self.committed |= {each["partition"]: each["offset"] for each in event["offsets"]}
            self.uncommitted -= self._batch
        else:
            self.errors.append(event["error"])
        self._batch.clear()


class JavaGroup:
    """Three members of one group at first; those that end stay in `members`."""

    def __init__(self, news: threading.Condition, group: str, arguments: Sequence[str]) -> None:
        """Start them."""
        self.group = group
        self._news = news
        self._arguments = [*arguments, "--group-id", group, "--verbose"]
        self.members = [self._start() for _ in range(3)]

    def _start(self) -> JavaMember:
        return JavaMember(self._news, *self._arguments)

    def end(self, how: signal.Signals) -> None:
        """End all members."""
        for member in self.members:
            member.end(how)

    @property
    def seen(self) -> Counter[Seen]:
        """What all members were given."""
        return sum((each.seen for each in self.members), Counter[Seen]())

    @property
    def _given(self) -> int:
        return sum(len(each.seen) for each in self.members)

    @property
    def committed(self) -> dict[int, int]:
        """The last offset stored of each partition, by whomever."""
        last: dict[int, int] = {}
        for member in self.members:
            for number, offset in member.committed.items():
                last[number] = max(offset, last.get(number, 0))
        return last

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, looking again after each event."""
        with self._news:
            assert self._news.wait_for(condition, DEADLINE_S), f"{self.group}: {what}"

    def until_shared(self, members: Sequence[JavaMember], partitions: int) -> None:
        """Wait until these have every partition, each once and everybody some."""

        def shared() -> bool:
            owned = [each.owned for each in members]
            together = sorted(number for each in owned for number in each)
            return together == list(range(partitions)) and all(owned)

        self.until(shared, f"{len(members)} members share {partitions} partitions")

    def until_seen(self, count: int) -> None:
        """Wait until the members were given so many different records."""
        # the sum costs little and the union much: this is asked again after every record
        self.until(
            lambda: self._given >= count and len(self.seen) >= count, f"{count} different records"
        )
