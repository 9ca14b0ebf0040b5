"""The examples of services: their tests pass, and find the bug that is planted in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.sessions import Bug, assert_found, example, ran

COMMITS_TOO_SOON = Bug(
    "test_confluent_kafka.py",
    """\
            ledger[order["id"]] = order["amount"]  # booking an order twice has no further effect
            consumer.commit(message, asynchronous=False)
""",
    """\
            consumer.commit(message, asynchronous=False)
            ledger[order["id"]] = order["amount"]
""",
    "test_an_order_that_could_not_be_booked_is_booked_after_a_restart",
)
IS_NOT_IDEMPOTENT = Bug(
    "test_aiokafka.py",
    "enable_idempotence=True",
    "enable_idempotence=False",
    "test_an_answer_that_is_lost_doubles_nothing",
)
BLOCKS = Bug(
    "test_fastapi.py",
    "await asyncio.to_thread(self._archive.save, self.totals)",
    "self._archive.save(self.totals)",
    "test_it_answers_while_it_gives_partitions_up",
)


@pytest.fixture
def fastapi() -> None:
    """A test that asks for it is left out where FastAPI is not installed."""


def test_services_with_other_clients(tmp_path: Path) -> None:
    assert_found(tmp_path, COMMITS_TOO_SOON, IS_NOT_IDEMPOTENT)


def test_a_service_with_kohort(tmp_path: Path) -> None:
    example(tmp_path, "test_kohort.py")
    said = ran(tmp_path)
    assert "2 passed" in said, said


@pytest.mark.usefixtures("fastapi")
def test_a_fastapi_service(tmp_path: Path) -> None:
    assert_found(tmp_path, BLOCKS)
