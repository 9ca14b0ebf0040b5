"""The Python blocks of pages that have no test of their own do what they say."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kohort import RebalanceListener
from kohort.broker import EmbeddedBroker, Security
from kohort.group.assignors import RangeAssignor
from kohort.testing import simulate

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def run(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "a block of a page", "exec"), names)
    return names


def unsigned() -> str:
    """A token that nobody has signed."""
    claims = {"sub": "alice", "exp": time.time() + 600, "iat": time.time()}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


@pytest.mark.parametrize(("page", "number"), [("broker", 0), ("broker", 1), ("internals/draft", 0)])
def test_a_block_runs_as_it_is(page: str, number: int) -> None:
    left = run(blocks(page)[number])
    if "consumer" in left:
        left["consumer"].close()


def test_the_blocks_of_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a few seeds: tests/testing plays many."""

    def few(*listener: Any, seeds: range = range(3), **options: Any) -> None:
        simulate(*listener, seeds=seeds[:3], **options)

    first, second = blocks("simulation")
    monkeypatch.setattr("kohort.testing.simulate", few)
    names = run(first, MyListener=RebalanceListener, MyAssignor=RangeAssignor)
    names["test_my_listener"]()
    names["test_my_assignor"]()
    monkeypatch.undo()
    run(second)["test_my_listener"]()


def test_the_blocks_of_security() -> None:
    consuming, producing, _ = blocks("security")
    security = Security("SASL_SSL", users={"alice": "alice-secret"})
    with EmbeddedBroker(security=security) as broker:
        ca = broker.client_settings("alice")["ssl.ca.location"]
        code = consuming.replace("broker.example:9093", broker.bootstrap_servers)
        with run(code.replace("ca.pem", ca), password="alice-secret")["consumer"] as consumer:
            assert consumer.topics() == set()
    bearer = Security("SASL_SSL", mechanisms=("OAUTHBEARER",))
    with EmbeddedBroker(security=bearer) as broker:
        ca = broker.client_settings()["ssl.ca.location"]
        code = producing.replace("broker.example:9093", broker.bootstrap_servers)
        code = code.replace("sasl_mechanism=", f'ssl_ca_location="{ca}", sasl_mechanism=')
        with run(code, my_tokens=SimpleNamespace(get=unsigned))["producer"] as producer:
            assert producer.send("t", b"v").result(60).offset == 0


def test_the_block_of_acls(capsys: pytest.CaptureFixture[str]) -> None:
    allowing = blocks("security")[2]
    security = Security("SASL_PLAINTEXT", users={"root": "secret"}, super_users=["root"])
    with EmbeddedBroker(security=security) as broker:
        run(allowing, settings=broker.client_settings("root"))
    assert "operation='write'" in capsys.readouterr().out
