"""One script of events through every host: what the machines want done is the same in each.

The hosts are the embedded broker with the client over TCP, the simulator, and none at all. Spark's
source has no machine and no host of its own: it is an application of the client's consumer.
"""

from __future__ import annotations

from difflib import unified_diff
from functools import lru_cache

import pytest

from kohort.group.effects import Callback
from kohort.group.member.events import CallbackDone, GroupMembershipOperation
from tests.hosts.hosts import VANISH, Bare, Host, Simulated, over_tcp
from tests.hosts.trace import Recorder, Trace

PROTOCOLS = ("classic", "cooperative", "consumer", "draft")


def script(host: Host) -> None:
    """Two members share a topic; one leaves, another one comes and falls silent."""
    host.join("a")
    host.join("b")
    host.commit("a", 5)
    host.leave("b", GroupMembershipOperation.DEFAULT)
    host.join("c")
    host.leave("c", VANISH)
    host.commit("a", 7)
    host.leave("a", GroupMembershipOperation.DEFAULT)


def played(host: Host) -> Trace:
    recorder = Recorder()
    with recorder.recording():
        script(host)
    return recorder.trace


def differences(one: Trace, other: Trace) -> list[str]:
    """Return what one has and the other has not, in lines that can be read."""
    lines: list[str] = []
    for stream in sorted({*one, *other}):
        pair = other.get(stream, []), one.get(stream, [])
        lines += unified_diff(*pair, "the machines alone", f"this host: {stream}", n=1, lineterm="")
    return lines


@lru_cache
def bare(protocol: str) -> Trace:
    return played(Bare(protocol))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_simulator_does_what_the_machines_do(protocol: str) -> None:
    assert differences(played(Simulated(protocol)), bare(protocol)) == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_broker_and_client_do_what_the_machines_do(protocol: str) -> None:
    with over_tcp(protocol) as host:
        assert differences(played(host), bare(protocol)) == []


# ------------------------------------------------------------------- a host that is not one differs


class Deaf(Bare):
    """Does not tell an assignor what its member has got."""

    def call(self, name: str, callback: Callback) -> None:
        self.tell(name, CallbackDone(callback.token))


class Nameless(Bare):
    """Does not say who it is that asks."""

    def client_id(self, name: str) -> str:
        return "somebody"


@pytest.mark.parametrize(
    ("host", "protocol", "stream"),
    [(Deaf, "cooperative", "a asks"), (Nameless, "classic", "the coordinator says")],
)
def test_a_host_that_leaves_something_out_is_noticed(
    host: type[Bare], protocol: str, stream: str
) -> None:
    assert played(host(protocol))[stream] != bare(protocol)[stream]


def test_a_trace_has_all_that_the_script_leads_to() -> None:
    trace = bare("classic")
    assert sum("SESSION_EXPIRED" in said for said in trace["the coordinator says"]) == 2
    assert sum("OffsetCommitValue" in written for written in trace["the log has"]) == 2
    assert [said.count("REVOKED") for said in trace["a is told"]] == [0, 1] * 5
