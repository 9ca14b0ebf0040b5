"""`kohort broker --security FILE`: clients of any kind connect with the files it writes."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import confluent_kafka as foreign
import pytest
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from kohort.broker.process import parser
from kohort.cli.main import app
from tests.broker.processes import BrokerProcess
from tests.broker.test_process import failing

SECURED = """
protocol = "SASL_SSL"
mechanisms = ["SCRAM-SHA-512"]
client_certificates = true
[users]
alice = "alice-secret"
bob = 'b"\\o b'
"""


def test_the_files_that_it_writes_are_all_that_clients_need(tmp_path: Path) -> None:
    file, folder = tmp_path / "security.toml", tmp_path / "clients"
    file.write_text(SECURED)
    options = ("--security", str(file), "--client-files", str(folder))
    with BrokerProcess(tmp_path / "data", *options):
        names = ["alice.conf", "alice.properties", "bob.conf", "bob.properties"]
        assert sorted(each.name for each in folder.iterdir()) == names
        assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
        settings: dict[str, str | int | float | bool] = {}
        for name in ("alice", "bob"):
            lines = (folder / f"{name}.conf").read_text().splitlines()
            settings |= dict(line.split("=", 1) for line in lines)
            assert AdminClient(settings).list_topics(timeout=60).brokers
            listed = kohort(
                "topics", "list", "-b", str(settings["bootstrap.servers"]),
                "--command-config", str(folder / f"{name}.properties"),
            )  # fmt: skip
            assert listed.stderr == ""
            assert listed.returncode == 0
        wrong = settings | {"sasl.password": "guessed"}
        with pytest.raises(foreign.KafkaException):
            AdminClient(wrong).list_topics(timeout=5)


def kohort(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kohort", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("protocol = 5", "security.toml: .*protocol"),
        ('protocol = "PLAINTEXT"', "security.toml: .*PLAINTEXT"),
        ('protocol = "SASL_PLAINTEXT"', "security.toml: .*users"),
        ('protocol = "SSL"\nkeystor = "x"', "security.toml: .*keystor"),
        ('protocol = "SSL"\nkeystore = "missing.pem"', "PEM"),
        ("protocol", "security.toml: "),
        ('protocol = "SASL_PLAINTEXT"\n[users]\n"a/b" = "c"', "cannot be used as a file name"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "security.toml"
    file.write_text(text)
    options = ("--security", str(file), "--client-files", str(tmp_path / "clients"))
    (line,) = failing(tmp_path / "data", 0, *options)
    assert re.search(said, line)


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    (line,) = failing(tmp_path, 0, "--security", str(tmp_path / "none.toml"))
    assert "none.toml: No such file" in line
    (line,) = failing(tmp_path, 0, "--client-files", str(tmp_path / "clients"))
    assert "--client-files needs --security" in line


def test_the_command_has_each_option_of_the_process() -> None:
    shown = CliRunner().invoke(app, ["broker", "--help"], env={"COLUMNS": "200"}).output
    for action in parser()._actions:
        assert action.option_strings[-1] in shown
