"""The effects of a coordinator's decision, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kohort.errors import error_name
from kohort.group.coordinator.events import RequestArrived
from kohort.group.coordinator.state import ShardSession
from kohort.group.effects import Effects
from kohort.wire.codec.schema import Message
from kohort.wire.messages.group_records import GroupRecord
from tests.group.coordinator.dialogue import WALL

ASKED = 1_000
"""Token of the request in a case; the tokens of requests parked by situations are smaller."""


def asked(request: Message, version: int | None = None) -> RequestArrived[Message]:
    """Return a request as an event, as it comes from a client."""
    return RequestArrived(
        token=ASKED,
        request=request,
        version=type(request).max_version if version is None else version,
        client_id="n",
        unique_id="fresh",
        wall_ms=WALL,
    )


def led_to(before: ShardSession, effects: Effects[ShardSession]) -> Iterator[str]:
    """Yield responses, records, timers, jobs and events."""
    for reply in effects.replies:
        whom = "answers" if reply.token == ASKED else "answers parked"
        yield f"{whom} {', '.join(error_name(code) for code in _codes(reply.response))}"
    yield from (_written(record) for record in effects.records)
    old, new = before.deadlines.due_times(), effects.session.deadlines.due_times()
    yield from sorted(f"starts {key.kind}" for key in new if new[key] != old.get(key))
    yield from sorted(f"stops {key.kind}" for key in old if key not in new)
    for job in (*effects.consumer_jobs, *effects.draft_jobs):
        yield f"starts {type(job).__name__}"
    yield from (f"tells {fact.kind}" for fact in effects.observed)


def _codes(response: Any) -> list[int]:
    """Return the error of the response, and those inside of it."""
    codes = [response.error_code] if hasattr(response, "error_code") else []
    for name in ("members", "results", "topics", "groups", "responses"):
        for part in getattr(response, name, ()):
            parts = getattr(part, "partitions", (part,))
            codes += [each.error_code for each in parts if hasattr(each, "error_code")]
    return codes


def _written(record: GroupRecord) -> str:
    kind = type(record.key).__name__.removesuffix("Key")
    return f"forgets {kind}" if record.value is None else f"writes {kind}"
