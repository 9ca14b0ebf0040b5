"""Commits tasks at least once: after a crash, uncommitted work is repeated, never lost.

The order is: the brokers acknowledge outputs and state changes; offsets are committed; the stores
are flushed; the checkpoint is written. Each step relies on the ones before. State that a crash
keeps from the disk is in the changelog; records whose offsets it keeps from the group are processed
again, on top of the changelog's state. So there is no wait between the acknowledgements and the
offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kohort.client import AsyncConsumer, AsyncProducer
from kohort.client.consumer.commits.requests import UNKNOWN
from kohort.client.producer.arrow.delivery import ArrowDelivery
from kohort.client.producer.delivery import RecordMetadata
from kohort.errors import (
    KafkaError,
    KohortError,
    PartialFailureError,
    RebalanceInProgressError,
)
from kohort.streams.errors import ChangelogTruncatedError, InputChangedError
from kohort.streams.runtime.holding import Held
from kohort.streams.runtime.interface import Pair
from kohort.streams.runtime.membership import is_session_over
from kohort.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("kohort.streams")

METADATA_MAX = 4_000
"""Maximum length of metadata at a committed offset (`offset.metadata.max.bytes` is 4096)."""
_AGAIN_S = 0.05

Failed = Callable[[Held, BaseException], None]


class Commits:
    """Sends the output of tasks, and commits them.

    Args:
        application: Name of the application.
        producer: Sends the output.
        consumer: The member that owns the tasks.
        failed: Called with a task whose records could not be sent; only this task fails.
    """

    def __init__(
        self, application: str, producer: AsyncProducer, consumer: AsyncConsumer, failed: Failed
    ) -> None:
        self._application = application
        self._producer = producer
        self._consumer = consumer
        self._failed = failed
        self._was_over = False

    async def send_outputs(self, held: Held) -> None:
        """Send the output of a task so far.

        Raises:
            KohortError: A record cannot be sent; the task must not be committed any more.
        """
        await _unless_failed(held, self._as_one(self._send_outputs, held))

    async def _as_one(self, send: Callable[[Held], Awaitable[None]], held: Held) -> None:
        """Send the output; the task is torn until the producer has everything. Skip torn tasks.

        A task cancelled halfway must not look as if it had nothing to send.
        """
        async with held.sending:
            if not held.is_torn:
                held.is_torn = True
                await send(held)
                held.is_torn = False

    async def _send_outputs(self, held: Held) -> None:
        outputs = held.work.outputs
        taken = outputs[:]
        outputs.clear()
        held.sent = [each for each in held.sent if not _is_delivered(each)]
        for topic, key, value, timestamp, headers in taken:
            time = timestamp if timestamp >= 0 else None
            sent = await self._producer.send(topic, value, key, headers=headers, timestamp_ms=time)
            held.sent.append(sent)

    async def commit(self, tasks: Iterable[Held], *, is_last: bool = False) -> list[Held]:
        """Commit the progress of tasks; none of them may process records meanwhile.

        Args:
            tasks: The tasks; failed and torn ones are left out.
            is_last: Whether the tasks are being given up, so that no later commit follows.

        Returns:
            The committed tasks. Without `is_last`, a rebalance during the commit leaves all tasks
            to the next commit. None are committed if the member's session has expired.

        Raises:
            CommitFailedError: The tasks may already belong to another member.
            KafkaError: The group cannot be reached.
        """
        if not self._may_write():
            return []
        sent = [each for each in tasks if await self._tried(self._send(each), each)]
        sent = [each for each in sent if not each.is_torn]
        flushing = asyncio.create_task(self._flush())
        try:
            await asyncio.sleep(0)  # let the task start
            stored = [each for each in sent if await self._tried(self._acknowledged(each), each)]
        finally:  # the flush may wait for records of failed tasks
            flushing.cancel()
            await asyncio.wait([flushing])
        offsets = {
            partition: OffsetAndMetadata(position, ends_as_text(each.changelog_ends))
            for each in stored
            for partition, position in each.positions.items()
        }
        refused = await self._commit_offsets(offsets, is_last)
        if refused is None:
            return []
        stored = [each for each in stored if not self._is_refused(each, refused)]
        for each in stored:
            each.is_dirty, each.committed = False, each.positions
        return [each for each in stored if await self._tried(self._keep(each), each)]

    def _may_write(self) -> bool:
        """Whether this member owns the changelogs: a late record would replace newer ones."""
        is_over = is_session_over(self._consumer)
        if is_over and not self._was_over:
            log.warning(
                "%s: the coordinator has not answered for session.timeout.ms, so tasks may have"
                " other owners; until it answers, nothing is committed or written to"
                " changelogs. If so, records since the last commit are processed again",
                self._application,
            )
        self._was_over = is_over
        return not is_over

    async def _tried(self, step: Coroutine[object, object, None], held: Held) -> bool:
        try:
            await step
        except Exception as error:  # noqa: BLE001  # the task fails alone
            self._failed(held, error)
            return False
        return True

    async def _send(self, held: Held) -> None:
        """Send outputs and changes, and remember their positions."""
        await held.is_idle.wait()  # a record is processed completely or not at all
        await _unless_failed(held, self._as_one(self._send_all, held))

    async def _send_all(self, held: Held) -> None:
        held.positions = dict(held.work.positions())
        for name, topic in held.work.changelogs.items():
            changes = held.work.stores[name].changes()
            if changes:
                table = changelog_table(changes, held.task.partition)
                held.sent_changes.append(await self._producer.send_arrow(topic, table))
        await self._send_outputs(held)

    async def _flush(self) -> None:
        """Send everything now; each record's future gets its result."""
        try:
            await self._producer.flush()
        except KohortError as error:
            log.debug("flush: %s", error)

    async def _acknowledged(self, held: Held) -> None:
        """Wait for the brokers, and record the ends of the changelogs."""
        # Removed only afterwards: a task's last commit may start while another commit waits.
        sent, changes = held.sent[:], held.sent_changes[:]
        every: list[asyncio.Future[Any]] = [*sent, *changes]
        waiting = [each for each in every if not each.done()]
        if waiting:
            # an awaited future would be cancelled together with the waiting task
            await _unless_failed(held, asyncio.wait(waiting))
        for output in sent:
            output.result()
        for change in changes:
            delivery = change.result()
            for number, rows in delivery.partitions.items():
                partition = TopicPartition(delivery.topic, number)
                _check_goes_on(self._application, held, partition, rows.last_offset)
                held.changelog_ends[partition] = rows.last_offset + 1
        held.sent = [each for each in held.sent if not _is_delivered(each)]
        held.sent_changes = [each for each in held.sent_changes if not _is_delivered(each)]

    async def _keep(self, held: Held) -> None:
        """Flush the state that the changelogs contain, then write the checkpoint."""
        for store in held.work.stores.values():
            store.flush()
        if held.directory is not None:
            held.directory.write_checkpoint(dict(held.changelog_ends))

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], is_last: bool
    ) -> Mapping[object, KafkaError] | None:
        """Return the partitions refused by the group; None if a rebalance interrupts the commit."""
        while offsets:
            try:
                await self._consumer.commit(offsets)
            except PartialFailureError as error:
                return error.errors
            except RebalanceInProgressError:
                if not is_last:
                    return None
                await asyncio.sleep(_AGAIN_S)
            else:
                break
        return {}

    def _is_refused(self, held: Held, refused: Mapping[object, KafkaError]) -> bool:
        errors = [refused[each] for each in sorted(held.positions) if each in refused]
        for error in errors[:1]:
            is_gone = error.code in UNKNOWN
            self._failed(held, input_changed(self._application, error) if is_gone else error)
        return bool(errors)


async def _unless_failed(held: Held, work: Coroutine[object, object, object]) -> None:
    """Await a task's work; abandon it if the task fails meanwhile.

    Raises:
        BaseException: The error of the task.
    """
    job, failing = asyncio.create_task(work), asyncio.create_task(held.has_failed.wait())
    try:
        await asyncio.wait([job, failing], return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            job.result()
        elif held.error is not None:
            raise held.error
    finally:
        job.cancel()
        failing.cancel()
        await asyncio.wait([job, failing])


def _check_goes_on(application: str, held: Held, partition: TopicPartition, offset: int) -> None:
    """Check that a changelog has not become shorter while this task wrote to it.

    Raises:
        ChangelogTruncatedError: It has become shorter.
    """
    end = held.changelog_ends.get(partition, 0)
    if offset < end:
        raise ChangelogTruncatedError(
            f"a change of state was written at offset {offset} of"
            f" {partition.topic}-{partition.partition}, which ended at {end} before: the topic was"
            " deleted and recreated or has lost its end, and changes of state are lost. Stop all"
            f" instances and reset the application: kohort streams reset {application}"
        )


def input_changed(application: str, error: KohortError) -> InputChangedError:
    """Return the error of a task whose input topic has changed."""
    changed = InputChangedError(
        f"{error}. The topic was deleted, recreated or truncated, so the positions of the"
        " task and of the group are not valid in it. To read it from its start without the old"
        " state, stop all instances and reset the application (kohort streams reset"
        f" {application}). An instance that is only restarted keeps the state, and continues at the"
        " committed offset if the topic has it, or else at its start"
    )
    changed.__cause__ = error
    return changed


def changelog_table(changes: Iterable[Pair], partition: int) -> pa.RecordBatch:
    """Return changes as rows for one partition of a changelog."""
    import pyarrow as pa

    keys, values = zip(*changes, strict=True)
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([partition] * len(keys), pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


def ends_as_text(ends: Mapping[TopicPartition, int]) -> str:
    """Return the ends of a task's changelogs as metadata of its committed offsets.

    Empty if that is too long; a truncated changelog is then noticed only after a release.
    """
    text = msgspec.json.encode({topic: end for (topic, _), end in sorted(ends.items())}).decode()
    return text if len(text) <= METADATA_MAX else ""


def ends_from_text(text: str, partition: int) -> dict[TopicPartition, int]:
    """Parse this metadata; return no ends if another client has committed."""
    try:
        found = msgspec.json.decode(text or "{}", type=dict[str, int])
    except msgspec.DecodeError:
        return {}
    return {TopicPartition(topic, partition): end for topic, end in found.items()}


def _is_delivered(future: asyncio.Future[RecordMetadata] | asyncio.Future[ArrowDelivery]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
