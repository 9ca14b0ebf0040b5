"""Hypothesis strategies for records, subscriptions and histories of groups; needs hypothesis."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import hypothesis.strategies as st

_LEGAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
_LONGEST = 249

Headers: TypeAlias = list[tuple[str, bytes | None]]


class SomeRecord(NamedTuple):
    """A record to send: `producer.send(topic, *record[:3])`.

    Attributes:
        value: Its value; None is a tombstone.
        key: Its key.
        headers: Names and values; names may repeat.
    """

    value: bytes | None
    key: bytes | None
    headers: Headers


class Step(NamedTuple):
    """One step of a history: an action on one member of a group.

    Attributes:
        action: "join", "poll", "commit", "leave" (cleanly), or "kill": it disappears without
            leaving.
        member: Number of the member, from 0.
    """

    action: Literal["join", "poll", "commit", "leave", "kill"]
    member: int


def topics() -> st.SearchStrategy[str]:
    """Return valid topic names, including ones with dots and of maximum length."""
    names = st.text(_LEGAL, min_size=1, max_size=_LONGEST)
    return names.filter(lambda name: name not in (".", ".."))


def records(max_size: int = 1_000) -> st.SearchStrategy[SomeRecord]:
    """Return records, with empty and missing keys and values, and repeated headers.

    Args:
        max_size: Maximum size of a key and of a value, in bytes.
    """
    content = st.none() | st.binary(max_size=max_size)
    headers = st.lists(
        st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=4
    )
    return st.builds(SomeRecord, content, content, headers)


def subscriptions(known: list[str]) -> st.SearchStrategy[frozenset[str]]:
    """Return non-empty sets of the given topics."""
    return st.frozensets(st.sampled_from(known), min_size=1)


@st.composite
def group_histories(draw: st.DrawFn, members: int = 3, max_steps: int = 20) -> list[Step]:
    """Return histories of a group: sequences of steps of its members.

    A member's first step is to join, and it may rejoin after leaving.

    Args:
        draw: Passed by Hypothesis.
        members: Maximum number of members.
        max_steps: Maximum number of steps.
    """
    present: set[int] = set()
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, max_steps))):
        member = draw(st.integers(0, members - 1))
        if member not in present:
            action: Literal["join", "poll", "commit", "leave", "kill"] = "join"
            present.add(member)
        else:
            action = draw(st.sampled_from(("poll", "poll", "commit", "leave", "kill")))
            if action in ("leave", "kill"):
                present.discard(member)
        steps.append(Step(action, member))
    return steps
