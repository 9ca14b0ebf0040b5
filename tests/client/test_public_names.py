"""Applications see of a client what the reference describes, and nothing of its inside."""

from __future__ import annotations

import inspect

import pytest

import kohort
import kohort.client

BOTH_CONSUMERS = """
    assign assignment beginning_offsets client_id close commit commit_async committed current_lag
    end_offsets enforce_rebalance from_config generation_id group_metadata highwater member_id
    metrics offsets_for_times partitions_for_topic pause paused poll poll_arrow poll_membership
    position positions resume seek seek_to_beginning seek_to_end store_offsets subscribe
    subscription topic_metadata topics unsubscribe wakeup why_out
"""
BOTH_PRODUCERS = """
    abort_transaction begin_transaction client_id close commit_transaction flush from_config
    init_transactions is_in_transaction metrics send send_arrow send_offsets_to_transaction
    transaction
"""
BOTH_ADMINS = """
    alter_configs alter_group_offsets client_id close committed create_acls create_partitions
    create_topics delete_acls delete_group_offsets delete_groups delete_records delete_topics
    describe_acls describe_cluster describe_configs describe_groups describe_topics from_config
    list_group_offsets list_groups list_offsets list_topics metrics remove_group_members
    reset_group_offsets
"""
NAMES = {
    "Consumer": BOTH_CONSUMERS,
    "AsyncConsumer": BOTH_CONSUMERS,
    "Producer": BOTH_PRODUCERS,
    "AsyncProducer": BOTH_PRODUCERS,
    "AdminClient": BOTH_ADMINS,
    "AsyncAdminClient": BOTH_ADMINS,
}


@pytest.mark.parametrize("client", NAMES)
def test_a_client_has_these_public_names(client: str) -> None:
    made = getattr(kohort.client, client)()
    assert [each for each in dir(made) if not each.startswith("_")] == sorted(NAMES[client].split())


@pytest.mark.parametrize("client", NAMES)
def test_each_of_them_has_a_docstring(client: str) -> None:
    kind = getattr(kohort.client, client)
    assert [name for name in NAMES[client].split() if not inspect.getdoc(getattr(kind, name))] == []


@pytest.mark.parametrize("client", ["Consumer", "Producer", "AdminClient"])
def test_the_asyncio_client_takes_the_same_arguments(client: str) -> None:
    blocking, other = getattr(kohort, client), getattr(kohort, f"Async{client}")
    calls = [name for name in NAMES[client].split() if callable(getattr(blocking, name))]
    assert [each for each in calls if _arguments(blocking, each) != _arguments(other, each)] == []


def _arguments(client: type, call: str) -> list[tuple[str, object, object]]:
    taken = inspect.signature(getattr(client, call)).parameters.values()
    return [(each.name, each.kind, each.default) for each in taken]
