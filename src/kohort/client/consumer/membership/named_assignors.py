"""Find the assignors that settings name."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence

from kohort.client.config.arguments import shown
from kohort.errors import ConfigError
from kohort.group.assignors.interface import Assignor
from kohort.group.member.offers import offered


def named_assignors(key: str, given: object) -> list[Assignor]:
    """Return the assignors for the value of a setting.

    Args:
        key: The name of the setting, for errors.
        given: One assignor, class, name or import path, or a sequence of them, or a comma-separated
            string of names.

    Raises:
        ConfigError: One of them is not an assignor.
    """
    names = given.split(",") if isinstance(given, str) else given
    if isinstance(given, (Assignor, type)):
        names = [given]
    if isinstance(names, Sequence):
        names = [_made(key, each) if isinstance(each, type) else each for each in names]
    if not isinstance(names, Sequence) or not all(
        isinstance(each, (str, Assignor)) for each in names
    ):
        raise ConfigError(f"{key} contains neither a name nor an Assignor: {shown(given)}")
    found = [
        _assignor(key, each.strip()) if isinstance(each, str) else each for each in names if each
    ]
    for each in found:
        offered([each])
    return found


def _assignor(key: str, name: str) -> Assignor:
    """Find an assignor by its name, its import path or, as in Java's settings, its class name."""
    from kohort.group.assignors.builtin import BUILTIN_ASSIGNORS

    if ":" in name:
        return _imported(key, name)
    short = name.rpartition(".")[2].removesuffix("Assignor").lower()
    by_class = {each.replace("-", ""): each for each in BUILTIN_ASSIGNORS}
    found = BUILTIN_ASSIGNORS.get(name) or BUILTIN_ASSIGNORS.get(by_class.get(short, ""))
    if found is None:
        known = ", ".join(BUILTIN_ASSIGNORS)
        raise ConfigError(
            f"{key}: no assignor {name!r}; known are {known}. Name your own by its import"
            " path, package.module:Class"
        )
    return type(found)()  # assignors hold state of their member


def _imported(key: str, path: str) -> Assignor:
    """Import a class, or a function without arguments that returns an assignor, and call it."""
    try:
        made: object = pkgutil.resolve_name(path)()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{key}: {path} cannot be imported and called without arguments: {reason}"
        ) from error
    return _checked(key, path, made)


def _made(key: str, kind: type) -> Assignor:
    """Instantiate an assignor class."""
    try:
        made: object = kind()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"{key}: {kind.__name__} cannot be called without arguments: {reason}"
        ) from error
    return _checked(key, kind.__name__, made)


def _checked(key: str, name: str, made: object) -> Assignor:
    if not isinstance(made, Assignor):
        raise ConfigError(f"{key}: {name} makes no Assignor but {shown(made)}")
    return made
