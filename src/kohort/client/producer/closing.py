"""How a producer ends: by `close`, or without it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from kohort.client.net.backoff import Deadline
from kohort.client.net.cluster import Cluster
from kohort.client.producer.late_records import LateRecords
from kohort.client.producer.sender import Sender
from kohort.errors import RequestTimedOutError

if TYPE_CHECKING:
    from kohort.client.producer.transactions.calls import Transactions

log = logging.getLogger("kohort.client")

# How long connections may take to close.
CLOSING_S = 2.0


async def flush(
    sender: Sender, late: LateRecords | None, deadline: Deadline, timeout_s: float | None
) -> None:
    """Send what is there, with what callbacks of deliveries have sent, and wait for its fate.

    Args:
        sender: Sends it.
        late: What callbacks have sent.
        deadline: Until when.
        timeout_s: What the caller gave, for the text of the error.

    Raises:
        RequestTimedOutError: It took longer.
    """
    if late is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline.left_s()):
                await late.passed_on()
    await sender.flush(deadline, timeout_s)
    if late is not None and late.count and deadline.over:
        raise RequestTimedOutError(
            f"{late.count} records that callbacks of deliveries sent still wait for metadata or"
            f" memory after {timeout_s or 0:g} s"
        )


async def close(
    sender: Sender | None, late: LateRecords | None, cluster: Cluster, timeout_s: float | None
) -> None:
    """Send what is there, then close the connections; unacknowledged records fail in time."""
    deadline = deadline_of(timeout_s)
    if sender is not None and late is not None:
        sender.refuse()
        why = await _finish(sender, late, deadline, timeout_s)
        await sender.close(why)
        await late.close()
    left_s = deadline.left_s()
    await cluster.close(CLOSING_S if left_s is None else min(CLOSING_S, left_s))


async def _finish(
    sender: Sender, late: LateRecords, deadline: Deadline, timeout_s: float | None
) -> RequestTimedOutError | None:
    """Send what is there, and what callbacks of deliveries send meanwhile.

    Returns:
        What is left when the time is over; None when nothing is.
    """
    try:
        while sender.batches.fatal is None and (late.count or sender.undone()):
            await flush(sender, late, deadline, timeout_s)
    except RequestTimedOutError as error:
        log.warning("the producer is closed although %s", error.message)
        return error
    return None


def deadline_of(timeout_s: float | None) -> Deadline:
    """Return the end of so many seconds; None for no end."""
    return Deadline(None if timeout_s is None else timeout_s * 1000)


async def close_alone(
    sender: Sender,
    late: LateRecords | None,
    cluster: Cluster,
    timeout_s: float,
    transactions: Transactions | None,
) -> None:
    """Send what is there; log what cannot be sent, because no caller reads the futures.

    What belongs to an open transaction is not sent but aborted.
    """
    sender.is_alone = transactions is None
    if transactions is not None:
        sender.refuse()
        deadline = deadline_of(timeout_s)
        await transactions.wind_up(deadline)
        timeout_s = deadline.left_s() or 0.0
    await close(sender, late, cluster, timeout_s)
