"""The programs and commands of docs/tutorial.md print what the page says.

Those with Spark are in tests/system/spark/test_tutorial.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.tutorial import Terminals, after, commands, printed_by, programs
from tests.real_kafka.broker import free_ports

BROKER = "kohort broker --data broker --port 9092"
SETTINGS = ("group.min.session.timeout.ms=3000", "group.initial.rebalance.delay.ms=500")
QUICKER = {
    "        session_timeout_ms=6_000,": "        session_timeout_ms=3_000, "
    "heartbeat_interval_ms=300, auto_commit_interval_ms=300,"
}
"""For the consumers. The members of a region keep their 6 s: on a busy machine 3 s may be short."""
CREATE = "kohort topics create flights -b localhost:9092 --partitions 4"
READ = "kohort consume flights -b localhost:9092 --exit-at-end --format '%p/%o %k %s\\n' | sort"
SEND = "python producer.py 12"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Terminals]:
    """The page's broker, topic and programs, with shorter times."""
    (port,) = free_ports(1)
    page = Terminals(tmp_path, f"127.0.0.1:{port}", QUICKER)
    options = "".join(f" --set {setting}" for setting in SETTINGS)
    with page.started(BROKER.replace("9092", str(port)) + options) as broker:
        (ready,) = printed_by(BROKER)
        broker.shows(ready.replace("9092", str(port)))
        page.prints(CREATE)
        yield page


@pytest.mark.counts_records
def test_two_consumers_share_and_one_takes_over(page: Terminals) -> None:
    page.prints(SEND)
    page.prints(READ)
    with (
        page.plays("python consumer.py north") as north,
        page.plays("python consumer.py south") as south,
    ):
        north.shows(after("Terminal 3 then has"))
        page.prints(SEND)
        page.prints("kohort groups describe delays -b localhost:9092")
        page.prints("kohort groups members delays -b localhost:9092")
        with page.plays("kohort groups watch delays -b localhost:9092") as watch:
            north.kill()
            page.prints(SEND)
            south.shows(after("from its last commit"))
            watch.shows(after("newest first"))


@pytest.mark.counts_records
def test_a_region_keeps_its_totals(page: Terminals) -> None:
    for _ in range(4):
        page.prints(SEND)
    with page.started("python region.py north") as north, page.started("python region.py south"):
        page.prints("python totals.py", 0)
        page.prints("kohort region status totals -b localhost:9092", 0)
        north.kill()
        page.prints(SEND)
        page.prints("python totals.py", 1)
        page.prints("kohort region status totals -b localhost:9092", 1)


def test_every_program_and_command_is_run() -> None:
    """Here or in tests/system/spark."""
    assert sorted(programs()) == [
        *("consumer.py", "count.py", "producer.py", "region.py", "table.py", "totals.py")
    ]
    code = "".join(
        (Path(__file__).parents[1] / path).read_text()
        for path in ("docs/test_tutorial.py", "system/spark/test_tutorial.py")
    )
    code = code.replace("\\\\", "\\")
    assert [command for command, _ in commands() if command not in code] == []
