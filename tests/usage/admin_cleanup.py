"""Clean up after a test: delete groups and topics; missing ones are named, the rest is deleted.

Prints:
    groups deleted, one was not there: GROUP_ID_NOT_FOUND
    topics deleted, one was not there: UNKNOWN_TOPIC_OR_PARTITION
    left: [] []
"""

from __future__ import annotations

from kohort import AdminClient, Consumer, TopicPartition
from kohort.errors import PartialFailureError
from tests.usage.around import start, topic_with, unique, until


def main(bootstrap: str) -> None:
    topics = [topic_with(bootstrap, 5) for _ in range(3)]
    groups = [unique("old") for _ in range(3)]
    for topic, group in zip(topics, groups, strict=True):
        with Consumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.commit({TopicPartition(topic, 0): 3})
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        try:
            admin.delete_groups([*groups, unique("never")])
        except PartialFailureError as error:
            names = [each.name for each in error.errors.values()]
            print("groups deleted, one was not there:", *names)
        try:
            admin.delete_topics([*topics, unique("never")])
        except PartialFailureError as error:
            names = [each.name for each in error.errors.values()]
            print("topics deleted, one was not there:", *names)
        until(lambda: not admin.list_topics() & {*topics}, "they are gone")
        left = {each.group_id for each in admin.list_groups()} & {*groups}
        print("left:", [*left], [*(admin.list_topics() & {*topics})])


if __name__ == "__main__":
    start(main)
