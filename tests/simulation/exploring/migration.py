"""Groups in which members of the classic protocol and of KIP-848 meet (K40 to K48)."""

from __future__ import annotations

from tests.simulation.exploring.state import GROUP, Coordinator, GroupProtocol


def migration(classic: GroupProtocol, consumer: GroupProtocol) -> GroupProtocol:
    """Return both protocols combined: a new process may use either, and the group follows."""

    def now(coordinator: Coordinator) -> GroupProtocol:
        return consumer if GROUP in coordinator.fold.consumer_groups else classic

    return GroupProtocol(
        kinds=(*classic.kinds, *consumer.kinds),
        epoch=lambda coordinator: max(classic.epoch(coordinator), consumer.epoch(coordinator)),
        is_current=lambda coordinator, member_id, epoch: now(coordinator).is_current(
            coordinator, member_id, epoch
        ),
        is_at_rest=lambda coordinator: now(coordinator).is_at_rest(coordinator),
        wrong=lambda coordinator: now(coordinator).wrong(coordinator),
    )
