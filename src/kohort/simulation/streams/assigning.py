"""The assignor of a simulated instance: the real one, observed."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.group.assignors.interface import Assignment, ClusterView
from kohort.group.subscription import Subscription
from kohort.simulation.groups.world import ViolationError
from kohort.simulation.streams.base import BaseProcess
from kohort.streams.assignor import LearnerAssignor


class SimulatedAssignor(LearnerAssignor):
    """An assignor whose process may die before and after it makes a plan.

    Attributes:
        process: Its process.
    """

    process: BaseProcess

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Return the user data, and record the true lags beside it."""
        process = self.process
        if process.dies("join"):
            return None
        said = super().subscription_user_data(topics)
        process.joined_at = process.world.engine.now
        process.lags = process.streams_world.lags_of(process)
        return said

    def assign_with_user_data(
        self, cluster: ClusterView, subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Make a plan, and check it."""
        process, world = self.process, self.process.streams_world
        if process.dies("lead"):
            return {}
        try:
            found = super().assign_with_user_data(cluster, subscriptions)
            world.planned(subscriptions, found)
        except ViolationError:
            raise
        except Exception as error:
            world.machine_failed(process.name, error)
            raise
        process.dies("led")
        return found
