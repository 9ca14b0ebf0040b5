"""InitProducerId: the identity of an idempotent producer (KIP-98)."""

from __future__ import annotations

from typing import Annotated

from kohort.wire.codec.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Request,
    message,
    since,
)


@message(api_key=22, versions=(0, 6), flexible_since=2)
class InitProducerIdRequest(Request["InitProducerIdResponse"], frozen=True, kw_only=True):
    """Ask for a producer id."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1
    enable2_pc: Annotated[Bool, since(6)] = False
    keep_prepared_txn: Annotated[Bool, since(6)] = False


@message(api_key=22, versions=(0, 6), flexible_since=2)
class InitProducerIdResponse(Message, frozen=True, kw_only=True):
    """A producer id and its epoch."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Annotated[Int64, since(6)] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, since(6)] = -1
