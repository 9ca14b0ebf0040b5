"""`kohort` beside a node that is down: what is known is shown, and what is not is told."""

from __future__ import annotations

import json
from pathlib import Path

from kohort.client import AdminClient, NewTopic
from kohort.types import TopicPartition
from tests.broker.processes import eventually
from tests.cli.group_scenarios import empty_group
from tests.cli.running import as_json, ran
from tests.real_kafka.cluster import RealCluster


def leaders(bootstrap: str) -> list[int]:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        return [each.leader for each in admin.describe_topics(["flights"])["flights"]]


def test_a_partition_without_a_leader_has_no_end(tmp_path: Path) -> None:
    with RealCluster(tmp_path) as cluster:
        bootstrap = cluster.bootstrap_servers
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("flights", 3, 1)])
            eventually(lambda: "flights" in admin.list_topics(), "the topic is known")
        every = [TopicPartition("flights", number) for number in range(3)]
        group = empty_group(bootstrap, dict.fromkeys(every, 0))
        coordinator = as_json("groups", "state", group, "-b", bootstrap)["coordinator"]["id"]
        killed = 3 if coordinator == 2 else 2
        lost = leaders(bootstrap).index(killed)
        cluster.brokers[killed - 2].kill()
        eventually(lambda: -1 in leaders(bootstrap), "the partition has no leader")
        done = ran("groups", "describe", group, "-b", bootstrap, "--json")
        (described,) = as_json("topics", "describe", "flights", "-b", bootstrap)["topics"]
    assert done.returncode == 0
    assert b"the ends of some partitions are not known: " in done.stderr
    ends = [row["log_end_offset"] for row in json.loads(done.stdout)["partitions"]]
    assert ends == [None if number == lost else 0 for number in range(3)]
    assert [row["leader"] for row in described["partitions"]].index(None) == lost
    assert [row["end_offset"] for row in described["partitions"]] == ends
