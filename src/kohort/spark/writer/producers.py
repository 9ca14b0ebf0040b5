"""Producers that the tasks of one Python worker use one after the other.

Spark keeps its Python workers for many tasks. A producer that is kept with them has its
connections, its metadata and its producer id already when the next task begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kohort.client.producer.api import Producer

# Queries that write with different settings and take turns in one worker.
KEPT = 4

# The process is a part of it: a producer belongs to the process that made it.
_Key: TypeAlias = tuple[int, frozenset[tuple[str, str]]]

_idle: dict[_Key, Producer] = {}


@contextmanager
def lent(settings: Mapping[str, str]) -> Iterator[Producer]:
    """Lend a producer to one task.

    A producer whose task failed is closed without waiting: Spark repeats the task, and what the
    failed one left would be written in vain.

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
