"""The Spark programs of docs/tutorial.md share the topic and fill the table, as the page says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import EmbeddedBroker
from tests.docs.tutorial import Terminals

CREATE = "kohort topics create flights -b localhost:9092 --partitions 4"
SEND = "python producer.py 12"

# Three starts of a JVM, one after the other.
pytestmark = [pytest.mark.timeout(900), pytest.mark.counts_records]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Terminals]:
    with EmbeddedBroker(tmp_path / "data") as broker:
        yield Terminals(tmp_path, broker.bootstrap_servers)


def test_two_applications_share_a_table_and_one_is_killed(page: Terminals) -> None:
    page.prints(CREATE)
    for _ in range(3):
        page.prints(SEND)
    with page.plays("python table.py north") as north, page.plays("python table.py south") as south:
        page.prints("kohort groups describe table -b localhost:9092")
        page.prints(SEND)
        page.prints("python count.py")
        north.kill()
        with page.plays("python table.py north") as again:
            again.enter()
        south.enter()
    page.prints("python count.py")
