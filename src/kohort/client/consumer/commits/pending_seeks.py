"""Commits during an unfinished seek to the beginning or end: its position is still looked up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from kohort.client.admin.errors import as_kafka_error
from kohort.client.consumer.commits.committer import Offsets
from kohort.client.consumer.commits.offsets import shown
from kohort.client.consumer.core import ConsumerCore
from kohort.client.net.backoff import Deadline
from kohort.errors import KafkaError, KohortError, LocalProtocolError, PartialFailureError
from kohort.types import TopicPartition

FindPosition = Callable[[TopicPartition, Deadline], Awaitable[int]]


async def commit_positions(core: ConsumerCore, find: FindPosition, deadline: Deadline) -> None:
    """Commit the positions of all partitions, once unfinished seeks are done.

    Args:
        core: The consumer's core.
        find: Waits for the position of a partition.
        deadline: When to give up.

    Raises:
        PartialFailureError: Positions were not found in time, or partitions do not exist or are
            refused; the others are stored.
        KafkaError: See `Committer.commit`.
    """
    sought = core.partitions.sought()
    errors: dict[object, KafkaError] = {}
    await _commit(core, core.commit_positions(), deadline, errors)  # known positions need not wait
    if sought:
        errors.update(await _find_each(core, find, sought, deadline))
        found = core.partitions.consumed(each for each in sought if each not in errors)
        await _commit(core, found, deadline, errors)
    if errors:
        raise PartialFailureError(errors)


async def _commit(
    core: ConsumerCore, offsets: Offsets, deadline: Deadline, errors: dict[object, KafkaError]
) -> None:
    try:
        await core.commit(offsets, deadline)
    except PartialFailureError as error:
        errors.update(error.errors)


async def _find_each(
    core: ConsumerCore,
    find: FindPosition,
    sought: Collection[TopicPartition],
    deadline: Deadline,
) -> dict[object, KafkaError]:
    """Wait for positions; return errors of those not found, except for revoked partitions."""
    errors: dict[object, KafkaError] = {}
    for partition in sought:
        try:
            await find(partition, deadline.beside())
        except LocalProtocolError:
            continue
        except KohortError as error:
            errors[partition] = _without_position(core, partition, as_kafka_error(error))
    return errors


def _without_position(core: ConsumerCore, partition: TopicPartition, why: KafkaError) -> KafkaError:
    group = core.config.group_id
    text = f"the commit to group {group}: {shown(partition)} has no position after its seek: "
    error = KafkaError(why.code, text + why.message)
    error.__cause__ = why
    return error
