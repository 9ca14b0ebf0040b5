"""Checks the cleanup policy of a region's own topics, when they are opened and while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kohort.client.admin.aio import AsyncAdminClient, partitions_and_policy
from kohort.client.admin.values import ConfigResource
from kohort.errors import ErrorCode, KafkaError, KohortError
from kohort.region.errors import ControlTopicError
from kohort.region.settings import ClientSettings, admin_settings

log = logging.getLogger("kohort.region")

COMPACTED = "compact"
LOST = (
    "the positions and states of the region are gone with it. Start a region of another name, with "
    "an output of its own"
)
_EVERY_S = 30.0


def keeps_all(policy: str) -> bool:
    """Return whether a topic with this `cleanup.policy` keeps the last record of each key."""
    return COMPACTED in policy and "delete" not in policy


async def watch_policies(region: str, settings: ClientSettings, topics: Sequence[str]) -> None:
    """Log a warning when a topic is no longer compacted, and a message when it is again.

    Nothing is lost at once, so workers continue: brokers delete only old, whole segments.
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
        "is lost so far. Workers continue, but none can start. Set cleanup.policy=%s again soon",
        region, topic, policy, COMPACTED, COMPACTED,
    )  # fmt: skip


async def check_topic(admin: AsyncAdminClient, topic: str) -> None:
    """Check that one of a region's own topics is suitable for its records.

    Args:
        admin: The admin client.
        topic: The control topic or the state topic.

    Raises:
        ControlTopicError: It has several partitions, or is not compacted.
        KafkaError: The brokers cannot be reached, or refuse.
    """
    count, policy = await partitions_and_policy(admin, topic)
    if count != 1:
        raise ControlTopicError(
            f"{topic} has {count} partitions and must have one: the order of a region's records "
            "is the order of one log. Delete it and let kohort create it"
        )
    if not keeps_all(policy):
        raise ControlTopicError(
            f"{topic} has cleanup.policy={policy} and must have compact: the state of a region "
            "would be deleted. If the policy was changed, set it back. If the region worked "
            "before, the topic was deleted and another client recreated it by asking for it: "
            f"{LOST}. If it never did, delete the topic and let kohort create it"
        )
