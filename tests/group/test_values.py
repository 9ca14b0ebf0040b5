"""`replace` and `quick` against what the standard library makes."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.member.consumer.session import MemberSession
from kohort.values import quick, replace


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    zone: str
    first: int = 0
    code: str | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class QuickNamed:
    zone: str
    first: int = 0
    code: str | None = None


@quick
@dataclass(frozen=True, slots=True)
class QuickDerived(Base):
    alone: str = "none"


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


@given(
    st.fixed_dictionaries(
        {"zone": st.text()}, optional={"first": st.integers(), "code": st.none() | st.text()}
    )
)
def test_a_quick_constructor_makes_what_the_usual_one_makes(given: dict[str, object]) -> None:
    quickly = QuickNamed(**given)  # type: ignore[arg-type]  # types are drawn to fit the names
    usual = Named(**given)  # type: ignore[arg-type]  # as above
    assert dataclasses.asdict(quickly) == dataclasses.asdict(usual)
    assert quickly == QuickNamed(**given)  # type: ignore[arg-type]  # as above
    assert replace(quickly, first=5).first == 5


def test_a_quick_constructor_has_the_signature_of_the_usual_one() -> None:
    assert inspect.signature(QuickNamed) == inspect.signature(Named)
    assert QuickDerived(1, (2,), "three") == QuickDerived(alone="three", second=(2,), first=1)
    assert QuickDerived(1) == QuickDerived(1, (), "none")
    with pytest.raises(TypeError, match=r"QuickNamed.*unexpected keyword argument 'last'"):
        QuickNamed(zone="east", last=1)  # type: ignore[call-arg]  # the mistake is what is tested
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'zone'"):
        QuickNamed()  # type: ignore[call-arg]  # as above
    with pytest.raises(dataclasses.FrozenInstanceError):
        QuickDerived(1).first = 2  # type: ignore[misc]  # as above


@pytest.mark.parametrize("cls", [Checked, Slotless, Derived, int])
def test_what_a_quick_constructor_cannot_make_is_refused(cls: type) -> None:
    with pytest.raises(TypeError):
        quick(cls)
