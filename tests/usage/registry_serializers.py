"""Records in the format of a schema registry: a magic byte, the schema number, then the fields.

Serializer and deserializer are objects with `__call__`, as in every company's own library.

Prints:
    order 7 of Ada: 12.5
    order 8 of Grace: 0.25
    wire: 00 00 00 00 2a
    a value that does not fit: struct.error, and nothing was sent: offset 2
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from kohort import Consumer, Producer, TopicPartition
from tests.usage.around import start, topic_with


@dataclass
class Order:
    number: int
    customer: str
    amount: float


class OrderSerializer:
    """Schema 42: number, amount, customer."""

    def __call__(self, order: Order) -> bytes:
        head = struct.pack(">bIId", 0, 42, order.number, order.amount)
        return head + order.customer.encode()


class OrderDeserializer:
    """Deserializes any schema that it knows."""

    def __call__(self, data: bytes) -> Order:
        magic, schema, number, amount = struct.unpack_from(">bIId", data)
        assert (magic, schema) == (0, 42)
        return Order(number, bytes(data[struct.calcsize(">bIId") :]).decode(), amount)


def main(bootstrap: str) -> None:
    topic = topic_with(bootstrap)
    with Producer(bootstrap_servers=bootstrap, value_serializer=OrderSerializer()) as producer:
        producer.send(topic, Order(7, "Ada", 12.5))
        producer.send(topic, Order(8, "Grace", 0.25)).result(30)
        with Consumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            value_deserializer=OrderDeserializer(),
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            for record in consumer:
                order = record.value
                print(f"order {order.number} of {order.customer}: {order.amount}")
                if order.number == 8:
                    break
        with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as plain:
            plain.assign([TopicPartition(topic, 0)])
            print("wire:", next(iter(plain)).value[:5].hex(" "))
        try:
            producer.send(topic, Order(-1, "nobody", 0.0))
        except struct.error:
            where = producer.send(topic, Order(9, "Joan", 1.0)).result(30)
            print("a value that does not fit: struct.error,", end=" ")
            print("and nothing was sent: offset", where.offset)


if __name__ == "__main__":
    start(main)
