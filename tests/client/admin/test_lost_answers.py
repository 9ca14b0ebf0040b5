"""An admin call whose answer is lost is retried, and finds its own work already done."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kohort import AdminClient, TopicPartition
from kohort.client import NewTopic
from kohort.errors import ErrorCode, KohortError, PartialFailureError
from tests.client.cutting_proxy import CuttingProxy

CREATE, DELETE, PARTITIONS, DELETE_GROUPS = 19, 20, 37, 42

Call = Callable[[AdminClient, str], None]

CALLS: dict[str, tuple[int, Call, ErrorCode]] = {
    "create": (
        CREATE,
        lambda admin, name: admin.create_topics([NewTopic(f"{name}-new", 1, 1)]),
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ),
    "grow": (
        PARTITIONS,
        lambda admin, name: admin.create_partitions({name: 2}),
        ErrorCode.INVALID_PARTITIONS,
    ),
    "delete": (
        DELETE,
        lambda admin, name: admin.delete_topics([name]),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "delete a group": (
        DELETE_GROUPS,
        lambda admin, name: admin.delete_groups([name]),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
}


@pytest.mark.parametrize("which", CALLS)
def test_the_error_says_that_an_earlier_attempt_may_have_done_it(
    bootstrap: str, which: str
) -> None:
    key, call, code = CALLS[which]
    name = uuid.uuid4().hex
    with CuttingProxy(bootstrap, lambda number: number == 1) as proxy:
        proxy.loses = frozenset({key})
        with AdminClient(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(name, 1, 1)])
            admin.alter_group_offsets({TopicPartition(name, 0): 0}, name)
        with AdminClient(bootstrap_servers=proxy.bootstrap_servers) as admin:
            with pytest.raises(PartialFailureError) as caught:
                call(admin, name)
            (error,) = caught.value.errors.values()
            assert error.code == code
            assert "an earlier attempt of this call may have done it" in str(error)
            assert isinstance(error.__cause__, KohortError)
            with pytest.raises(PartialFailureError) as caught:
                call(admin, name)
            (error,) = caught.value.errors.values()
            assert error.code == code
            assert "earlier attempt" not in str(error)
        assert proxy.lost == 1
