"""States that nobody refers to any more are removed from their topic."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from immutables import Map

from kohort.client import AdminClient, Consumer, NewTopic, Producer
from kohort.region import KeyedState, ParquetDirectory, RegionPartition
from kohort.region.machines.state import OpenDrain, Partition, RegionState
from kohort.region.operating import Operating
from kohort.region.states import StateTopic, _checkpoint_of
from kohort.types import TopicPartition
from tests.region.regions import eventually, name_of_topic, produce, running, visible, worker

PARTITIONS = 4
PARTITION = RegionPartition("t", "an-id", 0)
LEFT = b"t/an-id/0/1/1/gone.a"
LATER = b"t/an-id/0/999999/1/gone.a"


def states_in(address: str, topic: str) -> dict[bytes, bytes | None]:
    """The last value of each key."""
    found: dict[bytes, bytes | None] = {}
    place = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            for record in consumer.poll(1_000).get(place, []):
                found[record.key] = record.value
    return found


@pytest.mark.parametrize("at_the_end", [False, True])
def test_what_a_killed_process_has_left_is_removed(
    address: str, tmp_path: Path, at_the_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what belongs to a checkpoint that is still to come, and nothing foreign.

    An end may also come while states that the last checkpoint has replaced are being removed.
    """
    remove = Operating._remove_replaced

    async def at_last(of: Operating, state: RegionState) -> None:
        await asyncio.wait([of.closed])
        await remove(of, state)

    if at_the_end:
        monkeypatch.setattr(Operating, "_remove_replaced", at_last)
    topic = name_of_topic()
    states = f"__kohort-region-region-{topic}-state"
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    produce(address, topic, PARTITIONS, 100)
    with running(worker(address, topic, ParquetDirectory(tmp_path))):
        eventually(lambda: visible(tmp_path) == 100, "a checkpoint is complete")
    with Producer(bootstrap_servers=address) as left_by:
        for key in (LEFT, LATER, b"foreign"):
            left_by.send(states, b"{}", key, partition=0)
    with running(worker(address, topic, ParquetDirectory(tmp_path), "two")):
        eventually(lambda: states_in(address, states)[LEFT] is None, "it is removed")
        produce(address, topic, PARTITIONS, 100, first=100)
        eventually(lambda: visible(tmp_path) == 200, "states are there where they are needed")
    found = states_in(address, states)
    assert found[LATER] == found[b"foreign"] == b"{}"
    others = [each for key, each in found.items() if key not in (LEFT, LATER, b"foreign")]
    assert sum(each is not None for each in others) == PARTITIONS


def test_a_sweep_removes_nothing_to_which_the_open_checkpoint_may_refer() -> None:
    """Its contributions name states that the log does not show yet."""
    removed: list[bytes] = []

    async def written() -> dict[bytes, tuple[int, int]]:
        return {b"replaced": (1, 2), b"kept": (2, 3), b"left": (3, 3), b"open": (4, 4)}

    async def send(_topic: str, _value: None, key: bytes, **_: int) -> asyncio.Future[None]:
        removed.append(key)
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    known = Partition(position=9, state="2:1:x")
    state = RegionState(
        completed=3, checkpoint=4, drain=OpenDrain(4, Map()), partitions=Map({PARTITION: known})
    )
    topic = cast("Any", StateTopic("r", {}))
    topic._written, topic._producer = written, SimpleNamespace(send=send)
    assert asyncio.run(topic.sweep(state)) == 2
    assert removed == [b"replaced", b"left"]


@pytest.mark.parametrize("key", [b"", b"foreign", b"t/i/0/x/1/w", b"t/i/0/-1/1/w"])
def test_a_foreign_key_names_no_checkpoint(key: bytes) -> None:
    assert _checkpoint_of(key) is None


@pytest.mark.parametrize(
    ("state", "key"),
    [
        ({7: 1}, "7 of type int"),
        ({"a": {None: 1}}, "None of type NoneType"),
        ({"a": [1, [{True: 1}]]}, "True of type bool"),
        ({"a": 1, b"b": 1}, "b'b' of type bytes"),
    ],
)
def test_a_key_that_is_no_text_is_refused(state: dict[Any, Any], key: str) -> None:
    """It would come back as a text, beside which the function would put the same key again."""
    with pytest.raises(TypeError, match=f"the state has the key {key}"):
        KeyedState(state).to_bytes()


def test_a_state_comes_back_as_it_was() -> None:
    state = KeyedState({"a": {"b": [1, {"c": None}]}, "7": 1.5, "": "x"})
    assert KeyedState.from_bytes(state.to_bytes()) == state
