"""Bytes to messages and back; no sockets here.

Bytes may be hostile on both sides: whatever they are, reading gives a value or raises
`RemoteProtocolError`. Where to look:

* `messages`: Kafka's messages, one file per API family; `apis`: all by key.
* `codec.schema`: how a message is declared.
* `codec.coding`: one message in one version to bytes and back; `compile` and `primitives` do its
  work.
* `codec.frame`: messages behind their headers, as they travel on a connection.
* `consumer_protocol`, `group_log`: the bytes that travel or lie inside other messages.
* `records`: record batches.
* `codec.limits`: how large anything may be.
"""
