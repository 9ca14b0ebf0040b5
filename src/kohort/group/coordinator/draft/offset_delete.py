"""OffsetDelete: forget some positions of a draft group (KIP-496, which the design did not know)."""

from __future__ import annotations

from kohort.group.coordinator.draft.decision import DraftDecision
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.offsets import delete as offsets
from kohort.wire.messages.offsets import OffsetDeleteRequest


def delete(decision: DraftDecision, deletion: RequestArrived[OffsetDeleteRequest]) -> None:
    """Forget the positions in all topics that nobody reads."""
    group = decision.group
    stored = decision.log.offsets_of(group.group_id)
    result = offsets.delete(deletion.request, stored, group.topics)
    decision.records.extend(result.records)
    decision.reply(deletion.token, result.response, deletion.version)
