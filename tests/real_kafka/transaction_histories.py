"""Histories of transactional producers, drawn at random and played on a broker by bare requests.

What a broker answers is shown without what is its own: numbers of producers are counted in the
order in which they appear, and of times only whether there is one.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from msgspec import Struct

from kohort.errors import ErrorCode
from kohort.wire.codec.schema import Message, Request
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.groups import DeleteGroupsRequest
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.messages.producer_ids import InitProducerIdRequest
from kohort.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kohort.wire.messages.txn_requests import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kohort.wire.records import Record, decode_records, encode_batch, iter_batches
from tests.broker.peer import Peer
from tests.broker.processes import eventually

R = TypeVar("R", bound=Message)

PASSES = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""What a client tries again: Kafka writes markers while it answers, and loads in the background."""

PARTITIONS = (0, 1)
HANDLES = 5
TIMEOUT_MS = 600_000  # of a transaction: none ends by time


class Handle(Struct):
    """What a producer takes itself for. Two with one name fence each other."""

    name: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = {}


Play = Callable[["Player"], Any]


class Player:
    """Plays a history on one broker.

    Args:
        bootstrap: Where the broker is.
        prefix: Begins every name, so that histories do not meet.
        version: Which version of transactions is played, 1 or 2 (KIP-890).
    """

    def __init__(self, bootstrap: str, prefix: str, version: int) -> None:
        self.peer = Peer(bootstrap)
        self.topic = f"{prefix}-topic"
        self.groups = (f"{prefix}-g0", f"{prefix}-g1")
        self.version = version
        self.now_ms = int(time.time() * 1000)  # Kafka begins a segment between times far apart
        self.handles = [Handle(f"{prefix}-{number % 3}", sequences={}) for number in range(HANDLES)]
        self._numbers: dict[int, int] = {-1: -1}
        self.peer.create(self.topic, len(PARTITIONS))
        self._await_coordinators()

    def connect(self, bootstrap: str) -> None:
        """Go on with a broker that has been started again."""
        self.peer = Peer(bootstrap)
        self._await_coordinators()

    def close(self) -> None:
        self.peer.socket.close()

    def _await_coordinators(self) -> None:
        keys = ((1, tuple({each.name for each in self.handles})), (0, self.groups))

        def all_found() -> bool:
            found = (
                self.peer.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=names), 4)
                for kind, names in keys
            )
            return not any(each.error_code for answer in found for each in answer.coordinators)

        eventually(all_found, "coordinators are there")

    def number(self, producer_id: int) -> int:
        """The place of a producer's number among those that were seen."""
        return self._numbers.setdefault(producer_id, len(self._numbers))

    def ask(self, request: Request[R], version: int, code: Callable[[R], int]) -> R:
        """Ask until the answer is none of those that pass."""
        answers: list[R] = []

        def is_final() -> bool:
            answers.append(self.peer.ask(request, version))
            return code(answers[-1]) not in PASSES

        eventually(is_final, f"{request} is answered, last was {answers[-1:]}")
        return answers[-1]

    def settle(self, name: str) -> None:
        """Wait until all markers are written."""

        def is_settled() -> bool:
            request = DescribeTransactionsRequest(transactional_ids=(name,))
            (state,) = self.peer.ask(request, 0).transaction_states
            passes = state.error_code in PASSES
            return not passes and not state.transaction_state.startswith("Prepare")

        eventually(is_settled, f"the transaction of {name} is over")

    # ---------------------------------------------------------------------------- what is asked

    def init(self, at: int, expected: str, version: int) -> Any:
        handle = self.handles[at]
        known = expected != "none" and handle.producer_id >= 0 and version >= 3
        request = InitProducerIdRequest(
            transactional_id=handle.name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=handle.producer_id if known else -1,
            producer_epoch=max(handle.epoch - (expected == "old"), 0) if known else -1,
        )
        answer = self.ask(request, version, lambda a: a.error_code)
        if not answer.error_code:
            handle.producer_id, handle.epoch = answer.producer_id, answer.producer_epoch
            handle.sequences = {}
        self.settle(handle.name)
        return answer.error_code, self.number(answer.producer_id), answer.producer_epoch

    def add(self, at: int, numbers: list[int], version: int) -> Any:
        handle = self.handles[at]
        topic = AddPartitionsToTxnTopic(name=self.topic, partitions=tuple(numbers))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=handle.name,
            v3_and_below_producer_id=handle.producer_id,
            v3_and_below_producer_epoch=handle.epoch,
            v3_and_below_topics=(topic,),
        )
        answer = self.ask(
            request,
            version,
            lambda a: (
                a.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        return sorted((each.partition_index, each.partition_error_code) for each in results)

    def add_offsets(self, at: int, group: int, version: int) -> Any:
        handle = self.handles[at]
        request = AddOffsetsToTxnRequest(
            transactional_id=handle.name,
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            group_id=self.groups[group],
        )
        return self.ask(request, version, lambda a: a.error_code).error_code

    def produce(self, at: int, number: int, skips: bool, version: int) -> Any:
        handle = self.handles[at]
        if handle.producer_id < 0:
            return None
        sequence = handle.sequences.get(number, 0)
        if self.version == 1 and not sequence:
            skips = False  # Kafka remembers the least number of a batch that it has refused
        batch = encode_batch(
            [Record(0, self.now_ms, b"k", b"v"), Record(1, self.now_ms, b"k", b"w")],
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            base_sequence=sequence + skips,
            is_transactional=True,
        )
        data = PartitionProduceData(index=number, records=batch)
        request = ProduceRequest(
            transactional_id=handle.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=(TopicProduceData(name=self.topic, partition_data=(data,)),),
        )
        answer = self.ask(
            request, version, lambda a: a.responses[0].partition_responses[0].error_code
        )
        part = answer.responses[0].partition_responses[0]
        if not part.error_code:
            handle.sequences[number] = sequence + 2
        return part.error_code, part.base_offset

    def commit(self, at: int, group: int, offset: int, generation: int, version: int) -> Any:
        handle = self.handles[at]
        partition = TxnOffsetCommitRequestPartition(
            partition_index=offset % 3, committed_offset=offset, committed_metadata="m"
        )
        topic = TxnOffsetCommitRequestTopic(name=self.topic, partitions=(partition,))
        request = TxnOffsetCommitRequest(
            transactional_id=handle.name,
            group_id=self.groups[group],
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            generation_id=generation if version >= 3 else -1,
            topics=(topic,),
        )
        answer = self.ask(request, version, lambda a: a.topics[0].partitions[0].error_code)
        code = answer.topics[0].partitions[0].error_code
        # whether a group exists of which nothing is stored any more: see `_of_group`
        return ErrorCode.UNKNOWN_MEMBER_ID if code == ErrorCode.ILLEGAL_GENERATION else code

    def end(self, at: int, commits: bool, version: int) -> Any:
        handle = self.handles[at]
        request = EndTxnRequest(
            transactional_id=handle.name,
            producer_id=handle.producer_id,
            producer_epoch=handle.epoch,
            committed=commits,
        )
        answer = self.ask(request, version, lambda a: a.error_code)
        if not answer.error_code and version >= 5:
            if (handle.producer_id, handle.epoch) != (answer.producer_id, answer.producer_epoch):
                handle.sequences = {}
            handle.producer_id, handle.epoch = answer.producer_id, answer.producer_epoch
        self.settle(handle.name)
        return answer.error_code, self.number(answer.producer_id), answer.producer_epoch

    def plain_commit(self, group: int, offset: int) -> Any:
        partition = OffsetCommitRequestPartition(
            partition_index=offset % 3, committed_offset=offset, committed_metadata="p"
        )
        topic = OffsetCommitRequestTopic(name=self.topic, partitions=(partition,))
        request = OffsetCommitRequest(
            group_id=self.groups[group],
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(topic,),
        )
        answer = self.ask(request, 8, lambda a: a.topics[0].partitions[0].error_code)
        return answer.topics[0].partitions[0].error_code

    def delete_offset(self, group: int, number: int) -> Any:
        partition = OffsetDeleteRequestPartition(partition_index=number)
        topic = OffsetDeleteRequestTopic(name=self.topic, partitions=(partition,))
        request = OffsetDeleteRequest(group_id=self.groups[group], topics=(topic,))
        return self._of_group(self.ask(request, 0, lambda a: a.error_code).error_code)

    def delete_group(self, group: int) -> Any:
        request = DeleteGroupsRequest(groups_names=(self.groups[group],))
        answer = self.ask(request, 2, lambda a: a.results[0].error_code)
        return self._of_group(answer.results[0].error_code)

    def _of_group(self, code: int) -> int:
        """Kafka knows a group of which nothing is stored until its next retention check."""
        return 0 if code == ErrorCode.GROUP_ID_NOT_FOUND else code

    # ----------------------------------------------------------------------------- what is seen

    def positions(self, group: int, stable: bool) -> Any:
        wanted = OffsetFetchRequestGroup(group_id=self.groups[group], topics=None)
        request = OffsetFetchRequest(groups=(wanted,), require_stable=stable)
        answer = self.ask(request, 8, lambda a: a.groups[0].error_code).groups[0]
        return answer.error_code, sorted(
            (each.partition_index, each.committed_offset, each.metadata, each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        )

    def read(self, number: int, isolation: int) -> Any:
        wanted = FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=self.topic, partitions=(wanted,))
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=(topic,), isolation_level=isolation
        )
        found = self.ask(request, 12, lambda a: a.responses[0].partitions[0].error_code)
        part = found.responses[0].partitions[0]
        batches = list(iter_batches(part.records or b""))
        behind = batches[-1][0].next_offset if batches else 0
        aborted = part.aborted_transactions
        return {
            "error": part.error_code,
            "end": part.high_watermark,
            "stable": part.last_stable_offset,
            "aborted": None
            if aborted is None
            else sorted(
                (self.number(each.producer_id), each.first_offset)
                for each in aborted
                if each.first_offset < behind  # Kafka may name some that begin later
            ),
            "batches": [self._shown(header, batch) for header, batch in batches],
        }

    def _shown(self, header: Any, batch: memoryview) -> Any:
        kind = None
        if header.is_control:
            kind = struct.unpack(">hh", decode_records(batch)[0].key or b"")
        return (
            header.base_offset,
            self.number(header.producer_id),
            header.producer_epoch,
            header.base_sequence,
            header.is_transactional,
            kind,
        )

    def end_of(self, number: int, isolation: int, timestamp: int) -> Any:
        wanted = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self.topic, partitions=(wanted,))
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=(topic,))
        found = self.ask(request, 7, lambda a: a.topics[0].partitions[0].error_code)
        part = found.topics[0].partitions[0]
        return part.error_code, part.offset

    def describe(self) -> Any:
        names = tuple(sorted({each.name for each in self.handles}))
        answer = self.peer.ask(DescribeTransactionsRequest(transactional_ids=names), 0)
        return sorted(
            (
                each.transactional_id[-1:],
                each.error_code,
                each.transaction_state,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms > 0,
                self.number(each.producer_id) if not each.error_code else None,
                each.producer_epoch,
                sorted(
                    (sorted(t.partitions) if t.topic == self.topic else []) for t in each.topics
                ),
            )
            for each in answer.transaction_states
        )

    def listed(self, states: tuple[str, ...]) -> Any:
        request = ListTransactionsRequest(state_filters=states, producer_id_filters=())
        answer = self.peer.ask(request, 0)
        mine = {each.name for each in self.handles}
        return answer.error_code, sorted(
            (each.transactional_id[-1:], self.number(each.producer_id), each.transaction_state)
            for each in answer.transaction_states
            if each.transactional_id in mine
        )

    def producers(self, number: int) -> Any:
        topic = DescribeProducersTopic(name=self.topic, partition_indexes=(number,))
        request = DescribeProducersRequest(topics=(topic,))
        answer = self.ask(request, 0, lambda a: a.topics[0].partitions[0].error_code)
        part = answer.topics[0].partitions[0]
        return part.error_code, sorted(
            (
                self.number(each.producer_id),
                each.producer_epoch,
                each.last_sequence,
                each.current_txn_start_offset,
            )
            for each in part.active_producers
        )


# ------------------------------------------------------------------------------------------ draw

Step = tuple[str, tuple[Any, ...]]
WEIGHTS = {
    "init": 12,
    "add": 12,
    "produce": 20,
    "commit": 10,
    "end": 18,
    "plain_commit": 4,
    "delete_offset": 2,
    "delete_group": 1,
    "positions": 6,
    "read": 7,
    "end_of": 3,
    "describe": 3,
    "listed": 2,
    "producers": 3,
}


def history(seed: int, version: int, length: int) -> list[Step]:
    """Names and arguments of calls of `Player`, the same for each broker."""
    rng = random.Random(f"{seed}-{version}")
    return [step for _ in range(length) for step in _steps(rng, version)]


def _steps(rng: random.Random, version: int) -> Iterator[Step]:
    name = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    at, number, group = rng.randrange(HANDLES), rng.choice(PARTITIONS), rng.randrange(2)
    first = version == 1
    commit = rng.choice((0, 2, 3, 4)) if first else 5
    if name == "add" and not first:
        name = "produce"  # which is enough to take part
    if name == "commit" and first and rng.random() < 0.7:
        yield "add_offsets", (at, group, rng.choice((0, 1, 2, 3)))
    arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
        "init": lambda: (at, rng.choice(("none", "none", "now", "old")), rng.choice((0, 1, 3, 5))),
        "add": lambda: (at, rng.choice(([0], [1], [0, 1], [0, 7])), rng.choice((0, 1, 2, 3))),
        "produce": lambda: (at, number, rng.random() < 0.1, rng.choice((9, 11)) if first else 12),
        "commit": lambda: (at, group, rng.randrange(30), rng.choice((-1, -1, -1, 4)), commit),
        "end": lambda: (at, rng.random() < 0.6, rng.choice((0, 1, 2, 3, 4)) if first else 5),
        "plain_commit": lambda: (group, rng.randrange(30)),
        "delete_offset": lambda: (group, number),
        "delete_group": lambda: (group,),
        "positions": lambda: (group, rng.random() < 0.6),
        "read": lambda: (number, rng.choice((0, 1, 1))),
        "end_of": lambda: (number, rng.choice((0, 1)), rng.choice((-1, -1, -2, -3, 0, 2))),
        "describe": tuple,
        "listed": lambda: (rng.choice(((), ("Ongoing",), ("Empty", "CompleteCommit"))),),
        "producers": lambda: (number,),
    }
    yield name, arguments[name]()


def played(player: Player, steps: Iterable[Step]) -> list[Any]:
    """What a broker answers."""
    return [getattr(player, name)(*arguments) for name, arguments in steps]
