"""A broker serves the draft protocol only if enabled, and its groups survive a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker import EmbeddedBroker
from kohort.errors import ErrorCode
from kohort.values import replace
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.draft import (
    DraftHeartbeatRequest,
    DraftHeartbeatResponse,
    DraftJoinGroupRequest,
)
from tests.broker.peer import Peer
from tests.broker.processes import BrokerProcess
from tests.broker.test_process import failing

BEAT = DraftHeartbeatRequest(group_id="g", group_generation_id=1, consumer_id="g-here-1")
JOIN = DraftJoinGroupRequest(
    group_id="g",
    consumer_host="here",
    session_timeout_ms=20_000,
    heartbeat_frequency=3,
    topics=("t",),
    consumer_id="",
)
PRIVATE = {DraftJoinGroupRequest.api_key, DraftHeartbeatRequest.api_key}
CONSUMER = {68, 69}


@pytest.mark.parametrize(
    ("protocols", "served"),
    [
        (("classic", "consumer"), CONSUMER),
        (("classic",), set()),
        (("classic", "consumer", "draft"), CONSUMER | PRIVATE),
    ],
)
def test_only_what_is_served_is_said(
    tmp_path: Path, protocols: tuple[str, ...], served: set[int]
) -> None:
    with EmbeddedBroker(tmp_path, protocols=protocols) as broker:
        with Peer(broker.bootstrap_servers) as peer:
            request = ApiVersionsRequest(client_software_name="peer", client_software_version="1")
            answer = peer.ask(request, 4)
            keys = {each.api_key for each in answer.api_keys}
            assert keys & (CONSUMER | PRIVATE) == served
        with Peer(broker.bootstrap_servers) as peer:
            peer.send(BEAT, 0)
            if "draft" not in protocols:
                assert peer.is_closed()
            else:
                beat = peer.answer(DraftHeartbeatResponse, 0)
                assert beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_killed_broker_goes_on_with_its_draft_groups(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, "--protocols", "classic,consumer,draft") as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t", 3)
            joined = peer.ask(JOIN, 0)
            assert (joined.group_generation_id, joined.consumer_id) == (1, "g-here-1")
            assert len(joined.partitions_to_own) == 3
        broker.kill()
        broker.start()
        with Peer(broker.bootstrap_servers) as peer:
            assert peer.ask(BEAT, 0).error_code == ErrorCode.NONE
            again = peer.ask(replace(JOIN, consumer_id="g-here-1"), 0)
            assert again == joined


def test_the_command_line_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    (line,) = failing(tmp_path, 0, "--protocols", "classic,darft")
    assert "protocols" in line
