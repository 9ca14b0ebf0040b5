"""Producers that the tasks of one Python worker use one after the other.

Spark reuses its Python workers for many tasks. A producer that is kept in a worker already has
connections, metadata and a producer id when the next task begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kohort.client.producer.api import Producer

# Maximum number of producers: queries with different settings take turns in one worker.
KEPT = 4

# The process id is a part of the key: a producer belongs to the process that created it.
_Key: TypeAlias = tuple[int, frozenset[tuple[str, str]]]

_idle: dict[_Key, Producer] = {}


@contextmanager
def lent(settings: Mapping[str, str]) -> Iterator[Producer]:
    """Lend a producer to one task.

    A producer whose task failed is closed without waiting: Spark retries the task, so writing the
    rest of the failed one's records would be useless.

    Args:
        settings: Producer settings by Kafka's own names.
    """
    key = (os.getpid(), frozenset(settings.items()))
    producer = _idle.pop(key, None) or _made(settings)
    try:
        yield producer
    except BaseException:
        producer.close(0)
        raise
    _keep(key, producer)


def _made(settings: Mapping[str, str]) -> Producer:
    from kohort.client.producer.api import Producer

    return Producer.from_config(settings)


def _keep(key: _Key, producer: Producer) -> None:
    doubles = _idle.pop(key, None)
    _idle[key] = producer
    while len(_idle) > KEPT:
        _idle.pop(next(iter(_idle))).close()
    if doubles is not None:
        doubles.close()
