"""A coordinator and two members of a group in memory: no broker, no socket, no clock.

It prints the events in the group while `north` and then `south` join, as seen by the coordinator:

    python examples/group_in_memory.py
"""

from __future__ import annotations

from collections import deque

from kohort.group import (
    ClassicMember,
    CoordinatorConfig,
    GenerationStarted,
    MemberConfig,
    RebalanceStarted,
    Shard,
)
from kohort.group.assignors import ClusterView, CooperativeStickyAssignor
from kohort.group.coordinator import RequestArrived, ShardEvent
from kohort.group.coordinator import Tick as CoordinatorTick
from kohort.group.member import (
    CallbackDone,
    CoordinatorKnown,
    JobDone,
    MemberEvent,
    Polled,
    ResponseArrived,
    Subscribed,
    Tick,
    compute,
)

TOPICS = ClusterView({"flights": 6})


class Network:
    """Carries messages between a shard and its members; time is a number."""

    def __init__(self) -> None:
        self.now = 0
        self.shard = Shard(CoordinatorConfig(group_initial_rebalance_delay_ms=0))
        self.shard.load_started()
        self.shard.load_finished(self.now)  # of an empty log
        self.members: dict[str, ClassicMember] = {}
        self._askers: list[tuple[str, int]] = []
        self._queue: deque[tuple[str, MemberEvent]] = deque()

    def join(self, name: str) -> None:
        """Start a member that subscribes to the topic."""
        self.members[name] = ClassicMember(
            MemberConfig(group_id="demo"), [CooperativeStickyAssignor()]
        )
        self._queue.append((name, Subscribed(frozenset({"flights"}))))

    def coordinate(self, event: ShardEvent) -> None:
        """Let the coordinator decide; a broker would write the records to its log first."""
        effects = self.shard.decide(event, self.now)
        for record in effects.records:
            self.shard.apply(record)
        self.shard.install(effects.session)
        for seen in effects.observed:
            if isinstance(seen, RebalanceStarted):
                print(f"{self.now:6} ms  a rebalance begins: {seen.cause.value} ({seen.reason})")
            elif isinstance(seen, GenerationStarted):
                print(f"{self.now:6} ms  generation {seen.generation}, {len(seen.members)} members")
        for reply in effects.replies:
            name, token = self._askers[reply.token]
            self._queue.append((name, ResponseArrived(token, reply.response)))

    def tell(self, name: str, event: MemberEvent) -> None:
        """Let a member decide, and carry out its effects."""
        member = self.members[name]
        effects = member.decide(event, self.now)
        member.install(effects.session)
        if effects.find_coordinator:
            self._queue.append((name, CoordinatorKnown()))
        for job in effects.jobs:  # the leader's task: assign the partitions
            self._queue.append((name, JobDone(job.token, compute(job, member.assignors, TOPICS))))
        for callback in effects.callbacks:
            numbers = sorted(partition for _, partition in callback.partitions)
            print(f"{self.now:6} ms  {name}: {callback.change.value} {numbers}")
            self._queue.append((name, CallbackDone(callback.token)))
        for send in effects.sends:
            self._askers.append((name, send.token))
            number = len(self._askers) - 1
            version = min(type(send.request).max_version, 9)
            self.coordinate(
                RequestArrived(
                    token=number,
                    request=send.request,
                    version=version,
                    client_id=name,
                    unique_id=str(number),
                )
            )

    def run(self, milliseconds: int) -> None:
        """Let time pass; messages in flight arrive at once."""
        end = self.now + milliseconds
        while self.now < end:
            self.now += 100
            for name in self.members:
                self._queue += [(name, Polled()), (name, Tick())]
            while self._queue:
                self.tell(*self._queue.popleft())
            self.coordinate(CoordinatorTick())


if __name__ == "__main__":
    network = Network()
    network.join("north")
    network.run(5_000)
    network.join("south")
    network.run(10_000)
    for name, member in network.members.items():
        print(name, "has", sorted(partition for _, partition in member.assigned))
