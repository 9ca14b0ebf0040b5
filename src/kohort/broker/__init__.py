"""An embedded Kafka-compatible broker: one node, for tests, demos and development.

Stability: beta for the APIs that it serves; it does not replace a cluster.
"""

from __future__ import annotations

from kohort.extras import needed_by

with needed_by("the embedded broker"):
    from kohort.broker.authorization.acls import Acl, Operation, Pattern, Permission, Resource
    from kohort.broker.config import BrokerConfig
    from kohort.broker.embedded import EmbeddedBroker
    from kohort.broker.faults import Fault
    from kohort.broker.net.security import Security

__all__ = [
    "Acl",
    "BrokerConfig",
    "EmbeddedBroker",
    "Fault",
    "Operation",
    "Pattern",
    "Permission",
    "Resource",
    "Security",
]
