"""Look at a topic's settings, change one, and see it changed; a wrong value is refused.

Prints:
    retention.ms: 604800000
    retention.ms: 3600000
    others stayed: True
    refused: INVALID_CONFIG
"""

from __future__ import annotations

from kohort import AdminClient, KafkaError
from tests.usage.around import start, topic_with


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, configs={"cleanup.policy": "compact"})
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        print("retention.ms:", value(admin, topic, "retention.ms"))
        admin.alter_configs({topic: {"retention.ms": "3600000"}})
        print("retention.ms:", value(admin, topic, "retention.ms"))
        print("others stayed:", value(admin, topic, "cleanup.policy") == "compact")
        try:
            admin.alter_configs({topic: {"retention.ms": "one hour"}})
        except KafkaError as error:
            print("refused:", error.name)


def value(admin: AdminClient, topic: str, name: str) -> str | None:
    return admin.describe_configs([topic])[topic][name].value


if __name__ == "__main__":
    start(main)
