"""Encodes and decodes messages; does no I/O.

Bytes from either side may be hostile: whatever they are, decoding returns a value or raises
`RemoteProtocolError`. Modules:

* `messages`: Kafka's messages, one file per API family; `apis`: all by key.
* `codec.schema`: how a message is declared.
* `codec.coding`: encodes and decodes one message in one version; uses `compile` and
  `primitives`.
* `codec.frame`: messages with their headers, as sent on a connection.
* `consumer_protocol`, `group_log`: structures inside other messages and in the log.
* `records`: record batches.
* `codec.limits`: bounds on sizes and counts.
"""
