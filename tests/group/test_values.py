"""`kohort.group.values.replace` against the original of the standard library."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.member.consumer.session import MemberSession
from kohort.group.values import replace


@dataclass(frozen=True, slots=True)
class Base:
    first: int
    second: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Derived(Base):
    third: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checked:
    first: int

    def __post_init__(self) -> None:
        """Check nothing; that it is there is enough."""


@dataclass(frozen=True)
class Slotless:
    first: int


@given(
    st.builds(Derived, st.integers(), st.tuples(st.integers()), st.lists(st.integers())),
    st.fixed_dictionaries({}, optional={"first": st.integers(), "third": st.just([1])}),
)
def test_a_copy_is_what_the_original_makes(value: Derived, changes: dict[str, object]) -> None:
    before = dataclasses.astuple(value)
    copy = replace(value, **changes)  # type: ignore[arg-type]  # types are drawn to fit the names
    assert copy == dataclasses.replace(value, **changes)  # type: ignore[arg-type]  # as above
    assert type(copy) is Derived
    assert copy.second is value.second
    assert dataclasses.astuple(value) == before


def test_a_session_of_many_fields() -> None:
    session = MemberSession(member_id="north")
    assert replace(session) == session
    assert replace(session, epoch=7).epoch == 7
    assert replace(session, epoch=7) == dataclasses.replace(session, epoch=7)


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Base has no field 'forth'"):
        replace(Base(1), forth=4)  # type: ignore[call-arg]  # the mistake is what is tested


@pytest.mark.parametrize("value", [Checked(1), Slotless(1)])
def test_a_value_that_a_copy_of_slots_would_damage_is_refused(value: Checked | Slotless) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        replace(value, first=2)


@pytest.mark.parametrize("value", [1, None, Base])
def test_what_is_no_dataclass_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        replace(value)  # type: ignore[type-var]  # the mistake is what is tested
