"""The page of a region, as a browser or a program talks to it; tools/screenshots.py looks at it."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from kohort.cli.main import app
from kohort.client import AdminClient, NewTopic
from kohort.errors import ConfigError, KohortError
from kohort.region import ParquetDirectory
from kohort.region.machines.state import RegionState
from kohort.region.ui.guard import Guard, is_loopback, token_of
from kohort.region.ui.page import Serving
from tests.region.regions import (
    LONG_S,
    Running,
    eventually,
    name_of_topic,
    produce,
    running,
    visible,
    worker,
)

PARTITIONS = 3
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def region(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A region that makes checkpoints only when it is asked to."""
    topic, path = name_of_topic(), tmp_path_factory.mktemp("out")
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    produce(address, topic, PARTITIONS, 300)
    made = worker(address, topic, ParquetDirectory(path), mode="operator-driven")
    with running(made) as (one,):
        eventually(lambda: one.owned == PARTITIONS, "it owns everything")
        yield one


class Browser:
    """Sends requests to a page."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.own = {"Origin": f"http://127.0.0.1:{port}"}

    def request(
        self, method: str, path: str, headers: dict[str, str] | None = None
    ) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def status(self, path: str) -> int:
        """Return the status of a page; 0: nobody listens."""
        try:
            return self.request("GET", path)[0]
        except OSError:
            return 0

    def post(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
        status, text, _ = self.request("POST", path, self.own if headers is None else headers)
        return status, json.loads(text) if text.startswith("{") else {"error": text}

    def events(self, headers: dict[str, str] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events as they come: their names and what they hold."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            connection.request("GET", "/events", headers=headers or {})
            answer = connection.getresponse()
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            name = ""
            while line := answer.readline().decode():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ").strip()
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))
        finally:
            connection.close()

    def view(self, holds: Any) -> dict[str, Any]:
        """Read events until what the page shows is as wanted."""
        return next(data for name, data in self.events() if name == "view" and holds(data))


@contextmanager
def page(address: str, region: str, token: str | None = None, port: int = 0) -> Iterator[Browser]:
    serving = Serving(region, {"bootstrap_servers": address}, "127.0.0.1", port, token)
    thread = threading.Thread(target=lambda: asyncio.run(serving.run()))
    thread.start()
    try:
        yield Browser(serving.port)
    finally:
        serving.stop()
        thread.join()


@pytest.fixture
def browser(address: str, region: Running) -> Iterator[Browser]:
    with page(address, region.worker.region) as found:
        yield found


@pytest.fixture
def guarded(address: str, region: Running) -> Iterator[Browser]:
    with page(address, region.worker.region, TOKEN) as found:
        yield found


# ------------------------------------------------------------------------------------ what it shows


def test_the_stream_says_what_the_region_is(browser: Browser, region: Running) -> None:
    view = browser.view(lambda v: v["known"] and v["operators"][0]["lag"] is not None)
    assert (view["phase"], view["error"], view["running"]) == ("PROCESSING", "", "")
    (one,) = view["operators"]
    assert (one["name"], one["condition"], len(one["partitions"])) == ("one", "ok", PARTITIONS)
    assert one["host"]
    assert one["lag"] == sum(each["end"] - each["position"] for each in one["partitions"])
    assert (view["controller"], view["unowned"]) == ("one", [])


def test_the_timeline_comes_whole_and_then_only_what_is_new(browser: Browser) -> None:
    events = (data for name, data in browser.events() if name == "timeline")
    first = next(each for each in events if each["happenings"])
    assert {"rebalance", "region"} <= {each["kind"] for each in first["happenings"]}
    browser.post("/drain")
    news = next(events)
    assert not news["fresh"]
    assert {each["kind"] for each in news["happenings"]} == {"checkpoint"}
    assert "asked for on the web page" in news["happenings"][0]["cause"]


def test_a_worker_counts_what_it_does(browser: Browser, region: Running) -> None:
    browser.post("/drain")
    browser.post("/reset")
    eventually(lambda: region.worker.metrics()["state"] == "PROCESSING", "it goes on")
    found = region.worker.metrics()
    assert (found["nPartitionsAssigned"], found["nConsumedTopics"]) == (PARTITIONS, 1)
    assert found["nPartitionRebalances"] >= 1
    assert found["drainTimeMillisMax"] >= found["drainTimeMillis"] > 0
    assert found["completed"] == region.completed
    assert found["averageDrainTimeMillis"] > 0
    assert found["averageResetTimeMillis"] > 0


def test_the_page_is_html_that_loads_nothing_from_elsewhere(browser: Browser) -> None:
    status, text, headers = browser.request("GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    for path, kind in (("/page.css", "text/css"), ("/page.js", "text/javascript")):
        status, found, headers = browser.request("GET", path)
        assert (status, headers["Content-Type"].split(";")[0]) == (200, kind)
        text += found
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_a_name_cannot_become_part_of_the_page(address: str) -> None:
    with page(address, "<script>alert(1)</script>") as browser:
        assert "<script>alert" not in browser.request("GET", "/")[1]


def test_prometheus_gets_the_same(browser: Browser) -> None:
    browser.view(lambda v: v["known"] and v["operators"][0]["lag"] is not None)
    status, text, _ = browser.request("GET", "/metrics")
    assert status == 200
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    values = {each.name: each.value for each in samples}
    assert (values["kohort_region_known"], values["kohort_region_operators"]) == (1, 1)
    lags = [each for each in samples if each.name == "kohort_region_lag_records"]
    assert {each.labels["partition"] for each in lags} == set(map(str, range(PARTITIONS)))


# ------------------------------------------------------------------------------------------ buttons


def test_a_drain_makes_a_checkpoint(browser: Browser, region: Running) -> None:
    before = region.completed
    status, said = browser.post("/drain")
    assert (status, said) == (200, {"done": f"Checkpoint {before + 1} is complete."})
    eventually(lambda: region.completed == before + 1, "the worker sees it too")


def test_a_reset_begins_an_attempt(browser: Browser, region: Running) -> None:
    assert region.worker.state is not None
    before = region.worker.state.attempt
    status, said = browser.post("/reset?force=true")
    assert status == 200
    assert said["done"].startswith(f"Attempt {before + 1} continues from checkpoint")
    resets = (
        each
        for name, data in browser.events()
        for each in data.get("happenings", ())
        if each["title"] == f"reset to attempt {before + 1}"
    )
    reset = next(resets)
    assert (reset["detail"], "asked for it" in reset["cause"]) == ("forced", True)


def test_one_thing_at_a_time(
    browser: Browser, region: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a drain waits, what comes meanwhile is refused."""
    may_end = threading.Event()

    async def slow(*_: object, **__: object) -> RegionState:
        assert await asyncio.to_thread(may_end.wait, LONG_S)
        assert region.worker.state is not None
        return region.worker.state

    monkeypatch.setattr("kohort.region.ui.page.ask", slow)
    waiting = threading.Thread(target=browser.post, args=("/drain",))
    waiting.start()
    browser.view(lambda view: view["running"] == "drain")
    refused = browser.post("/reset")
    may_end.set()
    waiting.join()
    assert refused == (409, {"error": "a drain is running already"})


# ---------------------------------------------------------------------------------- who may use it


def test_without_a_token_only_names_of_this_machine_open_the_page(browser: Browser) -> None:
    for host in ("localhost", f"127.0.0.1:{browser.port}", "[::1]:1"):
        assert browser.request("GET", "/", {"Host": host})[0] == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "a:b:c"):
        for path in ("/", "/events", "/metrics"):
            assert browser.request("GET", path, {"Host": host})[0] == 421, (host, path)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://localhost:1", "Referer": "http://127.0.0.1/"},
        {"Authorization": "Bearer "},
    ],
)
def test_a_change_has_to_come_from_the_page(
    browser: Browser, region: Running, headers: dict[str, str]
) -> None:
    before = region.completed
    assert browser.post("/drain", headers)[0] == 403
    assert browser.post("/reset", headers)[0] == 403
    assert region.completed == before


def test_the_page_with_a_token_needs_it(guarded: Browser) -> None:
    for path in ("/", "/events", "/metrics", "/?token=wrong", "/metrics?token=" + TOKEN):
        status, text, headers = guarded.request("GET", path)
        assert (status, headers["Set-Cookie"]) == (401, None)
        assert TOKEN not in text
    for headers_ in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}):
        assert guarded.post("/drain", guarded.own | headers_)[0] == 401
    assert guarded.request("GET", "/page.css")[0] == 200


def test_the_first_load_leaves_a_cookie_that_scripts_and_other_sites_do_not_get(
    guarded: Browser,
) -> None:
    status, _, headers = guarded.request("GET", f"/?token={TOKEN}")
    assert status == 200
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    assert TOKEN not in cookie
    known = {"Cookie": cookie}
    assert guarded.request("GET", "/metrics", known)[0] == 200
    assert guarded.request("POST", "/drain", known)[0] == 403
    assert guarded.post("/drain", known | guarded.own)[0] == 200


def test_a_cookie_outlives_a_restart_with_the_same_token(guarded: Browser) -> None:
    """The page stays open; the port may be given to `kohort region ui` each time."""

    def cookie(token: str) -> str:
        return Guard(token, guarded.port).cookie().split(";")[0]

    assert guarded.request("GET", "/metrics", {"Cookie": cookie(TOKEN)})[0] == 200
    assert guarded.request("GET", "/metrics", {"Cookie": cookie(TOKEN + "x")})[0] == 401
    assert Guard(TOKEN, 1).cookie().split("=")[1] != Guard(TOKEN, 2).cookie().split("=")[1]


def test_programs_send_the_token_in_a_header(guarded: Browser) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.request("GET", "/metrics", headers)[0] == 200
    assert guarded.post("/drain", headers)[0] == 200


def test_what_other_machines_reach_needs_a_token(tmp_path: Path) -> None:
    assert [is_loopback(each) for each in ("127.0.0.9", "::1", "0.0.0.0", "a.example")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert token_of("127.0.0.1", None) is None
    assert len(token_of("0.0.0.0", None) or "") >= 32
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert token_of("127.0.0.1", file) == TOKEN
    file.write_text("short")
    with pytest.raises(ConfigError, match="5 characters"):
        token_of("0.0.0.0", file)
    with pytest.raises(ConfigError, match="cannot be read"):
        token_of("0.0.0.0", tmp_path / "missing")


# ------------------------------------------------------------------------------------------- errors


def test_a_control_topic_that_is_deleted_is_told(address: str, tmp_path: Path) -> None:
    topic = name_of_topic()
    with AdminClient(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
        produce(address, topic, PARTITIONS, 30)
        with running(worker(address, topic, ParquetDirectory(tmp_path))) as (one,):
            eventually(lambda: visible(tmp_path) == 30, "it works")
        with page(address, one.worker.region) as browser:
            browser.view(lambda view: view["known"])
            admin.delete_topics([f"__kohort-region-{one.worker.region}"])
            view = browser.view(lambda view: view["error"])
            assert "there is no region" in view["error"] or "was deleted" in view["error"]
            assert browser.request("GET", "/")[0] == 503
            assert "kohort_region_known" in browser.request("GET", "/metrics")[1]
            status, said = browser.post("/drain")
            assert (status, "there is no region" in said["error"]) == (502, True)


def test_the_command_refuses_what_it_cannot_serve(address: str) -> None:
    with pytest.raises(KohortError, match="there is no region 'nobody'"):
        CliRunner().invoke(
            app, ["region", "ui", "nobody", "-b", address, "--port", "0"], catch_exceptions=False
        )


def test_the_command_prints_the_address_with_the_token(address: str, region: Running) -> None:
    command = [sys.executable, "-m", "kohort", "region", "ui", region.worker.region]
    command += ["-b", address, "--host", "0.0.0.0", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        found = re.fullmatch(r"region \S+: http://0\.0\.0\.0:(\d+)/\?token=(\S{32})\n", printed)
        assert found is not None, printed
        browser = Browser(int(found[1]))
        eventually(lambda: browser.status("/") == 401, "it asks for the token")
        assert browser.status(f"/?token={found[2]}") == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_quietly_while_a_page_is_open(
    address: str, region: Running, number: int
) -> None:
    command = [sys.executable, "-m", "kohort", "region", "ui", region.worker.region]
    command += ["-b", address, "--port", "0"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None
        browser = Browser(int(found[1]))
        eventually(lambda: browser.status("/") == 200, "it serves")
        events = browser.events()
        assert next(events)[0] == "view"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, "")
    finally:
        process.kill()
        process.communicate()


def test_a_port_that_is_taken_is_told(address: str, browser: Browser) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{browser.port}"):
        Serving("prices", {"bootstrap_servers": address}, "127.0.0.1", browser.port, None)
