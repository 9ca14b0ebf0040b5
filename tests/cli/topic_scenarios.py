"""What `kohort topics` must do on any broker: the embedded one and a real Kafka run the same."""

from __future__ import annotations

import uuid

from kohort.client import AdminClient, Producer
from tests.broker.processes import eventually
from tests.cli.running import as_json, printed, ran, told


def until_known(bootstrap: str, name: str) -> None:
    """A broker learns of a topic a moment after the controller has answered."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        eventually(lambda: name in admin.list_topics(), f"topic {name} is known")


def a_topic_is_made_changed_and_deleted(bootstrap: str) -> None:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    b = ("-b", bootstrap)
    made = ("topics", "create", name, "--partitions", "2", "--config", "retention.ms=-1", *b)
    assert printed(*made) == f"topic {name} was created\n"
    assert f"topic {name} was not created: TOPIC_ALREADY_EXISTS" in told(*made, code=1)
    assert "TOPIC_ALREADY_EXISTS" in printed(*made, "--if-not-exists")
    until_known(bootstrap, name)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(3):
            producer.send(name, b"v", partition=1)
    (found,) = as_json("topics", "describe", name, *b)["topics"]
    assert found["configs"] == {"retention.ms": "-1"}
    assert [(row["begin_offset"], row["end_offset"]) for row in found["partitions"]] == [
        (0, 0),
        (0, 3),
    ]
    assert printed("topics", "alter", name, "--partitions", "3", *b).startswith("topic ")
    assert "INVALID_PARTITIONS" in told("topics", "alter", name, "--partitions", "1", *b, code=1)
    listed = as_json("topics", "list", *b)["topics"]
    (row,) = [row for row in listed if row["topic"] == name]
    assert row["replication_factor"] == 1
    gone = as_json("topics", "delete", name, "nowhere", *b, code=1)
    assert gone["done"] == [name]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone["failed"]["nowhere"]
    assert "UNKNOWN_TOPIC" in printed("topics", "delete", "nowhere", "--if-exists", *b)


def settings_are_changed_one_by_one(bootstrap: str) -> None:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    b = ("-b", bootstrap)
    printed("topics", "create", name, "--config", "segment.ms=99", *b)
    until_known(bootstrap, name)
    change = ("topics", "configs", name, *b, "--set", "retention.ms=7000", "--delete", "segment.ms")

    def settings() -> dict[str, str]:
        found = as_json("topics", "configs", name, *b)["configs"]
        return {each["name"]: each["value"] for each in found}

    assert "can be changed: retention.ms, segment.ms" in printed(*change, "--dry-run")
    assert settings() == {"segment.ms": "99"}
    printed(*change)
    eventually(lambda: settings() == {"retention.ms": "7000"}, "the broker knows of the change")
    printed("topics", "configs", name, *b, "--append", "cleanup.policy=compact")
    eventually(
        lambda: settings().get("cleanup.policy") == "delete,compact", "the list has one more"
    )
    assert "INVALID_CONFIG" in told("topics", "configs", name, *b, "--set", "no=1", code=1)
    assert ran("topics", "configs", name, *b, "--set", "no").returncode == 2
