"""Values and their copies against what the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import pickle
from dataclasses import field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.member.consumer.session import MemberSession
from kohort.values import Maker, dataclass, defaults, replace


def _family(dataclass: Any) -> Any:
    """The same classes, made by one of the two."""

    class Family:
        @dataclass(frozen=True, slots=True)
        class Base:
            """What is said of it."""

            first: int
            second: tuple[int, ...] = ()

            @property
            def both(self) -> tuple[int, ...]:
                return (self.first, *self.second)

        @dataclass(frozen=True, slots=True)
        class Derived(Base):
            third: list[int] = field(default_factory=list)
            second: tuple[int, ...] = (7,)

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Named:
            zone: str
            first: int = 0
            code: str | None = None

        @dataclass(frozen=True, slots=True)
        class Mixed(Named):
            alone: str = "alone"
            other: str = "none"

        @dataclass(frozen=True, slots=True)
        class Empty:
            pass

        @dataclass(slots=True)
        class Open:
            first: int
            second: list[int] = field(default_factory=list)

        @dataclass(slots=True)
        class OpenDerived(Open):
            third: int = 0

        @dataclass(frozen=True, slots=True)
        class Checked:
            first: int

            def __post_init__(self) -> None:
                if self.first < 0:
                    raise ValueError("below 0")

    return Family


OURS, THEIRS = _family(dataclass), _family(dataclasses.dataclass)
KINDS = ("Base", "Derived", "Named", "Mixed", "Empty", "Open", "OpenDerived", "Checked")


@dataclass(frozen=True, slots=True)
class Kept:
    """What is pickled needs a name that it can be found by."""

    first: int
    second: list[int] = field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Slotless:
    first: int


def _outcome(make: Any, *given: object, **named: object) -> tuple[object, ...]:
    """What a value is like, or which error there is."""
    try:
        value = make(*given, **named)
    except (TypeError, ValueError) as error:
        return (type(error),)
    try:
        hashed: object = hash(value)
    except TypeError:
        hashed = "none"
    return repr(value), dataclasses.asdict(value), hashed


ARGUMENTS = st.lists(st.integers(-2, 2), max_size=4)
NAMED = st.dictionaries(
    st.sampled_from(["first", "second", "third", "zone", "code", "alone", "other", "no"]),
    st.integers(-2, 2),
    max_size=5,
)


@given(st.sampled_from(KINDS), ARGUMENTS, NAMED)
def test_whatever_is_given_makes_the_same_value_or_the_same_error(
    kind: str, given: list[int], named: dict[str, int]
) -> None:
    ours, theirs = getattr(OURS, kind), getattr(THEIRS, kind)
    assert _outcome(ours, *given, **named) == _outcome(theirs, *given, **named)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_has_what_it_has_from_the_standard_library(kind: str) -> None:
    ours, theirs = getattr(OURS, kind), getattr(THEIRS, kind)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__dataclass_params__.frozen is theirs.__dataclass_params__.frozen
    assert ours.__qualname__ == theirs.__qualname__
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert not hasattr(ours.__new__(ours), "__dict__")
    names = [each.name for each in dataclasses.fields(theirs)]
    assert [each.name for each in dataclasses.fields(ours)] == names


@given(st.integers(), st.integers(), st.lists(st.integers()), st.lists(st.integers()))
def test_values_are_equal_if_their_class_and_fields_are(
    first: int, other: int, third: list[int], fourth: list[int]
) -> None:
    make = OURS.Derived
    same = first == other and third == fourth
    assert (make(first, third=third) == make(other, third=fourth)) is same
    assert (make(first, third=third) != make(other, third=fourth)) is not same
    assert OURS.Base(first) != make(first)
    assert OURS.Base(first) != (first, ())


@pytest.mark.parametrize("kind", KINDS)
def test_the_defaults_are_those_of_the_fields(kind: str) -> None:
    fields = dataclasses.fields(getattr(THEIRS, kind))
    assert defaults(getattr(OURS, kind)) == {each.name: each.default for each in fields}


def test_a_value_does_not_change() -> None:
    value = OURS.Base(1)
    for name in ("first", "no"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"assign to field '{name}'"):
            setattr(value, name, 2)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"delete field '{name}'"):
            delattr(value, name)


def test_a_value_that_is_not_frozen_does() -> None:
    value = OURS.OpenDerived(1)
    value.first = value.third = 2
    assert value == OURS.OpenDerived(2, [], 2)
    assert value != OURS.Open(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)
    with pytest.raises(AttributeError):
        value.no = 3


def test_methods_of_a_class_stay_its_own() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:
        """With a text of its own."""

        first: int

        def __repr__(self) -> str:
            return "own"

    assert repr(Own(1)) == "own"
    assert Own.__doc__ == "With a text of its own."
    assert OURS.Base(1, (2, 3)).both == (1, 2, 3)


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))]
)
def test_a_value_can_be_pickled_and_copied(again: Any) -> None:
    value = Kept(1, [2])
    assert again(value) == value
    assert type(again(value)) is Kept


def test_a_value_in_a_ring_is_collected() -> None:
    ring: list[object] = []
    ring.append(OURS.Derived(1, third=ring))
    assert gc.is_tracked(ring[0])
    seen = len([each for each in gc.get_objects() if type(each) is OURS.Derived])
    del ring
    gc.collect()
    assert len([each for each in gc.get_objects() if type(each) is OURS.Derived]) == seen - 1


def test_what_was_never_set_is_missed() -> None:
    bare = Kept.__new__(Kept)
    for look in (repr, hash, lambda value: value == Kept(1)):
        with pytest.raises(AttributeError, match="first"):
            look(bare)


@given(
    st.builds(Kept, st.integers(), st.lists(st.integers())),
    st.fixed_dictionaries({}, optional={"first": st.integers(), "second": st.just([1])}),
)
def test_a_copy_is_what_the_original_makes(value: Kept, changes: dict[str, Any]) -> None:
    before = dataclasses.astuple(value)
    copied = replace(value, **changes)
    assert copied == dataclasses.replace(value, **changes)
    assert type(copied) is Kept
    assert "second" in changes or copied.second is value.second
    assert dataclasses.astuple(value) == before


def test_a_session_of_many_fields() -> None:
    session = MemberSession(member_id="north")
    assert replace(session) == session
    assert replace(session, epoch=7).epoch == 7
    assert replace(session, epoch=7) == dataclasses.replace(session, epoch=7)


def test_a_copy_is_checked_like_the_original() -> None:
    assert replace(OURS.Checked(1), first=2) == OURS.Checked(2)
    with pytest.raises(ValueError, match="below 0"):
        replace(OURS.Checked(1), first=-1)


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError, match="Base has no field 'forth'"):
        replace(OURS.Base(1), forth=4)


@pytest.mark.parametrize("value", [Slotless(1), 1, None, Kept])
def test_what_is_no_dataclass_with_slots_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        replace(value)  # type: ignore[type-var]  # the mistake is what is tested
    with pytest.raises(TypeError):
        Maker(type(value))


def test_a_maker_takes_every_field() -> None:
    assert Maker(OURS.Derived)(1, (2,), [3]) == OURS.Derived(1, (2,), [3])
    with pytest.raises(TypeError, match="Kept has 2 fields, not 1"):
        Maker(Kept)(1)


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'first'"),
        ((1, [2], 3), {}, "takes 2 positional arguments, 3 were given"),
        ((1,), {"last": 1}, "got an unexpected keyword argument 'last'"),
        ((1,), {"first": 1}, "got multiple values for argument 'first'"),
    ],
)
def test_a_mistake_is_named(given: Any, named: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"Kept\.__init__\(\) {message}"):
        Kept(*given, **named)


def test_other_classes_derive_from_values() -> None:
    @dataclasses.dataclass(frozen=True)
    class Usual(Kept):
        third: int = 3

    class Plain(Kept):
        __slots__ = ()

    assert Usual(1, [2]) == Usual(1, [2], 3)
    assert Usual(1) != Kept(1)
    assert replace(Plain(1), first=2) == Plain(2)
    assert str(inspect.signature(Plain)) == str(inspect.signature(Kept))


def test_a_default_that_values_would_share_is_refused() -> None:
    shared = type("Shared", (), {"__annotations__": {"first": "list[int]"}, "first": []})
    with pytest.raises(ValueError, match="mutable default <class 'list'> for field first"):
        dataclass(frozen=True, slots=True)(shared)


def test_a_setting_of_a_field_that_would_be_forgotten_is_refused() -> None:
    with pytest.raises(TypeError, match="field first has a setting"):

        @dataclass(frozen=True, slots=True)
        class Partly:
            first: int = field(default=0, compare=False)


def test_other_dataclasses_are_left_to_the_standard_library() -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        first: int

    assert Ordered(1) < Ordered(2)
