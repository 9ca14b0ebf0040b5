"""Topics that the brokers refuse until an administrator or the application acts."""

from __future__ import annotations

from kohort.client.net.cluster import Cluster
from kohort.errors import KafkaError, with_right


def refusal_of_topic(cluster: Cluster, name: str, right: str) -> KafkaError | None:
    """Return why a topic cannot be used according to the last metadata; None when it can.

    Args:
        cluster: The brokers.
        name: The topic.
        right: The operation that an ACL must allow, by Kafka's name.
    """
    topic = cluster.metadata.topics.get(name)
    if topic is None or not topic.error_code or KafkaError(topic.error_code).retriable:
        return None
    creates = cluster.allow_auto_topic_creation
    text = with_right(topic.error_code, name, right, creates=creates)
    return KafkaError(topic.error_code, text)
