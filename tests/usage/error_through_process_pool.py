"""A job in a process pool raises a Kafka error, which reaches the parent unchanged.

Exceptions are sent pickled; one that cannot be unpickled breaks the whole pool.

Prints:
    TOPIC_ALREADY_EXISTS
    the pool still works: True
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from kohort import AdminClient, KafkaError
from kohort.client import NewTopic
from tests.usage.around import start, topic_with


def create(bootstrap: str, topic: str) -> None:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=1)])


def exists(bootstrap: str, topic: str) -> bool:
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        return topic in admin.list_topics()


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            pool.submit(create, bootstrap, topic).result(60)
        except KafkaError as error:
            print(error.name)
        print("the pool still works:", pool.submit(exists, bootstrap, topic).result(60))


if __name__ == "__main__":
    start(main)
