"""A broker that refuses the client stops it only if no other broker accepts it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kohort import Producer
from kohort.broker import EmbeddedBroker, Security
from kohort.client.config.definitions import ClientConfig
from kohort.client.net.incidents import Incidents
from kohort.client.net.metadata import Node
from kohort.client.net.reachability import Place, Reachability
from kohort.client.net.security.auth import CredentialsError
from kohort.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ErrorCode,
    KohortError,
    TlsError,
)

GOOD = Security("SASL_PLAINTEXT", users={"a": "new"}, mechanisms=("SCRAM-SHA-256",))
BAD = Security("SASL_PLAINTEXT", users={"a": "old"}, mechanisms=("SCRAM-SHA-256",))
# The order is random: in some of these, most clients meet the refusing broker first.
CLIENTS = 6
FIRST, SECOND, THIRD = ("first", 9092), ("second", 9092), ("third", 9092)
DOWN = BrokerUnavailableError("nothing listens")


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("bad"), security=BAD) as started:
        yield started


def settings(*brokers: EmbeddedBroker) -> dict[str, str]:
    servers = ",".join(each.bootstrap_servers for each in brokers)
    return {**brokers[0].client_settings("a"), "bootstrap.servers": servers}


def test_another_bootstrap_server_accepts_the_client(
    bad: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(tmp_path, security=GOOD) as good:
        good.create_topic("t")
        for _ in range(CLIENTS):
            with Producer.from_config(settings(good, bad)) as producer:
                producer.send("t", b"value").result(60)
    told = [each for each in caplog.messages if "continuing with the other brokers" in each]
    assert all(bad.bootstrap_servers in each for each in told)


def test_the_only_one_that_accepted_the_client_comes_back(bad: EmbeddedBroker) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with EmbeddedBroker(port=port, security=GOOD) as good:
        good.create_topic("t")
        producer = Producer.from_config(settings(good, bad))
        producer.send("t", b"before").result(60)
    with producer:
        sent = producer.send("t", b"after")
        with EmbeddedBroker(port=port, security=GOOD) as good:
            good.create_topic("t")
            sent.result(60)


def test_all_bootstrap_servers_refuse_the_client(bad: EmbeddedBroker, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, security=BAD) as other:
        config = {**settings(bad, other), "sasl.password": "third", "max.block.ms": "3600000"}
        with Producer.from_config(config) as producer:
            with pytest.raises(AuthenticationError) as caught:
                producer.send("t", b"value")
            assert caught.value.fatal
        for each in (bad, other):
            assert each.bootstrap_servers in caught.value.message


def reachability(*servers: Place) -> Reachability:
    config = ClientConfig(bootstrap_servers=[f"{host}:{port}" for host, port in servers])
    return Reachability(config, Incidents("test"))


def refusal(place: Place) -> AuthenticationError:
    return AuthenticationError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{place[0]}: no")


def end(judge: Reachability, place: Place, error: KohortError, *nodes: Place) -> KohortError | None:
    """Return the replacement of an error; None if it is unchanged."""
    known = [Node(number, host, port) for number, (host, port) in enumerate(nodes)]
    try:
        judge.failed(place, error, known)
    except KohortError as found:
        return found
    return None


def test_the_last_one_to_answer_makes_it_final() -> None:
    judge = reachability(FIRST, SECOND)
    assert isinstance(end(judge, FIRST, refusal(FIRST)), BrokerUnavailableError)
    assert judge.refused is None
    found = end(judge, SECOND, DOWN)
    assert found is judge.refused
    assert isinstance(found, AuthenticationError)


def test_brokers_that_are_known_count_more_than_bootstrap_servers() -> None:
    judge = reachability(FIRST)
    judge.accepted(FIRST)
    assert isinstance(
        end(judge, SECOND, TlsError("second: another name"), SECOND, THIRD), BrokerUnavailableError
    )
    assert isinstance(end(judge, THIRD, refusal(THIRD), SECOND, THIRD), TlsError)
    assert "second: another name; third: no" in str(judge.refused)


def test_a_client_without_credentials_asks_no_other_broker() -> None:
    judge = reachability(FIRST, SECOND)
    error = CredentialsError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no token")
    assert end(judge, FIRST, error) is None
    assert judge.refused is error


def test_those_that_refuse_are_tried_last() -> None:
    judge = reachability(FIRST, SECOND)
    end(judge, FIRST, refusal(FIRST))
    assert judge.in_turn([FIRST, SECOND]) == [SECOND, FIRST]


def test_after_a_refusal_that_is_final_no_broker_can_be_reached_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    judge = reachability(FIRST)
    judge.none_reached("first: down")
    assert end(judge, FIRST, refusal(FIRST)) is None
    judge.reached([])
    assert caplog.messages[-1].endswith("the client does not reconnect")
