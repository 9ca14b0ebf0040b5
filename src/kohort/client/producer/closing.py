"""Shutdown of a producer, with or without `close`."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.producer.callback_records import CallbackRecords
from kohort.client.producer.sender import Sender
from kohort.errors import RequestTimedOutError

if TYPE_CHECKING:
    from kohort.client.producer.transactions.calls import Transactions

log = logging.getLogger("kohort.client")

# How long connections may take to close, in seconds.
CLOSING_S = 2.0


async def flush(
    sender: Sender, records: CallbackRecords | None, deadline: Deadline, timeout_s: float | None
) -> None:
    """Send all records, including those from delivery callbacks, and wait for their outcome.

    Args:
        sender: Sends the records.
        records: Records that callbacks have sent.
        deadline: When to give up.
        timeout_s: The caller's timeout, for the error message.

    Raises:
        RequestTimedOutError: It timed out.
    """
    if records is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.left_s()):
                await records.passed_on()
    await sender.flush(deadline, timeout_s)
    if records is not None and records.count and deadline.over:
        raise RequestTimedOutError(
            f"{records.count} records from delivery callbacks still wait for metadata or"
            f" memory after {timeout_s or 0:g} s"
        )


async def close(
    sender: Sender | None,
    records: CallbackRecords | None,
    cluster: Cluster,
    timeout_s: float | None,
) -> None:
    """Send all records, then close the connections; records not acknowledged in time fail."""
    deadline = deadline_of(timeout_s)
    if sender is not None and records is not None:
        sender.refuse()
        why = await _finish(sender, records, deadline, timeout_s)
        await sender.close(why)
        await records.close()
    left_s = deadline.left_s()
    await cluster.close(CLOSING_S if left_s is None else min(CLOSING_S, left_s))


async def _finish(
    sender: Sender, records: CallbackRecords, deadline: Deadline, timeout_s: float | None
) -> RequestTimedOutError | None:
    """Send all records, including those that delivery callbacks send meanwhile.

    Returns:
        The error for records that are left when time is up; None if there are none.
    """
    try:
        while sender.batches.fatal is None and (records.count or sender.undone()):
            await flush(sender, records, deadline, timeout_s)
    except RequestTimedOutError as error:
        log.warning("the producer is closed although %s", error.message)
        return error
    return None


def deadline_of(timeout_s: float | None) -> Deadline:
    """Return the deadline for a timeout in seconds; None for no limit."""
    return Deadline(None if timeout_s is None else timeout_s * 1000)


async def close_alone(
    sender: Sender,
    records: CallbackRecords | None,
    cluster: Cluster,
    timeout_s: float,
    transactions: Transactions | None,
) -> None:
    """Send all records; log those that cannot be sent, because no caller reads the futures.

    An open transaction is aborted instead.
    """
    sender.is_alone = transactions is None
    if transactions is not None:
        sender.refuse()
        deadline = deadline_of(timeout_s)
        await transactions.wind_up(deadline)
        timeout_s = deadline.left_s() or 0.0
    await close(sender, records, cluster, timeout_s)
