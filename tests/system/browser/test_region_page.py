"""The page of a region in a headless Chromium, driven by Selenium, beside `kohort region status`.

Needs Chromium, ChromeDriver (Debian: chromium, chromium-driver) and `pip install selenium`.
"""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kohort.broker import EmbeddedBroker
from kohort.cli.main import app
from kohort.region import ParquetDirectory
from kohort.region.machines.records import Drain
from tests.region.regions import Running, eventually, new_topic, produce, running, worker
from tests.region.test_gone import two, written
from tests.region.ui.test_ui import TOKEN, page

# Keys as WebDriver names them (W3C WebDriver, 17.4.2).
TAB, ENTER, ESCAPE = "\ue004", "\ue007", "\ue00c"
OPERATORS, PARTITIONS, WAIT_S = ("berlin", "lisbon"), 4, 60.0
ARGUMENTS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-sync"),
    *("disable-background-networking", "disable-component-update", "window-size=1180,1240"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(offsets_topic_num_partitions=4) as made:
        yield made


@pytest.fixture(scope="module")
def region(
    broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Running]]:
    """Two operators of a region that makes checkpoints only when it is asked to."""
    address = broker.bootstrap_servers
    topic, sink = new_topic(address), ParquetDirectory(tmp_path_factory.mktemp("out"))
    produce(address, topic, PARTITIONS, 300)
    made = [worker(address, topic, sink, name, mode="operator-driven") for name in OPERATORS]
    with running(*made) as both:
        eventually(lambda: all(each.owned for each in both), "each has a share")
        yield both


@pytest.fixture(params=["light", "dark"])
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    webdriver = importlib.import_module("selenium.webdriver")
    options = webdriver.ChromeOptions()
    for each in ARGUMENTS:
        options.add_argument(f"--{each}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    scheme = [{"name": "prefers-color-scheme", "value": request.param}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    try:
        yield driver
    finally:
        driver.quit()


def status(address: str, name: str) -> dict[str, Any]:
    """Return what the command says of the region."""
    done = CliRunner().invoke(app, ["region", "status", name, "-b", address, "--json"])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def text(browser: Any, name: str) -> str:
    """Return the text of an element of the page."""
    found = browser.find_element("id", name).text
    assert isinstance(found, str)
    return found


def tab_to(browser: Any, wanted: str) -> Any:
    """Press Tab until an element has the focus, and return it."""
    for _ in range(20):
        focused = browser.switch_to.active_element
        if focused.get_attribute("id") == wanted:
            return focused
        focused.send_keys(TAB)
    raise AssertionError(f"the keyboard does not reach {wanted}")


def hosts_asked(browser: Any) -> set[str]:
    """Return the addresses that the page has loaded something from."""
    messages = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    sent = [each for each in messages if each["method"] == "Network.requestWillBeSent"]
    urls = [each["params"]["request"]["url"] for each in sent]
    return {url.split("/")[2] for url in urls if url.startswith("http")}


def test_the_page_shows_what_status_says_and_acts_by_the_keyboard(
    broker: EmbeddedBroker, region: list[Running], browser: Any, tmp_path: Path
) -> None:
    address, name = broker.bootstrap_servers, region[0].worker.region
    with page(address, name) as served:
        browser.get(f"http://127.0.0.1:{served.port}/")
        eventually(lambda: text(browser, "phase") == "processing", "the page shows the phase")
        before = status(address, name)
        assert text(browser, "phase").upper() == before["phase"]
        assert text(browser, "completed").split("\n")[0] == str(before["completed"])
        shown = text(browser, "operators")
        for each in OPERATORS:
            assert each in shown

        tab_to(browser, "drain").send_keys(ENTER)
        done = f"Checkpoint {before['completed'] + 1} is complete"
        eventually(lambda: text(browser, "result").startswith(done), "a checkpoint is made", WAIT_S)
        assert status(address, name)["completed"] == before["completed"] + 1

        tab_to(browser, "reset").send_keys(ENTER)
        dialog = browser.find_element("id", "confirm")
        eventually(dialog.is_displayed, "the page asks first")
        browser.switch_to.active_element.send_keys(ESCAPE)
        eventually(lambda: not dialog.is_displayed(), "Escape closes the question")
        assert status(address, name)["attempt"] == before["attempt"]

        tab_to(browser, "reset").send_keys(ENTER)
        eventually(dialog.is_displayed, "the page asks again")
        browser.switch_to.active_element.send_keys(TAB)
        browser.switch_to.active_element.send_keys(ENTER)
        goes_on = f"Attempt {before['attempt'] + 1} continues"
        eventually(lambda: text(browser, "result").startswith(goes_on), "it goes on", WAIT_S)
        after = status(address, name)
        assert after["attempt"] == before["attempt"] + 1
        eventually(lambda: "reset" in text(browser, "happenings").lower(), "the reset is listed")

        assert [each for each in browser.get_log("browser") if each["level"] == "SEVERE"] == []
        assert hosts_asked(browser) == {f"127.0.0.1:{served.port}"}
        assert browser.save_screenshot(str(tmp_path / "page.png"))


def test_an_open_page_says_that_it_needs_another_token(
    broker: EmbeddedBroker, region: list[Running], browser: Any
) -> None:
    """It goes on by itself after a restart with the same token."""
    address, name = broker.bootstrap_servers, region[0].worker.region
    with page(address, name, TOKEN) as served:
        browser.get(f"http://127.0.0.1:{served.port}/?token={TOKEN}")
        eventually(lambda: text(browser, "phase") == "processing", "the page shows the phase")
    eventually(lambda: "does not answer" in text(browser, "connection"), "it says so")
    with page(address, name, TOKEN, served.port):
        eventually(lambda: text(browser, "connection") == "", "it goes on", WAIT_S)
    eventually(lambda: "does not answer" in text(browser, "connection"), "it says so again")
    with page(address, name, f"another-{TOKEN}", served.port):
        eventually(lambda: "needs its token" in text(browser, "connection"), "it tells", WAIT_S)
        link = browser.find_element("css selector", "#connection a")
        assert link.get_attribute("href") == f"http://127.0.0.1:{served.port}/"


def test_the_page_of_operators_that_were_killed_says_gone_and_its_buttons_why(
    broker: EmbeddedBroker, browser: Any, tmp_path: Path
) -> None:
    address = broker.bootstrap_servers
    name = new_topic(address)
    written(address, name, [*two(f"group-{name}"), Drain(1, "c", 1, 1)])
    with page(address, name) as served:
        browser.get(f"http://127.0.0.1:{served.port}/")
        eventually(lambda: text(browser, "phase") == "gone", "the page shows it", WAIT_S)
        assert "no operator is running, none is in group" in text(browser, "waits-for")
        assert "(for " in text(browser, "waits-for")
        assert text(browser, "operators").count("gone") == 2
        for each in ("drain", "reset"):
            tab_to(browser, each).send_keys(ENTER)
            assert text(browser, "result").startswith("Nothing to ask: no operator is running")
        assert not browser.find_element("id", "confirm").is_displayed()
        assert browser.save_screenshot(str(tmp_path / "page.png"))
