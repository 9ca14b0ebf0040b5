"""The consumer that a listener is handed in a simulation: what a listener may call, no more."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from kohort.errors import CommitFailedError, ErrorCode, LocalProtocolError
from kohort.group.member.events import RejoinAsked
from kohort.simulation.ledger import GROUP
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kohort.simulation.application import Application

_PATIENCE_MS = 60_000
_KEPT = 400
_SHOWN = 15


class CallLog:
    """What listeners were told, and what they called, by virtual time; the newest of it."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, str, str]] = deque(maxlen=_KEPT)

    def note(self, now: int, name: str, text: str) -> None:
        """Write down one call.

        Args:
            now: Virtual time in milliseconds.
            name: Whose it is.
            text: What was called.
        """
        self._lines.append((now, name, text))

    def shown(self, name: str | None = None) -> str:
        """Return the last lines, of one member or of all; empty when there are none."""
        chosen = [line for line in self._lines if name in (None, line[1])][-_SHOWN:]
        rows = [f"  {now:>10,} ms  {who}: {text}" for now, who, text in chosen]
        return "\n".join(["what listeners were told, and called, last:", *rows]) if rows else ""


class SimulatedConsumer:
    """The face of one member's consumer; calls are those of `kohort.Consumer`.

    They happen at the moment at which the listener is called: no time passes inside a listener. A
    `commit` is sent at once, and the listener counts as returned when it is answered; it raises
    what is known before: that the member is in no group any more, or is joining one.

    Args:
        application: Who uses the member.
        log: Where calls are written down.
    """

    def __init__(self, application: Application, log: CallLog) -> None:
        self._application = application
        self._client = application.client
        self._log = log
        self._open_commits = 0
        self._after_commits: Callable[[], None] | None = None

    # -------------------------------------------------------------------------- what it reads

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions this consumer reads."""
        return frozenset(self._application.believes)

    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._application.topics

    @property
    def member_id(self) -> str:
        """Its id in the group, empty when it has none."""
        return self._client.machine.member_id

    @property
    def generation_id(self) -> int:
        """Present generation or member epoch, -1 when it is in none."""
        return self._client.machine.generation_id

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:  # noqa: ARG002 - known at once here
        """Return the offset of the next record.

        Raises:
            LocalProtocolError: The partition is not assigned.
        """
        self._check(partition)
        known = self._application.positions.get(partition)
        return known if known is not None else max(self._committed(partition), 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in a partition.

        Raises:
            ValueError: The offset is negative.
            LocalProtocolError: The partition is not assigned.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        self._check(partition)
        self._note(f"seek({_shown([partition])}, {offset})")
        self._application.seek(partition, offset)
        client, ledger = self._client, self._client.world.ledger
        ledger.positions[client.name, client.life, partition] = offset
        ledger.reading(partition).is_clean = False  # what comes again then is wanted

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first record of these partitions, of all by default."""
        for partition in sorted(partitions or self.assignment()):
            self.seek(partition, 0)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go behind the last record of these partitions, of all by default."""
        for partition, offset in self.end_offsets(sorted(partitions or self.assignment())).items():
            self.seek(partition, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Do not hand out records of these partitions."""
        for partition in partitions:
            self._check(partition)
        self._note(f"pause({_shown(partitions)})")
        self._application.paused |= frozenset(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these partitions again."""
        for partition in partitions:
            self._check(partition)
        self._note(f"resume({_shown(partitions)})")
        self._application.paused -= frozenset(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the partitions that are paused."""
        return frozenset(self._application.paused)

    def beginning_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,  # noqa: ARG002 - known at once here
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return dict.fromkeys(partitions, 0)

    def end_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,  # noqa: ARG002 - known at once here
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return {each: self._client.world.topics.end(each) for each in partitions}

    # ------------------------------------------------------------------------------ commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Store positions with the group, by default those of all partitions.

        Raises:
            CommitFailedError: The partitions may belong to another member now.
            RebalanceInProgressError: Poll, then commit again.
        """
        self._open_commits += 1
        try:
            self._commit("commit", offsets, self._committed_one, timeout_ms)
        except BaseException:
            self._open_commits -= 1
            raise

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> Future[None]:
        """As `commit`, without waiting for the answer."""
        done: Future[None] = Future()
        try:
            self._commit("commit_async", offsets, partial(_end, done), None)
        except Exception as error:  # noqa: BLE001  # the future has it
            done.set_exception(error)
        return done

    def committed(
        self,
        *partitions: TopicPartition,
        timeout_ms: int | None = None,  # noqa: ARG002 - known at once here
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        found = {each: self._committed(each) for each in partitions}
        return {each: OffsetAndMetadata(offset) for each, offset in found.items() if offset >= 0}

    def _commit(
        self,
        call: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        done: Callable[[bool], None],
        timeout_ms: int | None,
    ) -> None:
        wanted = self._positions() if offsets is None else dict(offsets)
        self._note(f"{call}({_positions(wanted)})")
        if self._client.machine.generation_id < 0:
            raise CommitFailedError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                "the member is in no group any more: its partitions may belong to others",
            )
        if not wanted:
            done(True)
            return
        self._client.machine.commit_request(wanted)  # raises what the real one raises
        patience_ms = _PATIENCE_MS if timeout_ms is None else timeout_ms
        until = self._client.world.engine.now + patience_ms
        self._application.commit(wanted, partial(self._answered, done), until)

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        known = sorted(self._application.positions.items())
        return {each: OffsetAndMetadata(at) for each, at in known if at is not None}

    def _answered(self, done: Callable[[bool], None], stored: bool) -> None:
        self._note("the commit was stored" if stored else "the commit was refused")
        done(stored)

    def _committed_one(self, _stored: bool) -> None:
        self._open_commits -= 1
        if not self._open_commits and self._after_commits is not None:
            then, self._after_commits = self._after_commits, None
            then()

    def when_committed(self, then: Callable[[], None]) -> bool:
        """Have a function called once all commits are answered; False: they are."""
        if not self._open_commits:
            return False
        self._after_commits = then
        return True

    # ----------------------------------------------------------------------------- the group

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Have the group rebalance (KIP-568).

        Raises:
            LocalProtocolError: The coordinator alone decides when to (KIP-848).
        """
        if self._client.protocol.has_epochs:
            raise LocalProtocolError(
                "with group.protocol=consumer the coordinator alone decides when to rebalance"
            )
        self._note("enforce_rebalance()")
        self._client.ask(RejoinAsked(reason))

    def wakeup(self) -> None:
        """End the poll that waits; here each poll ends as soon as there is something."""

    # --------------------------------------------------------------- what a listener may not call

    def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> NoReturn:  # noqa: ARG002 - as that of the real one
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        self._refuse("poll")

    def poll_membership(self, timeout_ms: int = 0) -> NoReturn:  # noqa: ARG002 - as that of the real one
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        self._refuse("poll_membership")

    def unsubscribe(self) -> NoReturn:
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        self._refuse("unsubscribe")

    def close(self, timeout_s: float = 30.0) -> NoReturn:  # noqa: ARG002 - as that of the real one
        """Refused: it would wait for the listener.

        Raises:
            LocalProtocolError: Always.
        """
        self._refuse("close")

    def _refuse(self, call: str) -> NoReturn:
        raise LocalProtocolError(f"{call} was called inside a listener, whose return it waits for")

    def _check(self, partition: TopicPartition) -> None:
        if partition not in self._application.positions:
            raise LocalProtocolError(f"{_shown([partition])} is not assigned to this consumer")

    def _committed(self, partition: TopicPartition) -> int:
        return self._client.world.ledger.committed(GROUP, partition)

    def _note(self, text: str) -> None:
        self._log.note(self._client.world.engine.now, self._client.name, text)


def _end(done: Future[None], stored: bool) -> None:
    if stored:
        done.set_result(None)
    else:
        done.set_exception(CommitFailedError(ErrorCode.UNKNOWN_MEMBER_ID, "the commit was refused"))


def _shown(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))


def _positions(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    return ", ".join(f"{_shown([each])}: {at.offset}" for each, at in sorted(offsets.items()))


def call_text(method: str, partitions: Iterable[TopicPartition]) -> str:
    """Return a call of a listener as the log shows it."""
    return f"{method}({_shown(partitions)})"
