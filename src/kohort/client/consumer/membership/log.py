"""Log the steps of a group member: one line for each step that operators may need later."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from kohort.client.config.definitions import ConsumerConfig
from kohort.client.consumer.membership.fencing import cause, explanation
from kohort.errors import error_name
from kohort.group.events import GroupEvent, MemberStateChanged, Ownership, OwnershipChanged
from kohort.types import TopicPartition

log = logging.getLogger("kohort.client")

_MOST_SHOWN = 20
_LEFT_TOO_EARLY = "it left in the middle of a rebalance"
# The states, of all protocols, in which a leaving member still gives up its partitions.
_GIVES_UP = frozenset({"PREPARE_LEAVING", "LEAVING"})
# The states, of all protocols, of a member whose application made it leave.
_BY_ITS_WILL = frozenset({"PREPARE_LEAVING", "LEAVING", "UNSUBSCRIBED", "DOWN", "CLOSED"})


class GroupLog:
    """Logs one member's steps: INFO for normal steps, WARNING for those that cost it partitions.

    Args:
        config: Settings; they have a group id.

    Attributes:
        removal_reason: Why it is out of its group without having left, and what to do; empty when
            it is not.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.removal_reason = ""
        self._config = config
        self._why = ""
        self._member: tuple[str, int] | None = None
        self._last_id = ""
        self._state = ""
        self._joins_for: str | None = None

    def observed(
        self,
        facts: Iterable[GroupEvent],
        identity: tuple[str, int] | None,
        owned: Collection[TopicPartition],
        code: int = 0,
    ) -> None:
        """Log the results of one event.

        Args:
            facts: The reports of the state machine.
            identity: Member id and generation (or epoch) after the event; None when not a member.
            owned: Its partitions after the event.
            code: The error code of the answer behind the event; 0 for none.
        """
        reason, path = "", [self._state]
        for fact in facts:
            log.debug("%s", fact)
            if isinstance(fact, OwnershipChanged):
                self._moved(fact, owned)
            elif isinstance(fact, MemberStateChanged):
                reason = fact.reason or reason
                path.append(fact.after)
                self._entered(fact, code)
        self._state = path[-1]
        self._belongs(identity, reason, path, code)

    def _belongs(
        self, now: tuple[str, int] | None, reason: str, path: Collection[str], code: int
    ) -> None:
        before, self._member = self._member, now
        because = f": {reason}" if reason else ""
        if now is not None:
            self.removal_reason, self._last_id = "", now[0]
        if before is None and now is not None:
            self._joins_for, self._why = None, ""
            log.info("group %s: member %s joined in generation %d", self._group, *now)
        elif before is None or (now is None and self._state in ("STALE", "FATAL")):
            pass  # logged when it entered the state
        elif now is None and _BY_ITS_WILL.isdisjoint(path):
            self._fall_out(reason, code)
        elif now is None:
            if code and self._state in _GIVES_UP:  # it was removed before it left
                self._explain(reason, code)
            log.info("group %s: member %s leaves%s", self._group, before[0], because)
        elif before != now:
            self._joins_for = None
            log.debug("group %s: generation %d%s", self._group, now[1], because)

    def _moved(self, fact: OwnershipChanged, owned: Collection[TopicPartition]) -> None:
        where = self._group, self._who(fact.member)
        # A member that drops out while a revocation waits for a poll has lost all its partitions.
        if fact.change is Ownership.LOST or (
            self.removal_reason and fact.change is Ownership.REVOKED
        ):
            text = "group %s: %s lost %s, as %s; other members may read them from the last commit"
            why = self._why.partition(":")[0] or "it is no longer a member of the group"
            log.warning(text, *where, _shown(fact.partitions), why)
        elif fact.partitions or not owned:
            text = "group %s: %s: %s %s in generation %d"
            what = fact.change.value, _shown(fact.partitions), fact.generation
            log.info(text, *where, *what)

    def _entered(self, fact: MemberStateChanged, code: int) -> None:
        if fact.after == "FATAL":
            self._fail(fact, code)
        elif fact.after == "STALE":
            self._fall_out(fact.reason, code)
        elif fact.after in _GIVES_UP:
            self._go(fact.reason)
        elif fact.after == "FENCED" and fact.before == "JOINING":
            text = "group %s: %s cannot join: the coordinator answered %s; trying again"
            log.warning(text, self._group, self._who(fact.member), error_name(code))
        elif fact.after in ("PREPARING_REBALANCE", "JOINING") and fact.reason != self._joins_for:
            self._joins_for = fact.reason
            because = f": {fact.reason}" * bool(fact.reason)
            log.info("group %s: %s joins%s", self._group, self._who(fact.member), because)

    def _go(self, reason: str) -> None:
        """Note why it loses its partitions, unless it dropped out before for another reason."""
        if self._member is not None and reason:
            overdue = "max.poll.interval.ms" in reason
            self._why = cause(reason, 0, self._config) if overdue else _LEFT_TOO_EARLY

    def _fall_out(self, reason: str, code: int) -> None:
        self._explain(reason, code)
        text = "group %s: %s is out of the group: %s It joins again at the next poll"
        log.warning(text, self._group, self._who(), self.removal_reason)

    def _fail(self, fact: MemberStateChanged, code: int) -> None:
        self._explain(fact.reason, code)
        said = f" ({fact.reason})" if code and fact.reason else ""
        text = "group %s: %s cannot continue%s: %s Every poll raises this until unsubscribe"
        log.error(text, self._group, self._who(fact.member), said, self.removal_reason)

    def _explain(self, reason: str, code: int) -> None:
        self._why = cause(reason, code, self._config)
        self.removal_reason = explanation(reason, code, self._config)

    @property
    def _group(self) -> str | None:
        return self._config.group_id

    def _who(self, member_id: str = "") -> str:
        """Return the member's name with its client id, which Kafka's member ids may not include."""
        client, known = self._config.client_id, member_id or self._last_id
        if not known:
            return f"a member of client {client}"
        return f"member {known}" + ("" if known.startswith(client) else f" of client {client}")


def _shown(partitions: Collection[TopicPartition]) -> str:
    if not partitions:
        return "no partitions"
    names = [f"{topic}-{number}" for topic, number in sorted(partitions)[:_MOST_SHOWN]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
