"""Clients can connect to the advertised address."""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kohort import AdminClient
from kohort.broker import BrokerConfig, EmbeddedBroker
from kohort.broker.net.advertised import own_name, parse, shown
from kohort.errors import ConfigError
from tests.broker.processes import DEADLINE_S, broker_command
from tests.real_kafka.broker import free_ports

KOHORT = [sys.executable, "-c", "from kohort.cli.main import main; main()"]


def address_of(servers: str) -> tuple[str, int]:
    """Return the address that the broker reports."""
    with AdminClient(bootstrap_servers=servers) as admin:
        (node,) = admin.describe_cluster()
    return node.host, node.port


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kafka.example", ("kafka.example", None)),
        ("kafka.example:9092", ("kafka.example", 9092)),
        ("10.1.2.3:1", ("10.1.2.3", 1)),
        ("[fe80::1]", ("fe80::1", None)),
        ("[2001:db8::7]:65535", ("2001:db8::7", 65535)),
    ],
)
def test_what_can_be_advertised(text: str, found: tuple[str, int | None]) -> None:
    assert parse(text) == found
    assert BrokerConfig(advertised=text).advertised == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no host"),
        (":9092", "has no host"),
        ("[]:9092", "has no host"),
        ("0.0.0.0", "not an address that clients can connect to"),
        ("0.0.0.0:9092", "not an address that clients can connect to"),
        ("[::]:9092", "not an address that clients can connect to"),
        ("host:", "'' is not a port"),
        ("host:0", "'0' is not a port"),
        ("host:65536", "'65536' is not a port"),
        ("host:port", "'port' is not a port"),
        ("host:-1", "'-1' is not a port"),
        ("::1", "in brackets"),
        ("[::1", "in brackets"),
        ("[host]:1", "not an IPv6 address"),
        ("PLAINTEXT://host:1", "not HOST"),
        ("a host:1", "not HOST"),
    ],
)
def test_what_cannot_be_advertised_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EmbeddedBroker(advertised=text)


def test_clients_are_sent_where_it_was_said(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, host="127.0.0.1", advertised="localhost") as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        assert host == "localhost"
        assert address_of(broker.bootstrap_servers) == ("localhost", int(port))


def test_another_port_can_be_advertised(tmp_path: Path) -> None:
    """For example if the port of a container differs outside."""
    inside, outside = free_ports(2)
    text = f"localhost:{outside}"
    with EmbeddedBroker(tmp_path, port=inside, advertised=text) as broker:
        assert broker.bootstrap_servers == text
        assert address_of(f"127.0.0.1:{inside}") == ("localhost", outside)


def test_an_address_of_ipv6_is_in_brackets(tmp_path: Path) -> None:
    assert shown("::1", 9092) == "[::1]:9092"
    with EmbeddedBroker(tmp_path, advertised="[::1]:9092") as broker:
        assert broker.bootstrap_servers == "[::1]:9092"


def test_all_addresses_are_advertised_as_one_that_others_reach(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, host="0.0.0.0", allow_remote=True) as broker:
        told, port = address_of(broker.bootstrap_servers)
        assert broker.bootstrap_servers == shown(told, port)
        found = socket.getaddrinfo(told, port, socket.AF_INET, socket.SOCK_STREAM)
        assert found
        for *_, address in found:
            known = ipaddress.ip_address(address[0])
            assert not known.is_loopback
            assert not known.is_unspecified


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_a_machine_that_nobody_reaches_is_told(
    wildcard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> socket.socket:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "getfqdn", lambda: "container")
    monkeypatch.setattr(socket, "socket", unreachable)
    with pytest.raises(ConfigError, match="--advertised"):
        own_name(wildcard)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "kohort broker ready on 127.0.0.1:{port}\n"),
        (
            ["--advertised", "outside.example:19092"],
            "kohort broker ready on outside.example:19092, listening on 127.0.0.1:{port}\n",
        ),
        (
            ["--set", "advertised=[::1]"],
            "kohort broker ready on [::1]:{port}, listening on 127.0.0.1:{port}\n",
        ),
    ],
)
def test_the_process_names_the_address_for_clients(
    options: list[str], line: str, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    command = broker_command(tmp_path, port, *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == line.format(port=port)
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_the_command_takes_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*KOHORT, "broker", "--data", str(tmp_path), "--advertised", "0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    assert "not an address that clients can connect to" in done.stderr
    helped = subprocess.run(
        [*KOHORT, "broker", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "--advertised" in helped.stdout
