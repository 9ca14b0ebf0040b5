"""The handler of a signal raises, between any two bytecodes, while a broker starts or stops."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kohort import LocalProtocolError
from kohort.broker import EmbeddedBroker
from kohort.broker.background import Background
from tests.broker.processes import eventually
from tests.client.interrupting import interrupts

LONG_S = 60.0
EVERY = 4  # hundreds of positions: another part of them each time
pytestmark = pytest.mark.timeout(600)  # hundreds of brokers are started
OTHERS: frozenset[threading.Thread] = frozenset()


def broker(data: Path) -> EmbeddedBroker:
    return EmbeddedBroker(data, offsets_topic_num_partitions=1)


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of the process may have a broker running."""
    monkeypatch.setattr(f"{__name__}.OTHERS", frozenset(threading.enumerate()))


def threads() -> list[threading.Thread]:
    running = set(threading.enumerate()) - OTHERS
    return [each for each in running if each.name == "kohort-broker"]


def in_a_thread(function: Callable[[], object]) -> None:
    """Have another thread make a call, which must end, and well."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert not thread.is_alive(), "it hangs"
    assert found, "it failed"


def run_once(data: Path) -> bool:
    with broker(data) as made:
        return bool(made.bootstrap_servers)


def start_and_stop(made: EmbeddedBroker) -> None:
    made.start()
    made.stop()


def all_gone() -> bool:
    if threads():
        gc.collect()  # a traceback may hold what was interrupted
    for thread in threads():
        thread.join(0.05)
    return not threads()


def test_whatever_interrupts_the_start_the_broker_stops_and_starts_again(tmp_path: Path) -> None:
    count = 0
    for interrupt in interrupts(every=EVERY):
        count += EVERY
        made = broker(tmp_path)
        interrupt(made.start)
        in_a_thread(made.stop)
        in_a_thread(partial(start_and_stop, made))
    assert count > 50
    eventually(all_gone, "no thread is left")


def test_a_start_that_is_interrupted_holds_no_directory(tmp_path: Path) -> None:
    for interrupt in interrupts(every=EVERY):
        interrupt(partial(run_once, tmp_path))
        eventually(all_gone, "no thread is left")
        in_a_thread(partial(run_once, tmp_path))


def test_whatever_interrupts_the_stop_the_broker_ends(tmp_path: Path) -> None:
    for count, interrupt in enumerate(interrupts(every=EVERY)):
        made = broker(tmp_path)
        made.start()
        interrupt(made.stop)
        if count % 2:
            in_a_thread(made.stop)
        else:
            made.stop()
        in_a_thread(partial(run_once, tmp_path))
    eventually(all_gone, "no thread is left")


def test_a_broker_that_runs_is_not_started_again(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        with pytest.raises(LocalProtocolError, match="already running"):
            made.start()
        made.create_topic("t")
    assert not threads()


def test_a_broker_that_is_stopped_while_it_starts_says_so(tmp_path: Path) -> None:
    made = broker(tmp_path)
    said: list[str] = []
    starting = threading.Thread(target=lambda: said.append(started(made)), daemon=True)
    starting.start()
    eventually(lambda: made._background is not None or not starting.is_alive(), "it has begun")
    in_a_thread(made.stop)
    starting.join(LONG_S)
    assert said in (["started"], ["this broker was stopped while it was starting"])
    assert not threads()


def test_a_broker_that_was_stopped_right_before_its_start_does_not_wait() -> None:
    async def nothing() -> None:
        """Start and stop nothing."""

    background = Background(nothing, nothing)
    background.end()  # another thread has the object already
    said: list[str] = []

    def begin() -> None:
        try:
            background.begin()
        except LocalProtocolError as error:
            said.append(str(error))

    in_a_thread(begin)
    assert said == ["this broker was stopped while it was starting"]


def started(made: EmbeddedBroker) -> str:
    try:
        made.start()
    except LocalProtocolError as error:
        return str(error)
    return "started"
