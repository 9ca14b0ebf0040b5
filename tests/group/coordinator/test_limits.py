"""The memory that one client can make a group use, and the longest possible ids."""

from __future__ import annotations

from kohort.errors import ErrorCode
from tests.group.coordinator.dialogue import Dialogue

KIB = 1_024
LONG = 32_767


def test_c14_a_member_that_wants_too_much_room_is_refused_and_nobody_else() -> None:
    talk = Dialogue(group_member_max_bytes=4 * KIB)
    huge = (("range", bytes(4 * KIB)),)
    assert talk.answers[talk.join(protocols=huge)].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert talk.state == "Dead"
    a, _b = talk.stable("a", "b")
    refused = talk.answers[talk.join(a, protocols=huge)]
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert talk.state == "Stable"


def test_c14_a_group_holds_so_many_bytes_and_no_more() -> None:
    talk = Dialogue(group_max_bytes=5 * KIB)
    large = (("range", bytes(2 * KIB)),)
    a, b = talk.stable("a", "b", protocols=large)
    refused = talk.answers[talk.join(version=3, protocols=large)]
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    talk.leave((b, None))
    assert talk.answers[talk.join(a, protocols=large)].error_code == ErrorCode.NONE
    token = talk.join(version=3, protocols=large)  # there is space again
    talk.join(a, protocols=large)
    assert talk.answers[token].error_code == ErrorCode.NONE
    assert talk.shard.session.groups["g"].size == sum(
        member.size for member in talk.shard.session.groups["g"].members.values()
    )


def test_c14_who_has_no_room_any_more_leaves_its_partitions_to_the_others() -> None:
    """Found by the simulator: the member was removed, and no other was told to rejoin."""
    talk = Dialogue(group_max_bytes=5 * KIB)
    large = (("range", bytes(2 * KIB)),)
    a, b = talk.stable("a", "b", protocols=large)
    refused = talk.answers[talk.join(b, protocols=(("range", bytes(4 * KIB)),))]
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert talk.state == "PreparingRebalance"
    token = talk.join(a, protocols=large)
    assert talk.answers[token].error_code == ErrorCode.NONE


def test_c15_a_flood_of_ids_that_never_come_back_is_bounded() -> None:
    talk = Dialogue(group_max_pending_members=3)
    (a,) = talk.stable("a")
    codes = [talk.answers[talk.join(session=6_000)].error_code for _ in range(5)]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert talk.beat(a, 1) == ErrorCode.NONE
    talk.advance(6_000)
    assert talk.answers[talk.join()].error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_c15_the_longest_client_id_still_gives_a_member_id_that_can_be_sent() -> None:
    for client_id in ("x" * LONG, "é" * (LONG // 2), "\N{SLEEPING FACE}" * (LONG // 4)):
        talk = Dialogue()
        member_id = talk.new_id(client_id=client_id)
        assert len(member_id.encode()) <= LONG
        token = talk.join(member_id, client_id=client_id)
        talk.advance(200)
        talk.settle([token])
        talk.reload()  # written and read
        assert talk.beat(member_id, 1) == ErrorCode.NONE


def test_l15_of_a_reason_only_the_beginning_is_kept() -> None:
    talk = Dialogue()
    (a,) = talk.stable("a")
    talk.join(a, reason="x" * 100_000)
    assert max(len(getattr(fact, "reason", "")) for fact in talk.observed) == 255


def test_c30_the_longest_static_name_can_be_sent_and_stored() -> None:
    talk = Dialogue()
    name = "s" * LONG
    (member_id,) = talk.stable(name)
    assert len(member_id) <= LONG
    talk.reload()
    again = talk.answers[talk.join(instance=name)]
    assert (again.error_code, again.generation_id) == (0, 1)
