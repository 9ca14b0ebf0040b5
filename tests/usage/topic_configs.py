"""Look at a topic's settings, change one, and see it changed; a wrong value is refused.

Prints:
    retention.ms: 604800000
    retention.ms: 3600000
    others stayed: True
    refused: INVALID_CONFIG
"""

from __future__ import annotations

from kohort import AdminClient, KafkaError
from kohort.client import ConfigResource
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"cleanup.policy": "compact"})
    resource = ConfigResource("topic", topic)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        print("retention.ms:", value(admin, resource, "retention.ms"))
        admin.alter_configs({resource: {"retention.ms": "3600000"}})
        while value(admin, resource, "retention.ms") != "3600000":
            pass  # brokers learn of a change some time after it is acknowledged
        print("retention.ms:", value(admin, resource, "retention.ms"))
        print("others stayed:", value(admin, resource, "cleanup.policy") == "compact")
        try:
            admin.alter_configs({resource: {"retention.ms": "one hour"}})
        except KafkaError as error:
            print("refused:", error.name)


def value(admin: AdminClient, resource: ConfigResource, name: str) -> str | None:
    return admin.describe_configs([resource])[resource][name].value


if __name__ == "__main__":
    start(main)
