"""Each rule of tests/tidy/checks.py finds what it is for, and lets the proper form pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.tidy import checks

Check = Callable[[str], Iterator[str]]

LONG_BODY = "    pass\n" * checks.FUNCTION_LINES_MAX
LONG_PYX = "cdef int f(\n    int a,\n) nogil:\n" + LONG_BODY
SHORT_PYX = "cdef int f(int a):\n    return a\n\n\n" + "x = 1\n" * checks.FUNCTION_LINES_MAX

BAD: list[tuple[Check, str]] = [
    (checks.long_file, "\n" * (checks.FILE_LINES_MAX + 1)),
    (checks.long_functions, "def f():\n" + LONG_BODY),
    (checks.long_functions, "class C:\n async def f(self):\n" + "  pass\n" * 60),
    (checks.long_cython_functions, LONG_PYX),
    (checks.unfinished_work, "x = 1  # TO" + "DO: more"),
    (checks.unexplained_ignores, "x = f()  # type: ignore"),
    (checks.unexplained_ignores, "x = f()  # type: ignore[call-arg]"),
    (checks.unexplained_ignores, "x = f()  # noqa"),
    (checks.unexplained_ignores, "x = f()  # noqa: S603"),
    (checks.any_in_public_signatures, "def f(x: dict[str, Any]) -> int: ..."),
    (checks.any_in_public_signatures, "def f(*x: int, **y: typing.Any) -> int: ..."),
    (checks.any_in_public_signatures, "class C:\n    async def f(self) -> Any | None: ..."),
    (checks.impure_core, "import time"),
    (checks.impure_core, "def f():\n    from os.path import join"),
    (checks.impure_core, "import uuid\nx = uuid.uuid4()"),
    (checks.impure_core, "print(1)"),
    (checks.slow_dataclasses, "from dataclasses import dataclass, field"),
    (checks.slow_dataclasses, "import dataclasses\nx = dataclasses.replace(y)"),
    (checks.evasive_tests, "import pytest\npytest.skip('no')"),
    (checks.evasive_tests, "@pytest.mark.xfail\ndef test(): ..."),
    (checks.evasive_tests, "import time\ntime.sleep(1)"),
    (checks.evasive_tests, "from time import sleep"),
    (checks.evasive_tests, "await asyncio.sleep(0.1)"),
    (checks.evasive_tests, "from unittest import mock"),
    (checks.machine_paths, "see /ro" + "ot/notes.txt"),
    (checks.registry_hosts, "index-url = https://pypi.o" + "rg/simple"),
    (checks.unlinked_rule_ids, "as rule C12 demands"),
    (checks.repeated_changes, "- Faster.\n- Safer.\n- Faster."),
    (checks.misnamed_fragment, "faster.md"),
    (checks.misnamed_fragment, "faster.improved.md"),
]

GOOD: list[tuple[Check, str]] = [
    (checks.long_file, "\n" * checks.FILE_LINES_MAX),
    (checks.long_functions, "def f():\n    pass\n" + "x = 1\n" * 100),
    (checks.long_cython_functions, SHORT_PYX),
    (checks.unfinished_work, "nothing to do here, todos are elsewhere"),
    (checks.unexplained_ignores, "x = f()  # type: ignore[call-arg]  # the stub lacks a keyword"),
    (checks.unexplained_ignores, "x = f()  # noqa: S603 - the command is ours"),
    (checks.any_in_public_signatures, "def _f(x: Any) -> Any: ..."),
    (checks.any_in_public_signatures, "def f(x: AnyStr) -> object: ..."),
    (checks.impure_core, "import uuid\nfrom dataclasses import dataclass\nx: uuid.UUID"),
    (checks.slow_dataclasses, "from dataclasses import field\nfrom msgspec import Struct"),
    (checks.evasive_tests, "await asyncio.sleep(0)\nevent.wait(5)"),
    (checks.machine_paths, "GET /working/root, {host}/tmp/x, src/root/x"),
    (checks.registry_hosts, "from PyPI and Maven Central"),
    (checks.unlinked_rule_ids, "as [rule C12](docs/internals/rules.md#c12) demands, see S3"),
    (checks.repeated_changes, "- Faster.\n- Safer."),
    (checks.misnamed_fragment, "arrow-kernel.added.md"),
]


@pytest.mark.parametrize(("check", "sample"), BAD)
def test_finds(check: Check, sample: str) -> None:
    assert list(check(sample)) != []


@pytest.mark.parametrize(("check", "sample"), GOOD)
def test_lets_pass(check: Check, sample: str) -> None:
    assert list(check(sample)) == []


def test_modules_that_import_each_other_are_found() -> None:
    """For types alone too; a module that imports one of the circle is not part of it."""
    modules = {
        "p.a": "from p import b",
        "p.b": "import typing\nif typing.TYPE_CHECKING:\n    from p.c import C",
        "p.c": "from p.a import A",
        "p.d": "import p.a\nfrom p import e",
        "p.e": "",
    }
    assert set(checks.import_circle(modules)) == {"p.a", "p.b", "p.c"}
    assert checks.import_circle(modules | {"p.c": ""}) == []


def test_overused_words_are_counted_over_line_ends() -> None:
    text = "Nobody knows of\n# what; somebody's own. The renewal is told\n"
    assert checks.overused_words(text) == ["nobody", "of what", "somebody", "is told"]
