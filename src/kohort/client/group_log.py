"""What a group member does, in the log: a line for each step that an operator asks about later."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from kohort.group.events import GroupEvent, MemberStateChanged, Ownership, OwnershipChanged
from kohort.types import TopicPartition

log = logging.getLogger("kohort.client")

_MOST_SHOWN = 20


class GroupLog:
    """Writes one member's steps: INFO for what is normal, WARNING for what cost it partitions.

    Args:
        group_id: Its group.
    """

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._member: tuple[str, int] | None = None

    def observed(self, facts: Iterable[GroupEvent], identity: tuple[str, int] | None) -> None:
        """Write what one event led to.

        Args:
            facts: What the machine reports.
            identity: Member id and generation (or epoch) after it; None: it is no member.
        """
        reason = ""
        for fact in facts:
            log.debug("%s", fact)
            if isinstance(fact, OwnershipChanged):
                self._moved(fact)
            elif isinstance(fact, MemberStateChanged):
                reason = fact.reason or reason
                self._entered(fact)
        self._belongs(identity, reason)

    def _belongs(self, now: tuple[str, int] | None, reason: str) -> None:
        before, self._member = self._member, now
        because = f": {reason}" if reason else ""
        if before is None and now is not None:
            log.info("group %s: member %s joined in generation %d", self._group_id, *now)
        elif before is not None and now is None:
            log.info("group %s: member %s left%s", self._group_id, before[0], because)
        elif before is not None and now is not None and before != now:
            log.debug("group %s: generation %d%s", self._group_id, now[1], because)

    def _moved(self, fact: OwnershipChanged) -> None:
        if fact.change is Ownership.LOST:
            log.warning(
                "group %s: lost %s: others may read them already, from the last commit on",
                self._group_id,
                _shown(fact.partitions),
            )
        else:
            log.info(
                "group %s: %s %s in generation %d",
                self._group_id,
                fact.change.value,
                _shown(fact.partitions),
                fact.generation,
            )

    def _entered(self, fact: MemberStateChanged) -> None:
        if fact.after == "FATAL":
            log.error(
                "group %s: the member cannot go on: %s; every poll raises it until unsubscribe",
                self._group_id,
                fact.reason,
            )
        elif fact.after in ("STALE", "FENCED"):
            log.warning(
                "group %s: the member is out of the group: %s; it joins again at the next poll",
                self._group_id,
                fact.reason,
            )
        elif fact.after in ("PREPARING_REBALANCE", "JOINING"):
            log.info("group %s: joining%s", self._group_id, f": {fact.reason}" * bool(fact.reason))


def _shown(partitions: Collection[TopicPartition]) -> str:
    if not partitions:
        return "no partitions"
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)[:_MOST_SHOWN]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
