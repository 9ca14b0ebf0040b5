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
        headers: Names and values; a name may stand twice.
    """

    value: bytes | None
    key: bytes | None
    headers: Headers


class Step(NamedTuple):
    """Something that happens to one member of a group.

    Attributes:
        action: "join", "poll", "commit", "leave" in order, or "kill": it is gone without a word.
        member: Number of the member, from 0.
    """

    action: Literal["join", "poll", "commit", "leave", "kill"]
    member: int


def topics() -> st.SearchStrategy[str]:
    """Return legal names of topics, also those with dots and of the greatest length."""
    names = st.text(_LEGAL, min_size=1, max_size=_LONGEST)
    return names.filter(lambda name: name not in (".", ".."))


def records(max_size: int = 1_000) -> st.SearchStrategy[SomeRecord]:
    """Return records: empty and missing keys and values, headers that repeat.

    Args:
        max_size: Bytes of the largest key and the largest value.
    """
    content = st.none() | st.binary(max_size=max_size)
    headers = st.lists(
        st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=4
    )
    return st.builds(SomeRecord, content, content, headers)


def subscriptions(known: list[str]) -> st.SearchStrategy[frozenset[str]]:
    """Return sets of topics out of those that there are; never the empty one."""
    return st.frozensets(st.sampled_from(known), min_size=1)


@st.composite
def group_histories(draw: st.DrawFn, members: int = 3, max_steps: int = 20) -> list[Step]:
    """Return what happens to the members of a group, one step after the other.

    A member joins before anything else happens to it, and may come again after it was gone.

    Args:
        draw: Given by Hypothesis.
        members: How many there are at most.
        max_steps: How many steps there are at most.
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
