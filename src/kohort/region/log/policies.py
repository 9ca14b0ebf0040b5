"""Checks, while a region runs, that its own topics keep what it needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kohort.client.admin.aio import AsyncAdminClient
from kohort.client.admin.values import ConfigResource
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.region.settings import ClientSettings, admin_settings

log = logging.getLogger("kohort.region")

COMPACTED = "compact"
_EVERY_S = 30.0


def keeps_all(policy: str) -> bool:
    """Return whether a topic with this `cleanup.policy` keeps the last record of each key."""
    return COMPACTED in policy and "delete" not in policy


async def watch_policies(region: str, settings: ClientSettings, topics: Sequence[str]) -> None:
    """Warn in the log when a topic is not compacted any more, and say when it is again.

    Nothing is lost at once, so workers go on: brokers delete whole segments, and only old ones.
    `check_topic` refuses to start further workers.

    Args:
        region: Name of the region.
        settings: How to reach the brokers.
        topics: Topics of the region; missing ones are ignored.
    """
    known: dict[str, str] = {}
    while True:
        await asyncio.sleep(_EVERY_S)
        try:
            async with AsyncAdminClient(**admin_settings(settings)) as admin:
                for topic in topics:
                    policy = await _policy(admin, topic)
                    if policy is not None and policy != known.get(topic, COMPACTED):
                        _tell(region, topic, policy)
                    known[topic] = policy or COMPACTED
        except KohortError as error:
            log.info(
                "region %s: cannot find out whether its topics are compacted: %s", region, error
            )


async def _policy(admin: AsyncAdminClient, topic: str) -> str | None:
    resource = ConfigResource("topic", topic)
    try:
        configs = await admin.describe_configs([resource])
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return None
    return configs[resource]["cleanup.policy"].value or ""


def _tell(region: str, topic: str, policy: str) -> None:
    if keeps_all(policy):
        log.info("region %s: %s has cleanup.policy=%s again", region, topic, policy)
        return
    log.warning(
        "region %s: %s now has cleanup.policy=%s, and must have %s: brokers will delete its "
        "records by age or size, and with them positions and states that the region needs. Nothing "
        "is lost so far, and workers go on; but none can start. Set cleanup.policy=%s again soon",
        region, topic, policy, COMPACTED, COMPACTED,
    )  # fmt: skip
