"""The page and its metrics of a region whose operators were killed: they say what `status` says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kohort.client.admin.aio import AsyncAdminClient
from kohort.errors import ErrorCode, KafkaError
from kohort.region.machines.records import Drain
from tests.region.test_gone import A, joined, status, two, written
from tests.region.ui.test_ui import Browser, page


@pytest.fixture
def browser(address: str, topic: str) -> Iterator[Browser]:
    """The page of a region of two operators, whose checkpoint waits for both."""
    written(address, topic, [*two(f"group-{topic}"), Drain(1, "c", 1, 1)])
    with page(address, topic) as found:
        yield found


def metrics(browser: Browser) -> dict[str, float]:
    """Return the metrics of the region, and the phases that are 1."""
    text = browser.request("GET", "/metrics")[1]
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    found = {each.name: each.value for each in samples if "phase" not in each.labels}
    phases = {each.labels["phase"]: each.value for each in samples if "phase" in each.labels}
    return found | {name: value for name, value in phases.items() if value}


def test_all_operators_that_were_killed_are_gone(
    browser: Browser, address: str, topic: str
) -> None:
    view = browser.view(lambda v: v["known"] and v["phase"] == "GONE")
    _, said, shown = status(topic, address)
    assert view["waits_for"] == said["waits_for"]
    assert "no operator is running, none is in group" in view["waits_for"]
    assert (said["phase"], "PHASE GONE" in shown) == ("GONE", True)
    assert [each["condition"] for each in view["operators"]] == ["gone", "gone"]
    assert 0 <= view["waiting_s"] < 60
    found = metrics(browser)
    assert (found["kohort_region_operators"], found["kohort_region_group_known"]) == (0, 1)
    assert (found["GONE"], "DRAINING" in found) == (1, False)


@pytest.mark.parametrize("path", ["/drain", "/reset?force=true"])
def test_a_button_says_at_once_that_no_operator_is_running(browser: Browser, path: str) -> None:
    view = browser.view(lambda v: v["known"] and v["phase"] == "GONE")
    assert browser.post(path) == (409, {"error": view["waits_for"]})


def test_metrics_count_the_operators_that_are_in_the_group(address: str, topic: str) -> None:
    written(address, topic, [*two(f"group-{topic}"), Drain(1, "c", 1, 1)])
    told = ["drains for checkpoint 1", "gone"]
    with joined(address, topic, A), page(address, topic) as browser:
        browser.view(lambda v: v["known"] and [o["condition"] for o in v["operators"]] == told)
        found = metrics(browser)
    assert (found["kohort_region_operators"], found["DRAINING"]) == (1, 1)


def test_a_group_that_cannot_be_described_is_told_on_the_page(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no right to describe it")

    monkeypatch.setattr(AsyncAdminClient, "describe_groups", refuse)
    written(address, topic, two(f"group-{topic}"))
    with page(address, topic) as browser:
        view = browser.view(lambda v: v["known"] and v["problem"])
        found = metrics(browser)
    assert "cannot be described" in view["problem"]
    assert (found["kohort_region_operators"], found["kohort_region_group_known"]) == (2, 0)
