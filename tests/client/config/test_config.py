from __future__ import annotations

import logging

import numpy as np
import pytest

from kohort.client.config import unsupported
from kohort.client.config.definitions import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    make,
    make_from_kafka,
)
from kohort.errors import ConfigError
from kohort.wire.records import Compression


def test_an_unknown_keyword_names_the_nearest_setting() -> None:
    with pytest.raises(ConfigError, match=r"sesion_timeout_ms; did you mean session_timeout_ms\?"):
        make(ConsumerConfig, {"sesion_timeout_ms": 1})


def test_an_unknown_kafka_key_names_the_nearest_one_with_dots() -> None:
    with pytest.raises(ConfigError, match=r"auto\.ofset\.reset; did you mean auto\.offset\.reset"):
        make_from_kafka(ConsumerConfig, {"auto.ofset.reset": "latest"})


def test_kafkas_keys_take_strings_as_property_files_have_them() -> None:
    config = make_from_kafka(
        ConsumerConfig,
        {
            "bootstrap.servers": "one:9092, [::1]:9093",
            "group.id": "g",
            "session.timeout.ms": "6000",
            "enable.auto.commit": "False",
            "auto.offset.reset": "EARLIEST",
        },
    )
    assert config.addresses() == [("one", 9092), ("::1", 9093)]
    assert config.session_timeout_ms == 6000
    assert config.enable_auto_commit is False
    assert config.auto_offset_reset == "earliest"


def test_one_file_of_settings_serves_every_client() -> None:
    settings = {"bootstrap.servers": "b:1", "group.id": "g", "linger.ms": "7"}
    assert make_from_kafka(ProducerConfig, settings).linger_ms == 7
    assert make_from_kafka(ConsumerConfig, settings).group_id == "g"
    assert make_from_kafka(AdminConfig, settings).addresses() == [("b", 1)]


def test_the_defaults_are_those_of_kafkas_java_client() -> None:
    config = make(ConsumerConfig, {})
    assert config.session_timeout_ms == 45_000
    assert config.heartbeat_interval_ms == 3_000
    assert config.max_poll_interval_ms == 300_000
    assert config.max_poll_records == 500
    assert config.auto_offset_reset == "latest"
    assert config.enable_auto_commit is True
    assert config.auto_commit_interval_ms == 5_000
    assert config.fetch_max_wait_ms == 500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap_servers": "nowhere"}, "not host:port"),
        ({"bootstrap_servers": "host:99999"}, "not host:port"),
        ({"bootstrap_servers": ""}, "empty"),
        ({"session_timeout_ms": "soon"}, r"session\.timeout\.ms must be a whole number"),
        ({"session_timeout_ms": True}, "whole number"),
        ({"session_timeout_ms": np.array([1])}, r"session\.timeout\.ms must be a whole number"),
        ({"fetch_max_wait_ms": -1}, "cannot be negative"),
        ({"enable_auto_commit": "perhaps"}, "true or false"),
        ({"auto_offset_reset": "middle"}, "earliest, latest, none"),
        ({"group_id": ""}, "empty"),
        ({"heartbeat_interval_ms": 45_000}, "below session"),
        ({"heartbeat_interval_ms": 0}, "at least 1"),
        ({"partition_assignment_strategy": "best"}, "no assignor 'best'"),
        ({"value_deserializer": "org.example.Json"}, "Python callable"),
        ({"security_protocol": "SASL_SSL"}, r"sasl\.mechanism is needed"),
        ({"sasl_mechanism": "PLAIN"}, "has no effect with security.protocol=PLAINTEXT"),
        ({"bootstrap_servers": b"x:1"}, r"bootstrap\.servers must be a string or a sequence"),
        ({"bootstrap_servers": None}, "must be a string or a sequence"),
        ({"bootstrap_servers": [b"x:1"]}, "must be a str"),
        ({"bootstrap_servers": "SSL://x:1"}, "does not match security.protocol=PLAINTEXT"),
        ({"bootstrap_servers": "x:\u00b2"}, "not host:port"),
        ({"client_id": None}, r"client\.id must be a str, not None"),
        ({"client_id": "\ud800"}, "cannot be encoded"),
        ({"security_protocol": None}, "must be a str"),
        ({"session_timeout_ms": 2**31}, "2147483647 at most"),
        ({"retry_backoff_ms": 10**13}, "1000000000000 at most"),
        ({"session_timeout_ms": 10_000.0}, "whole number"),
        ({"partition_assignment_strategy": 5}, "neither a name nor an Assignor"),
        ({"auto_offset_reset": []}, "earliest, latest, none"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_reason(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make(ConsumerConfig, settings)


def test_assignors_are_found_by_name_and_by_javas_class() -> None:
    java = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    config = make_from_kafka(ConsumerConfig, {"partition.assignment.strategy": f"range,{java}"})
    assert [assignor.name for assignor in config.assignors()] == ["range", "roundrobin"]


def test_an_assignor_of_ones_own_is_found_by_its_import_path() -> None:
    path = "examples.cooperative_assignor:LongestFirst"
    config = make_from_kafka(ConsumerConfig, {"partition.assignment.strategy": f"{path}, range"})
    assert [assignor.name for assignor in config.assignors()] == ["longest-first", "range"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package:Class", "no_such_package:Class cannot be imported.*ModuleNotFoundError"),
        ("tests.client.config.test_config:Nothing", "cannot be imported.*AttributeError"),
        ("kohort.group.assignors:Assignor", "called without arguments.*abstract"),
        ("decimal:Decimal", "makes no Assignor but"),
        ("a b:c", "cannot be imported.*ValueError"),
    ],
)
def test_a_path_to_no_assignor_is_refused_with_its_reason(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_from_kafka(ConsumerConfig, {"partition.assignment.strategy": path})


def test_a_producers_acks_and_codec_are_checked() -> None:
    config = make(ProducerConfig, {"compression_type": "zstd"})
    assert (config.required_acks, config.codec) == (-1, Compression.ZSTD)
    with pytest.raises(ConfigError, match="needs acks=all"):
        make(ProducerConfig, {"acks": 1, "enable_idempotence": True})
    assert not make(ProducerConfig, {"acks": 1}).enable_idempotence
    assert not make(ProducerConfig, {"max_in_flight_requests_per_connection": 6}).enable_idempotence
    with pytest.raises(ConfigError, match=r"compression\.type"):
        make(ProducerConfig, {"compression_type": "rar"})


def test_an_address_may_name_its_protocol_and_stand_in_any_collection() -> None:
    for given in ("PLAINTEXT://one:1,plaintext://[::1]:2", ("PLAINTEXT://one:1", "[::1]:2")):
        config = make(AdminConfig, {"bootstrap_servers": given})
        assert config.addresses() == [("one", 1), ("::1", 2)]


def test_settings_of_kafkas_keys_are_a_mapping_of_strings() -> None:
    with pytest.raises(TypeError, match="settings must be a mapping"):
        make_from_kafka(AdminConfig, [("client.id", "c")])  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ConfigError, match="name must be a string, not 5"):
        make_from_kafka(AdminConfig, {5: "c"})  # type: ignore[dict-item]  # that is the point


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (ProducerConfig, "max_in_flight_requests_per_connection"),
        (ProducerConfig, "buffer_memory"),
        (ProducerConfig, "max_request_size"),
        (AdminConfig, "request_timeout_ms"),
        (ConsumerConfig, "max_poll_interval_ms"),
        (ConsumerConfig, "max_poll_records"),
        (ConsumerConfig, "session_timeout_ms"),
        (ConsumerConfig, "heartbeat_interval_ms"),
    ],
)
def test_a_setting_with_which_nothing_works_is_refused_with_its_limit(
    kind: type[AdminConfig], setting: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{setting.replace('_', '.')} is 0; .* at least 1$"):
        make(kind, {setting: 0})


@pytest.mark.parametrize("given", ["", ".", "a b", "x" * 250])
def test_an_illegal_id_of_a_static_member_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match=r"^group\.instance\.id "):
        make(ConsumerConfig, {"group_instance_id": given})


@pytest.mark.parametrize("given", [None, "none", "None"])
def test_no_compression_is_called_none(given: object) -> None:
    assert make(ProducerConfig, {"compression_type": given}).codec is Compression.NONE
    assert ProducerConfig(compression_type=None).codec is Compression.NONE


@pytest.mark.parametrize("given", ["", "rar", 0, False])
def test_what_is_no_compression_is_refused_by_its_value(given: object) -> None:
    with pytest.raises(ConfigError, match=rf"^compression\.type .*{given!r}"):
        make(ProducerConfig, {"compression_type": given})


@pytest.mark.parametrize(
    "key",
    [
        "enable.metrics.push",
        "metadata.max.idle.ms",
        "metrics.num.samples",
        "receive.buffer.bytes",
        "send.buffer.bytes",
    ],
)
@pytest.mark.parametrize("kind", [ConsumerConfig, ProducerConfig, AdminConfig])
def test_a_setting_of_kafka_that_changes_nothing_is_passed_over(
    kind: type[ClientConfig], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    unsupported._say_without_effect.cache_clear()
    with caplog.at_level(logging.INFO, "kohort.client"):
        for _ in range(2):
            assert make_from_kafka(kind, {key: "1", "client.id": "c"}).client_id == "c"
    (line,) = [each for each in caplog.records if key in each.getMessage()]
    assert line.levelno == logging.INFO
    with pytest.raises(ConfigError, match=r"does not support; remove it$"):
        make(kind, {key.replace(".", "_"): 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [("metadata.recovery.strategy", "REBOOTSTRAP"), ("client.dns.lookup", "use_all_dns_ips")],
)
def test_what_the_client_does_anyway_may_be_said(key: str, value: str) -> None:
    assert make_from_kafka(ConsumerConfig, {key: value}) == ConsumerConfig()


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("security.providers", "does not support; remove it$"),
        ("metadata.recovery.strategy", "it can only be rebootstrap"),
        ("client.dns.lookup", "it can only be use_all_dns_ips"),
        ("partitioner.class", "does not support; remove it$"),
        ("compression.gzip.level", "does not support; remove it$"),
        ("interceptor.classes", "Java classes"),
        ("metric.reporters", "Java classes"),
        ("sasl.kerberos.principal", "keyTab of Krb5LoginModule in sasl.jaas.config"),
        ("ssl.cipher.suites", "ssl_context"),
    ],
)
def test_a_setting_that_an_application_may_rely_on_is_refused(key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key}: .*{reason}"):
        make_from_kafka(ConsumerConfig, {key: "x"})
