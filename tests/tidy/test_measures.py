"""Files, folders and classes have a size at which one person can read them.

What is over a measure today is listed here, and the lists only become shorter.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import checks
from tests.tidy.test_repository import CODE, ROOT, complaints, select

# A folder with more modules than this hides what belongs together.
FOLDER_MODULES_MAX = 18
# One module for each family of requests, and for each command.
LARGE_FOLDERS = {"src/kohort/wire/messages", "src/kohort/cli"}
# A module with fewer lines than this is read together with another one: it could be part of that.
MODULE_LINES_MIN = 60
# How many such modules there are, beside entry points and those of which each has one message or
# one assignor.
SMALL_MODULES = 19
ONE_EACH = ("src/kohort/wire/messages/", "src/kohort/group/assignors/")
CLASS_METHODS_MAX = 20
# Classes with more public methods: those with the calls of Kafka's clients, and five others.
KAFKA_CALLS = {"AdminClient", "AdminCore", "AsyncAdminClient", "Consumer", "SimulatedConsumer"}
WIDE_CLASSES = {"BaseWorld", "ConsumerGroup", "KafkaHarness", "Progress", "SourceMember"}
# The first calls back into asyncio protocols; the others are the top of a simulated world.
CALLED_BACK = {"BrokerConnection", "StreamsWorld", "World"}


def test_files_are_short() -> None:
    assert complaints(checks.long_file, select(*CODE)) == []


def test_folders_have_few_modules() -> None:
    modules = (path for path in select(".py", ".pyx", under=("src/",)) if "__init__" not in path)
    counts = Counter(str(Path(path).parent) for path in modules)
    large = {folder for folder, count in counts.items() if count > FOLDER_MODULES_MAX}
    assert large == LARGE_FOLDERS


def test_small_modules_become_fewer() -> None:
    small = [
        path
        for path in select(".py", under=("src/",))
        if "__" not in Path(path).name
        and not path.startswith(ONE_EACH)
        and len((ROOT / path).read_text(encoding="utf-8").splitlines()) < MODULE_LINES_MIN
    ]
    assert len(small) <= SMALL_MODULES, f"merge one with what it is read with: {small}"


def test_classes_have_few_public_methods() -> None:
    wide = {
        node.name
        for path in select(".py", under=("src/",))
        for node in ast.walk(checks.parsed((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and len(set(_public(node))) > CLASS_METHODS_MAX
    }
    assert wide <= KAFKA_CALLS | WIDE_CLASSES | CALLED_BACK


def _public(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_":
            yield each.name
