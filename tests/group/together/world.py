"""A coordinator and members of a classic group in one process, in virtual time."""

from __future__ import annotations

from typing import TypeAlias

from kohort.errors import LocalProtocolError
from kohort.group.assignors import Assignor, ClusterView, RangeAssignor
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.group.member import leader
from kohort.group.member.classic.machine import ClassicMember, ClassicMemberState
from kohort.group.member.events import JobDone
from tests.group.together.network import GROUP, WALL, Connected, Network

__all__ = ["GROUP", "WALL", "Application", "World"]

Application: TypeAlias = Connected[ClassicMember]


class World(Network[ClassicMember]):
    """One shard, and any number of applications."""

    def __init__(self, config: CoordinatorConfig | None = None) -> None:
        super().__init__(config or CoordinatorConfig(group_initial_rebalance_delay_ms=0))

    def start(self, name: str, *assignors: Assignor, instance: str | None = None) -> Application:
        assignors = assignors or (RangeAssignor(),)
        return self.add(name, ClassicMember(self.settings(instance), assignors))

    def run_job(self, application: Application) -> None:
        job = application.jobs.popleft()
        cluster = ClusterView(self.topics)
        try:
            assignments = leader.compute(job, application.member.assignors, cluster)
        except LocalProtocolError as error:
            self.tell(application, JobDone(job.token, None, str(error)))
        else:
            self.tell(application, JobDone(job.token, assignments))

    def everybody_is_stable(self) -> bool:
        return all(
            entry.member.state is ClassicMemberState.STABLE for entry in self.applications.values()
        )
