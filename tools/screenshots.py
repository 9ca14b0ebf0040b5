"""Use the page of a region in a headless Chromium, and take screenshots: docs/images/region-*.png.

It starts an embedded broker and two workers, one of them later, resets the region, opens the page,
and presses its buttons with the keyboard. Chromium must be on the path.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chromium import Chromium, ChromiumError
from kohort.broker import EmbeddedBroker
from kohort.client import AdminClient, NewTopic
from kohort.region import ParquetDirectory
from kohort.region.inspecting import ask
from kohort.region.log.control import control_topic
from kohort.region.ui.page import Serving
from tests.region.regions import Counting, eventually, produce, running, worker

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
TOPIC = "flights"
PARTITIONS = 6
BYTES_MAX = 200_000
# Name, width, height and colour scheme of each picture; those in the documentation come first.
SIZE = (1180, 1240)
PICTURES = (("region-light.png", *SIZE, "light"), ("region-dark.png", *SIZE, "dark"))
# The pictures must not show the name of the machine.
_HOST, _USER = "worker-1.example", "anna"
NARROW = (("narrow-light.png", 360, 1600, "light"), ("narrow-dark.png", 830, 1300, "dark"))
_TAB, _ENTER = ("Tab", 9), ("Enter", 13)


@contextmanager
def page(address: str, region: str) -> Iterator[str]:
    """Serve the page of a region, and yield its address."""
    serving = Serving(region, {"bootstrap_servers": address}, "127.0.0.1", 0, None)
    thread = threading.Thread(target=lambda: asyncio.run(serving.run()))
    thread.start()
    try:
        yield serving.address
    finally:
        serving.stop()
        thread.join()


@contextmanager
def region() -> Iterator[tuple[str, str]]:
    """Run a region with some events; yield the broker's address and the region's name."""
    with (
        EmbeddedBroker(offsets_topic_num_partitions=4) as broker,
        tempfile.TemporaryDirectory() as d,
    ):
        address, sink = broker.bootstrap_servers, ParquetDirectory(Path(d))
        with AdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
        produce(address, TOPIC, PARTITIONS, 60_000)
        slow = {"function": Counting(pause_s=0.05), "period_ms": 2_000}
        with running(worker(address, TOPIC, sink, "berlin", **slow)) as (one,):
            eventually(lambda: one.completed > 2, "the first one works")
            with running(worker(address, TOPIC, sink, "lisbon", **slow)) as (two,):
                eventually(lambda: two.owned == PARTITIONS // 2, "the second one has its share")
                eventually(lambda: one.completed > 5, "both go on")
                name = one.worker.region
                settings = {"bootstrap_servers": address}
                asyncio.run(ask(name, settings, "reset", why="new prices"))
                at = one.completed
                eventually(lambda: one.completed > at + 2, "it goes on after the reset")
                yield address, name


def look(browser: Chromium, address: str, target: Path, size: tuple[int, int], scheme: str) -> None:
    """Open the page and take a screenshot.

    Raises:
        ChromiumError: The page is empty, is wider than its window, or logs errors.
    """
    browser.open(address, *size, scheme)
    browser.wait("document.querySelectorAll('#happenings tr').length > 8")
    browser.wait("document.getElementById('lag').textContent[0] !== '?'")
    if browser.value("document.documentElement.scrollWidth > innerWidth"):
        raise ChromiumError(f"the page is wider than {size[0]} pixels")
    browser.photograph(target)


def use(browser: Chromium, address: str, folder: Path | None) -> None:
    """Request a checkpoint and a reset, using only the keyboard.

    Raises:
        ChromiumError: An expected effect does not occur.
    """
    browser.open(address, *SIZE)
    browser.wait("document.getElementById('drain').ariaDisabled === 'false'")
    tab_to(browser, "drain")
    browser.press(*_ENTER)
    browser.wait("/^Checkpoint .* is complete/.test(document.getElementById('result').textContent)")
    if browser.value("document.activeElement.id") != "drain":
        raise ChromiumError("the button has lost the focus")
    tab_to(browser, "reset")
    browser.press(*_ENTER)
    browser.wait("document.getElementById('confirm').open")
    if folder is not None:
        browser.photograph(folder / "confirm.png")
    browser.press("Escape", 27)  # nothing is reset
    browser.wait("!document.getElementById('confirm').open")
    browser.press(*_ENTER)
    browser.wait("document.getElementById('confirm').open")
    browser.press(*_TAB)
    browser.press(*_ENTER)
    browser.wait("/^Attempt .* continues/.test(document.getElementById('result').textContent)")


def look_at_the_rest(browser: Chromium, address: str, broker: str, name: str, folder: Path) -> None:
    """Take screenshots of the partitions, and of a region whose control topic was deleted."""
    browser.open(address, 700, 1400, "dark")
    browser.wait("document.querySelectorAll('#partitions tr').length > 3")
    browser.value("document.querySelector('details').open = true")
    browser.photograph(folder / "partitions.png")
    with AdminClient(bootstrap_servers=broker) as admin:
        admin.delete_topics([control_topic(name)])
    browser.wait("document.getElementById('failure-text').textContent !== ''")
    browser.photograph(folder / "gone.png")


def tab_to(browser: Chromium, wanted: str) -> None:
    """Press Tab until something has the focus.

    Raises:
        ChromiumError: It never gets the focus.
    """
    for _ in range(20):
        if browser.value("document.activeElement.id") == wanted:
            return
        browser.press(*_TAB)
    raise ChromiumError(f"the keyboard does not reach {wanted}")


def main(folder: Path | None = None) -> int:
    """Use the page and take screenshots; with a folder, put all there, including narrow ones."""
    platform.node = lambda: _HOST
    os.environ["LOGNAME"] = _USER
    wanted = PICTURES if folder is None else (*PICTURES, *NARROW)
    with region() as (address, name), page(address, name) as shown, Chromium() as browser:
        for file, *size, scheme in wanted:
            target = (folder or IMAGES) / str(file)
            look(browser, shown, target, (int(size[0]), int(size[1])), str(scheme))
            print(f"{target.name}: {target.stat().st_size} bytes")
            if target.stat().st_size > BYTES_MAX:
                return 1
        use(browser, shown, folder)
        if browser.complaints:
            print("\n".join(browser.complaints))
            return 1
        if folder is not None:
            look_at_the_rest(browser, shown, address, name, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
