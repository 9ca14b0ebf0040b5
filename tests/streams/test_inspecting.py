"""An application from outside: with a forgotten group, or without its control topic."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from kohort.client.admin.values import GroupDescription, MemberDescription
from kohort.streams.assignment.plan import ASSIGNOR
from kohort.streams.errors import MissingTopicError, StreamsError
from kohort.streams.inspecting import _check_exists, ask_to_leave, look
from tests.real_kafka.foreign import create_topic


def test_an_application_whose_group_is_forgotten_has_no_members(servers: str) -> None:
    """Brokers forget a group without members when its offsets expire."""
    name = f"app-{uuid.uuid4().hex[:10]}"
    create_topic(servers, f"{name}-control", 1)
    clients = {"bootstrap_servers": servers}
    found = asyncio.run(look(name, clients))
    assert (found.state, found.members) == ("Dead", ())
    with pytest.raises(StreamsError, match="has no member 'one'; its members are none"):
        asyncio.run(ask_to_leave(name, "one", clients, 0.0))


class Admin:
    """Knows no topic."""

    async def list_topics(self) -> frozenset[str]:
        return frozenset()


@pytest.mark.parametrize(
    ("assignor", "says"),
    [
        (ASSIGNOR, "topic a-control was deleted while 1 members of a ran"),
        ("", "there is no stream application 'a': no topic a-control, or the client"),
    ],
)
def test_members_that_run_without_their_control_topic_are_to_start_again(
    assignor: str, says: str
) -> None:
    nothing: frozenset[Any] = frozenset()
    member = MemberDescription("m", None, "one", "/127.0.0.1", nothing, nothing)
    admin: Any = Admin()
    group = GroupDescription("a", "Stable", "consumer", assignor, (member,))
    with pytest.raises(MissingTopicError, match=says):
        asyncio.run(_check_exists(admin, group))
