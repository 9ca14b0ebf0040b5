"""A group with members of both protocols, driven request by request, and compactions of its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kohort.group.coordinator.state import LogState
from kohort.group.subscription import Subscription, encode_assignment, encode_subscription
from kohort.types import TopicPartition
from kohort.wire import consumer_protocol
from kohort.wire.group_log import decode_record
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.group.coordinator.consumer.consumer_dialogue import ConsumerDialogue
from tests.group.coordinator.dialogue import GROUP

Entry = tuple[bytes, bytes | None]


class MixedDialogue(ConsumerDialogue):
    """Topic "t" has four partitions by default."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.topics(t=4)

    def join_classic(self, member_id: str = "", *topics: str, **more: Any) -> int:
        """Send a JoinGroup of the consumer protocol type; return its token."""
        owned = frozenset(TopicPartition("t", n) for n in more.pop("owned", ()))
        names = more.pop("assignors", ("range",))
        metadata = encode_subscription(
            Subscription(topics=frozenset(topics or ("t",)), owned=owned)
        )
        return self.join(member_id, protocols=[(name, metadata) for name in names], **more)

    def joined(self, member_id: str = "", *topics: str, **more: Any) -> Any:
        """Return the response to a JoinGroup that is answered at once."""
        return self.answers[self.join_classic(member_id, *topics, **more)]

    def synced(self, member_id: str, generation: int) -> set[int]:
        """Return the partitions of "t" in the response to a SyncGroup."""
        answer = self.answers[
            self.sync_token(
                member_id, generation, {}, protocol_type="consumer", protocol_name="range"
            )
        ]
        assert answer.error_code == 0, answer
        return set(partitions_in(answer.assignment))

    def stable_classic(self, *names: str, **more: Any) -> list[str]:
        """Create a stable classic group that shares "t", four partitions; the first one leads."""
        tokens = []
        for name in names:
            if name.startswith("s"):
                tokens.append(self.join_classic(instance=name, client_id=name, **more))
            else:
                asked = self.join_classic(client_id=name, **more)
                member_id = self.answers[asked].member_id
                tokens.append(self.join_classic(member_id, client_id=name, **more))
        self.advance(200)
        return self.settle_evenly(tokens)

    def settle_evenly(self, tokens: list[int]) -> list[str]:
        """Complete a rebalance; the leader distributes the partitions evenly."""
        answers = [self.answers[token] for token in tokens]
        assert {answer.error_code for answer in answers} == {0}
        generation, leader = answers[0].generation_id, answers[0].leader
        ids = [answer.member_id for answer in answers]
        given = {
            member_id: encode_assignment(TopicPartition("t", n) for n in range(at, 4, len(ids)))
            for at, member_id in enumerate(ids)
        }
        for member_id in sorted(ids, key=lambda each: each == leader):
            self.sync_token(member_id, generation, given if member_id == leader else {})
        return ids

    def assignment(self, partitions: Iterable[int]) -> bytes:
        """Return the leader's assignment for a member."""
        return encode_assignment(TopicPartition("t", n) for n in partitions)

    def settle_consumer(self, member_id: str) -> None:
        """Have a consumer take over its target."""
        instance = self.member(member_id).instance_id
        for _ in range(3):
            self.heartbeat(
                member_id,
                self.member(member_id).epoch,
                held=self.has(member_id),
                instance_id=instance,
            )

    def commit(self, member_id: str, generation: int) -> None:
        """Commit an offset of the first partition."""
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=(
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=(
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=7, committed_metadata=""
                        ),
                    ),
                ),
            ),
        )
        answer = self.get(request, 9)
        assert answer.topics[0].partitions[0].error_code == 0

    # ------------------------------------------------------------------------------- the log

    def check_log(self) -> None:
        """Check that any compaction of the log loads to the state of the shard."""
        for compacted in compactions(self.log):
            assert folded(compacted) == self.shard.log


def partitions_in(assignment: bytes) -> tuple[int, ...]:
    if not assignment:
        return ()
    read = consumer_protocol.decode_assignment(assignment)
    return tuple(n for each in read.assigned_partitions for n in each.partitions)


def folded(log: Iterable[Entry]) -> LogState:
    state = LogState()
    for key, value in log:
        record = decode_record(key, value)
        assert record is not None
        state = state.apply(record)
    return state


def compactions(log: list[Entry]) -> Iterator[list[Entry]]:
    """Yield what Kafka's cleaner may leave of a log: any prefix or middle part compacted.

    Tombstones are removed only in a prefix, as nothing older is left then.
    """
    for end in range(len(log) + 1):
        cleaned = compacted(log[:end])
        yield [*cleaned, *log[end:]]
        yield [*(each for each in cleaned if each[1] is not None), *log[end:]]
    step = max(1, len(log) // 6)
    for begin in range(0, len(log), step):
        for end in range(begin, len(log) + 1, step):
            yield [*log[:begin], *compacted(log[begin:end]), *log[end:]]


def compacted(log: list[Entry]) -> list[Entry]:
    last = {key: at for at, (key, _) in enumerate(log)}
    return [entry for at, entry in enumerate(log) if last[entry[0]] == at]
