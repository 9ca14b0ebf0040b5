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
        client_id: What its client calls itself.
    """

    def __init__(self, group_id: str, client_id: str) -> None:
        self._group_id = group_id
        self._client_id = client_id
        self._member: tuple[str, int] | None = None
        self._joins_for: str | None = None

    def observed(
        self,
        facts: Iterable[GroupEvent],
        identity: tuple[str, int] | None,
        owned: Collection[TopicPartition],
    ) -> None:
        """Write what one event led to.

        Args:
            facts: What the machine reports.
            identity: Member id and generation (or epoch) after it; None: it is no member.
            owned: The partitions it has after it.
        """
        reason = ""
        for fact in facts:
            log.debug("%s", fact)
            if isinstance(fact, OwnershipChanged):
                self._moved(fact, owned)
            elif isinstance(fact, MemberStateChanged):
                reason = fact.reason or reason
                self._entered(fact)
        self._belongs(identity, reason)

    def _belongs(self, now: tuple[str, int] | None, reason: str) -> None:
        before, self._member = self._member, now
        because = f": {reason}" if reason else ""
        if before is None and now is not None:
            self._joins_for = None
            log.info("group %s: member %s joined in generation %d", self._group_id, *now)
        elif before is not None and now is None:
            where = self._group_id, before[0]
            log.info("group %s: member %s leaves%s", *where, because)
        elif before is not None and now is not None and before != now:
            self._joins_for = None
            log.debug("group %s: generation %d%s", self._group_id, now[1], because)

    def _moved(self, fact: OwnershipChanged, owned: Collection[TopicPartition]) -> None:
        where = self._group_id, fact.member or self._client_id
        if fact.change is Ownership.LOST:
            text = "group %s: member %s lost %s: others may read them, from the last commit on"
            log.warning(text, *where, _shown(fact.partitions))
        elif fact.partitions or not owned:
            text = "group %s: member %s: %s %s in generation %d"
            what = fact.change.value, _shown(fact.partitions), fact.generation
            log.info(text, *where, *what)

    def _entered(self, fact: MemberStateChanged) -> None:
        where = self._group_id, fact.member or self._client_id
        if fact.after == "FATAL":
            text = "group %s: member %s cannot go on: %s; every poll raises it until unsubscribe"
            log.error(text, *where, fact.reason)
        elif fact.after in ("STALE", "FENCED"):
            text = "group %s: member %s is out of the group: %s; it joins again at the next poll"
            log.warning(text, *where, fact.reason)
        elif fact.after in ("PREPARING_REBALANCE", "JOINING") and fact.reason != self._joins_for:
            self._joins_for = fact.reason
            log.info("group %s: member %s joins%s", *where, f": {fact.reason}" * bool(fact.reason))


def _shown(partitions: Collection[TopicPartition]) -> str:
    if not partitions:
        return "no partitions"
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)[:_MOST_SHOWN]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
