"""Detects deleted and recreated changelogs, which lose their state without any error.

The first instance writes the id of each changelog to the control topic. Each instance compares the
current ids with these when it starts, with every grant, and while it runs. A reset deletes both.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from kohort.client import AsyncConsumer
from kohort.streams.errors import ChangelogTruncatedError, StreamsError
from kohort.streams.log.control import ControlLog
from kohort.streams.log.records import ChangelogNoted
from kohort.streams.runtime.interface import Application

_APPEARS_S = 30.0
_AGAIN_S = 0.1


async def check_changelogs(
    application: Application, control: ControlLog, consumer: AsyncConsumer
) -> dict[int, StreamsError]:
    """Write the ids of new changelogs to the control topic, before `ControlLog.follow` runs.

    Args:
        application: The application.
        control: Its control topic.
        consumer: Asks the brokers.

    Returns:
        The parts that cannot continue; see `made_again`.

    Raises:
        KafkaError: The brokers cannot be reached.
    """
    names = sorted({topic for topics in application.changelogs.values() for topic in topics})
    ids = await _appeared(consumer, names)
    noted = (await control.read_to_end()).changelogs
    now_ms = time.time_ns() // 1_000_000
    fresh = [
        ChangelogNoted(topic=topic, topic_id=each, at=now_ms)
        for topic, each in ids.items()
        if each and topic not in noted
    ]
    if fresh:
        await control.append(*fresh)
        noted = (await control.read_to_end()).changelogs
    return made_again(application, noted, ids)


async def _appeared(consumer: AsyncConsumer, topics: list[str]) -> dict[str, str]:
    """Return the ids of new topics; retries, since not every broker knows them at once."""
    until = time.monotonic() + _APPEARS_S
    while True:
        ids = await ids_of(consumer, topics)
        if len(ids) == len(topics) or time.monotonic() > until:
            return ids
        await asyncio.sleep(_AGAIN_S)


async def ids_of(consumer: AsyncConsumer, topics: list[str]) -> dict[str, str]:
    """Return the ids of existing topics; empty if the brokers have no topic ids.

    Raises:
        KafkaError: The brokers cannot be reached.
    """
    found = await consumer.topic_metadata(topics) if topics else {}
    return {name: str(each.topic_id) if each.topic_id.int else "" for name, each in found.items()}


def made_again(
    application: Application, noted: Mapping[str, str], now: Mapping[str, str]
) -> dict[int, StreamsError]:
    """Return the parts whose changelogs were recreated, with the error of each.

    Args:
        application: The application.
        noted: The id of each changelog in the control topic.
        now: The id of each existing topic.
    """
    found: dict[int, StreamsError] = {}
    for number, topics in application.changelogs.items():
        other = [
            each for each in topics if now.get(each) and now[each] != noted.get(each, now[each])
        ]
        if other:
            found[number] = _lost(application.name, ", ".join(other))
    return found


def _lost(application: str, topics: str) -> ChangelogTruncatedError:
    return ChangelogTruncatedError(
        f"{topics}: the topic was deleted and recreated, so its state is gone and"
        " changes of state are lost. Stop all instances and reset the application, which then reads"
        f" its input from the start: kohort streams reset {application}"
    )
