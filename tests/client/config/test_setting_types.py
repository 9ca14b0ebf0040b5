"""Type checkers and editors know every setting: names, types and texts are those of the config."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_type_hints

import pytest

import setting_types
from kohort.broker.config import BrokerConfig
from kohort.broker.settings import BrokerSettings
from kohort.client import AdminSettings, ConsumerSettings, ProducerSettings
from kohort.client.config.definitions import AdminConfig, ConsumerConfig, ProducerConfig
from kohort.values import defaults

ROOT = Path(__file__).resolve().parents[3]

KINDS = [
    (ConsumerConfig, ConsumerSettings),
    (ProducerConfig, ProducerSettings),
    (AdminConfig, AdminSettings),
    (BrokerConfig, BrokerSettings),
]

GOOD = """
from kohort import AdminClient, AsyncConsumer, AsyncProducer, Consumer, EmbeddedBroker, Producer
from kohort.client import AsyncAdminClient, ConsumerSettings

settings: ConsumerSettings = {"group_id": "g", "max_poll_records": 5}
Consumer("t", **settings)
Consumer("t", bootstrap_servers=["a:1"], value_deserializer=bytes.decode)
Consumer.from_config({"group.id": "g"})
EmbeddedBroker(num_partitions=3)
"""

# Each contains one mistake; the last two import a name that does not exist.
BAD = [
    f"{name}({setting})"
    for name, settings in {
        "Consumer": ("max_poll_record=5", 'fetch_min_bytes="much"', 'auto_offset_reset="middle"'),
        "AsyncConsumer": ("grup_id='g'", "enable_auto_commit=5"),
        "Producer": ("linger=5", "linger_ms=0.5"),
        "AsyncProducer": ("ack='all'", "acks=None"),
        "AdminClient": ("bootstrap='a:1'", "client_id=5"),
        "AsyncAdminClient": ("client_name='c'", "request_timeout_ms='5'"),
        "EmbeddedBroker": ("partitions=3", "port='9092'"),
    }.items()
    for setting in settings
] + ["from kohort import Consumr", "from kohort.client import NewTopics"]


def test_the_modules_are_what_the_configurations_say() -> None:
    """Run `python tools/setting_types.py` after adding or removing a setting."""
    for page in setting_types.PAGES:
        assert page.file.read_text(encoding="utf-8") == setting_types.page(page)


@pytest.mark.parametrize(("config", "settings"), KINDS)
def test_names_and_types_are_those_of_the_configuration(config: type, settings: type) -> None:
    """Checked by importing the modules; the tool reads their source."""
    hints: Mapping[str, object] = get_type_hints(settings)
    assert set(hints) == set(defaults(config))
    assert {name: get_type_hints(config)[name] for name in hints} == hints


@pytest.mark.parametrize("config", [config for config, _ in KINDS])
def test_every_setting_has_a_text_for_people(config: type) -> None:
    docs = [inspect.getdoc(each) or "" for each in config.__mro__]
    texts = {name: text for doc in docs for name, text in setting_types.described(doc).items()}
    assert [name for name in defaults(config) if len(texts.get(name, "")) < 8] == []


def test_a_type_checker_finds_each_mistake(tmp_path: Path) -> None:
    lines = [*GOOD.strip().splitlines(), *BAD]
    file = tmp_path / "application.py"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nmypy_path = {ROOT / 'src'}\nignore_missing_imports = true\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--no-error-summary"]
    found = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), str(file)],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=110,
    ).stdout.splitlines()
    wrong = {int(line.split(":")[1]) for line in found if f"{file.name}:" in line}
    first = len(lines) - len(BAD) + 1
    assert wrong == set(range(first, len(lines) + 1)), found
