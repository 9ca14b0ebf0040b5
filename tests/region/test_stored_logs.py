"""Control topics that an earlier version wrote are read as they were then.

The files in `logs` hold topics of simulated regions: an offset, a key and a value in each line (a
value of null is a tombstone), and at last the state that they fold to. They are never written
again. A version whose records differ adds files of its own:

    python -m tests.region.test_stored_logs FORMAT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kohort.region.errors import RegionRecordError
from kohort.region.machines.coding import FORMAT, decode, encode
from kohort.region.machines.reader import Reader
from kohort.region.machines.records import NAMES, Exhausted, RegionSettled
from kohort.region.machines.snapshot import dump
from kohort.simulation.regions.running import run_world
from kohort.simulation.regions.scenario import draw
from kohort.simulation.regions.world import RegionWorld
from kohort.values import replace

LOGS = Path(__file__).parent / "logs"
# Together they have records of every kind, some compacted, and foreign bytes.
SEEDS = (4, 21, 59)


def lines(path: Path) -> tuple[list[tuple[int, bytes, bytes | None]], str]:
    """Return the records of a file, and the state."""
    *records, state = path.read_text(encoding="utf-8").splitlines()
    found = []
    for each in records:
        offset, key, value = json.loads(each)
        found.append((offset, key.encode("latin-1"), value and value.encode("latin-1")))
    return found, state


def kind(key: bytes, value: bytes) -> str:
    """Return the kind of a record; empty for what is none."""
    try:
        return NAMES[type(decode(key, value))]
    except RegionRecordError:
        return ""


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_stored_log_folds_to_its_state(path: Path) -> None:
    records, state = lines(path)
    reader = Reader()
    for each in records:
        reader.take(*each)
    reader.reach(records[-1][0] + 1)
    assert reader.state is not None
    assert dump(reader.state) == state


def test_every_kind_of_record_is_in_a_stored_log() -> None:
    kinds = {
        kind(key, value)
        for path in LOGS.glob(f"{FORMAT}-*.jsonl")
        for _, key, value in lines(path)[0]
        if value is not None
    }
    assert kinds == {"", *NAMES.values()}


def write(seed: int) -> None:
    """Keep the log of a simulated region."""
    world = RegionWorld(draw(seed))
    assert run_world(world).is_ok
    # Simulated regions hardly ever give up; here it is said in vain.
    world.log.append([encode(Exhausted(1, "nobody", 1, "too many resets"), "last")])
    # Nor do they have an output that is told from others.
    settled = RegionSettled("w", replace(world.settings, sink="an-id /shared/output"))
    world.log.append([encode(settled, "sink")])
    reader = Reader()
    written = []
    for offset, (key, value) in sorted(world.log.entries.items()):
        reader.take(offset, key, value)
        text = None if value is None else value.decode("latin-1")
        written.append(json.dumps([offset, key.decode("latin-1"), text]))
    reader.reach(offset + 1)
    assert reader.state is not None
    path = LOGS / f"{FORMAT}-{seed}.jsonl"
    path.write_text("\n".join([*written, dump(reader.state)]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    assert sys.argv[1:] == [str(FORMAT)], f"say that you mean format {FORMAT}"
    for each in SEEDS:
        write(each)
