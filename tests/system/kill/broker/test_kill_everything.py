"""SIGKILL at random moments while topics, groups and records change: every promise holds.

`KOHORT_KILLS=200` kills more often.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from pathlib import Path

from kohort.types import TopicPartition
from tests.broker.log.batches import batch
from tests.broker.peer import Peer
from tests.broker.processes import BrokerProcess, eventually
from tests.broker.random_load import Deletions, Keys, Load, Member, PeerLoad, Topics

logger = logging.getLogger(__name__)

KILLS = int(os.environ.get("KOHORT_KILLS", "8"))
SEED = int(os.environ.get("KOHORT_KILLS_SEED", "107"))
PARTITIONS = 3


class Records(PeerLoad):
    """Appends to the partitions that the members read.

    Attributes:
        ends: offset after the last record of each partition that was acknowledged.
    """

    def __init__(self, broker: BrokerProcess, chance: random.Random) -> None:
        super().__init__(broker, chance)
        self.ends = [0] * PARTITIONS

    def ask_one(self, peer: Peer) -> None:
        """Append one record."""
        number = self.chance.randrange(PARTITIONS)
        answer = peer.produce(TopicPartition("read", number), batch(b"x" * 50))
        assert answer.error_code == 0
        self.ends[number] = answer.base_offset + 1

    def look(self, peer: Peer) -> None:
        """No partition ends before what was acknowledged."""
        for number, end in enumerate(self.ends):
            assert peer.fetch(TopicPartition("read", number), end).high_watermark >= end


def test_every_promise_holds_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with BrokerProcess(tmp_path / "data", "--set", "offsets.topic.segment.bytes=20000") as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("read", PARTITIONS, segment_bytes="5000")
            peer.create("shortened", segment_bytes="2000")
            peer.create(
                "compacted",
                cleanup_policy="compact",
                min_cleanable_dirty_ratio="0.01",
                segment_bytes="2000",
            )
        seeds = iter(range(SEED, SEED + 100))
        loads: list[Load] = [
            kind(broker, random.Random(next(seeds))) for kind in (Records, Topics, Deletions, Keys)
        ]
        loads += [
            Member(broker, random.Random(next(seeds)), "read", protocol)
            for protocol in ("classic", "consumer")
        ]
        for load in loads:
            load.start()
        try:
            for number in range(KILLS):
                kill_and_check(broker, loads, chance)
                logger.info("kill %d: promises %s", number + 1, [each.promises for each in loads])
        finally:
            failures = [failure for load in loads if (failure := end_of(load)) is not None]
        assert not failures, failures


def kill_and_check(broker: BrokerProcess, loads: list[Load], chance: random.Random) -> None:
    """Kill at a random moment after everybody was promised something; look at everything."""
    before = [load.promises for load in loads]
    waiting = threading.Event()

    def served() -> bool:
        waiting.wait(0.005)
        broken = [load.failure for load in loads if load.failure is not None]
        assert not broken, broken
        return all(load.promises > count for load, count in zip(loads, before, strict=True))

    eventually(served, "every load was promised something")
    # Compaction comes every five seconds: now and then it should be under way.
    waiting.wait(chance.random() * (6 if chance.random() < 0.1 else 0.5))
    broker.kill()
    broker.start()
    with Peer(broker.bootstrap_servers) as peer:
        for load in loads:
            load.check(peer)


def end_of(load: Load) -> BaseException | None:
    """Stop a load; return what went wrong on it."""
    try:
        load.stop()
    except BaseException as error:  # noqa: BLE001  # the test fails with all of them
        return error
    return None
