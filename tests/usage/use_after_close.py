"""Calls after `close`, and `close` twice: an error that says what happened, without a hang.

Prints:
    poll: LocalProtocolError, says closed: True
    send: LocalProtocolError, says closed: True
    list_topics: LocalProtocolError, says closed: True
    wakeup and a second close do nothing
"""

from __future__ import annotations

from kohort import AdminClient, Consumer, LocalProtocolError, Producer
from tests.usage.around import start, topic_with, unique


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap, 1)
    consumer = Consumer(topic, bootstrap_servers=bootstrap, group_id=unique("closed"))
    producer = Producer(bootstrap_servers=bootstrap)
    admin = AdminClient(bootstrap_servers=bootstrap)
    consumer.poll(timeout_ms=100)
    producer.send(topic, b"x").result(60)
    admin.list_topics()
    for client in (consumer, producer, admin):
        client.close()
    calls = {
        "poll": lambda: consumer.poll(timeout_ms=100),
        "send": lambda: producer.send(topic, b"x"),
        "list_topics": admin.list_topics,
    }
    for name, call in calls.items():
        try:
            call()
        except LocalProtocolError as error:
            print(f"{name}: LocalProtocolError, says closed:", "closed" in str(error))
    consumer.wakeup()
    for client in (consumer, producer, admin):
        client.close()
    print("wakeup and a second close do nothing")


if __name__ == "__main__":
    start(main)
