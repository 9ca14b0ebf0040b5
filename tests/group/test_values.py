"""Guarantees of all value classes."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT, Struct, field

import kohort.client
import kohort.group
import kohort.wire
from kohort.broker.config import BrokerConfig
from kohort.client.config.definitions import AdminConfig, ConsumerConfig, ProducerConfig
from kohort.group.coordinator.config import CoordinatorConfig
from kohort.values import defaults, replace


class Base(Struct, frozen=True):
    first: int
    second: tuple[int, ...] = ()


class Derived(Base, frozen=True):
    third: list[int] = field(default_factory=list)


class Named(Struct, frozen=True, kw_only=True):
    zone: str = "none"
    first: int


class NamedDerived(Named, frozen=True, kw_only=True):
    last: int


class Open(Struct):
    first: int
    second: list[int] = field(default_factory=list)


class Checked(Struct, frozen=True):
    first: int

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError("below 0")


def all_kinds() -> Iterator[type[Struct]]:
    """Yield every value class in the packages of clients, brokers and members."""
    for package in (kohort.group, kohort.wire, kohort.client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    waiting = [Struct]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("kohort."):
            yield kind


def test_what_derives_from_frozen_values_is_frozen_and_named_fields_stay_named() -> None:
    """Options of a class do not apply to derived classes; each class repeats them."""
    kinds = list(all_kinds())
    assert len(kinds) > 400
    for kind in kinds:
        bases = [base for base in kind.__bases__ if issubclass(base, Struct) and base is not Struct]
        for base in bases:
            assert kind.__struct_config__.frozen or not base.__struct_config__.frozen, kind
            if base.__struct_fields__ and not base.__match_args__:
                assert not kind.__match_args__, kind


@given(st.integers(), st.integers(), st.lists(st.integers()), st.lists(st.integers()))
def test_values_are_equal_if_their_class_and_fields_are(
    first: int, other: int, third: list[int], fourth: list[int]
) -> None:
    same = first == other and third == fourth
    assert (Derived(first, third=third) == Derived(other, third=fourth)) is same
    assert (Derived(first, third=third) != Derived(other, third=fourth)) is not same
    assert Base(first) != Derived(first)
    plain: object = (first, ())
    assert Base(first) != plain


@given(st.integers(), st.lists(st.integers()))
def test_equal_values_have_the_same_hash(first: int, second: list[int]) -> None:
    assert hash(Base(first, tuple(second))) == hash(Base(first, tuple(second)))


def test_a_value_does_not_change() -> None:
    value: Any = Base(1)
    for name in ("first", "no"):
        with pytest.raises(AttributeError):
            setattr(value, name, 2)
        with pytest.raises(AttributeError):
            delattr(value, name)
    assert value == Base(1)


def test_a_value_that_is_not_frozen_does() -> None:
    value: Any = Open(1)
    value.first = 2
    assert value == Open(2, [])
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)
    with pytest.raises(AttributeError):
        value.no = 3


def test_values_share_no_default_that_changes() -> None:
    one, other = Open(1), Open(1)
    one.second.append(2)
    assert other.second == []


def test_a_value_shows_its_fields() -> None:
    assert repr(Derived(1, (2,), [3])) == "Derived(first=1, second=(2,), third=[3])"
    assert repr(NamedDerived(first=1, last=2)) == "NamedDerived(zone='none', first=1, last=2)"


@pytest.mark.parametrize("value", [Derived(1, (2,), [3]), NamedDerived(first=1, last=2), Open(1)])
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]
)
def test_a_value_can_be_pickled_and_copied(again: Any, value: object) -> None:
    assert again(value) == value
    assert type(again(value)) is type(value)


def test_a_value_in_a_ring_is_collected() -> None:
    ring: list[object] = []
    ring.append(Derived(1, third=ring))  # type: ignore[arg-type]  # a cycle of values
    assert gc.is_tracked(ring[0])
    seen = len([each for each in gc.get_objects() if type(each) is Derived])
    del ring
    gc.collect()
    assert len([each for each in gc.get_objects() if type(each) is Derived]) == seen - 1


@given(
    st.builds(Derived, st.integers(), third=st.lists(st.integers())),
    st.fixed_dictionaries({}, optional={"first": st.integers(), "third": st.just([1])}),
)
def test_a_copy_is_what_the_original_makes(value: Derived, changes: dict[str, Any]) -> None:
    before = repr(value)
    copied = replace(value, **changes)
    assert copied == Derived(
        changes.get("first", value.first), value.second, changes.get("third", value.third)
    )
    assert type(copied) is Derived
    assert "third" in changes or copied.third is value.third
    assert repr(value) == before


def test_a_copy_is_checked_like_the_original() -> None:
    assert replace(Checked(1), first=2) == Checked(2)
    with pytest.raises(ValueError, match="below 0"):
        Checked(-1)
    with pytest.raises(ValueError, match="below 0"):
        replace(Checked(1), first=-1)


def test_a_field_that_is_not_there_is_refused() -> None:
    fields: dict[str, Any] = {"fourth": 4}
    with pytest.raises(TypeError, match="'fourth'"):
        Base(1, **fields)
    with pytest.raises(TypeError, match="'fourth'"):
        replace(Base(1), **fields)


def test_the_defaults_are_those_of_the_fields() -> None:
    assert defaults(Base) == {"first": NODEFAULT, "second": ()}
    assert defaults(Named) == {"zone": "none", "first": NODEFAULT}


@pytest.mark.parametrize(
    "kind", [AdminConfig, BrokerConfig, ConsumerConfig, CoordinatorConfig, ProducerConfig]
)
def test_settings_have_defaults_that_are_values(kind: type[Struct]) -> None:
    """`defaults` would show fields with default factories."""
    assert NODEFAULT not in defaults(kind).values()
    made = kind()
    assert defaults(kind) == {name: getattr(made, name) for name in kind.__struct_fields__}
