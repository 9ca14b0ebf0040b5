"""The positions of a Delta table: the application transactions of one consumer group.

A position belongs to one topic, and a topic that is deleted and recreated is a different topic that
begins at offset 0. So if the topic's id is known, it is part of the transaction's name:
`<group>/<topic>/<partition>@<topic id>`; the transaction `<group>/<topic>/<partition>` is then set
to -1, which marks that positions have ids. If no id is known, the latter holds the position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from kohort.errors import KohortError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import Transaction

    from kohort.delta.reports import Span

# Value of the transaction without an id if there are transactions with one.
HAS_IDS = -1

# How to treat positions written without a topic id: decide by the offsets, or treat them as the
# current topic's, or as a deleted topic's.
WithoutId = Literal["check", "same", "other"]


class DeltaAppendError(KohortError):
    """A batch could not be appended; none of it is in the table."""


class Position(Struct, frozen=True):
    """The table's position of one Kafka partition.

    Attributes:
        value: Offset of the first record that is not in the table.
        same_topic: Whether it belongs to the topic that the batch has read, according to ids or to
            the caller.
        remade: Whether the table holds records of an earlier topic with that name.
    """

    value: int
    same_topic: bool
    remade: bool = False


class TablePositions:
    """Reads and names the positions of one group.

    Args:
        group_id: The consumer group.
        without_id: How to treat positions without a topic id for a batch that has one.
    """

    def __init__(self, group_id: str, without_id: WithoutId = "check") -> None:
        self._group_id = group_id
        self._without_id = without_id

    def read(self, table: DeltaTable, topic: str, partition: int, topic_id: str | None) -> Position:
        """Return the position of one partition of a topic.

        Raises:
            DeltaAppendError: The table's positions have topic ids, and the batch has none.
        """
        plain = table.transaction_version(self._name(topic, partition, None))
        if topic_id is None:
            if plain == HAS_IDS:
                raise DeltaAppendError(
                    f"the table's positions of {topic}-{partition} have topic ids and this batch "
                    "has none, so it may read another topic of that name; read with the kohort "
                    "source, or pass topic_ids to DeltaAppend"
                )
            if self._without_id == "other":
                raise DeltaAppendError(
                    f"positions_without_id='other' needs topic ids, and the batch has none of "
                    f"{topic}: read with the kohort source, or pass topic_ids to DeltaAppend"
                )
            return Position(plain or 0, same_topic=self._without_id == "same")
        named = table.transaction_version(self._name(topic, partition, topic_id))
        if named is not None:
            return Position(named, same_topic=True)
        if plain is None or plain == HAS_IDS:
            return Position(0, same_topic=True, remade=plain == HAS_IDS)
        if self._without_id == "other":
            return Position(0, same_topic=True, remade=True)
        return Position(plain, same_topic=self._without_id == "same")

    def transactions(
        self, table: DeltaTable, spans: Iterable[Span], topic_ids: Mapping[str, str]
    ) -> list[Transaction]:
        """Return the transactions of a commit that advances the table to the end of each span."""
        from deltalake.transaction import Transaction

        found = []
        for span in spans:
            topic_id = topic_ids.get(span.topic)
            plain = self._name(span.topic, span.partition, None)
            found.append(Transaction(self._name(span.topic, span.partition, topic_id), span.end))
            if topic_id is not None and table.transaction_version(plain) != HAS_IDS:
                found.append(Transaction(plain, HAS_IDS))
        return found

    def _name(self, topic: str, partition: int, topic_id: str | None) -> str:
        name = f"{self._group_id}/{topic}/{partition}"
        return name if topic_id is None else f"{name}@{topic_id}"


def check_restart(seen: Span, position: Position) -> None:
    """Refuse a batch that begins at offset 0 and ends below a position that has no topic id.

    Either a query reads records again that are in the table, or the topic was deleted and
    recreated: then its records would be mistaken for old ones and lost.

    Args:
        seen: The batch's span of a partition.
        position: The table's position in that partition.

    Raises:
        DeltaAppendError: The batch is ambiguous; the message names both causes and the remedies.
    """
    if position.same_topic or seen.first > 0 or seen.end >= position.value:
        return
    raise DeltaAppendError(
        f"{seen.topic}-{seen.partition}: the batch reads offsets 0 to {seen.end - 1}, and the "
        f"table holds everything below {position.value}, without the id of the topic. Either the "
        "topic was deleted and recreated: pass positions_without_id='other' once (the batch needs "
        "topic ids for that: read with the kohort source, or pass topic_ids), or use another "
        "table. Or the group was set back and the records are in the table already: pass "
        "positions_without_id='same', or move the group forward"
    )
