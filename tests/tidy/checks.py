"""The rules of the house that no linter knows, each a small function: text in, complaints out."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
FILE_BYTES_MAX = 1_000_000

# One letter of each is a set of its own, so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(T[O]DO|F[I]XME|X[X]X)\b")
MACHINE_PATH = re.compile(r"(?<![\w.:/}])/(w[o]rk|r[o]ot|t[m]p|h[o]me)/\w")
REGISTRY_HOST = re.compile(
    r"\b(p[y]pi\.org|p[y]thonhosted\.org|r[e]po1?\.maven|r[e]gistry\.npmjs|n[p]mjs\.org"
    r"|c[r]ates\.io|p[r]oxy\.golang|d[e]b\.debian)\b"
)

# docs/internals/rules.md numbers Kafka's behaviour: C and K coordinators, L clients, A assignors,
# B bugs.
RULE_ID = re.compile(r"\b[CKLAB]\d{1,2}\b")
RULES_LINK = re.compile(r"\[[^\]]*\]\([^)]*rules\.md[^)]*\)")

IGNORE_COMMENT = re.compile(r"#\s*type:\s*ignore(?P<code>\[[\w, -]+\])?(?P<rest>.*)")
NOQA_COMMENT = re.compile(r"#\s*noqa(?P<code>:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?(?P<rest>.*)")
REASON_LENGTH_MIN = 8

IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "datetime",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
    }
)
IMPURE_CALLS = frozenset({"uuid.uuid1", "uuid.uuid4", "open", "print", "input"})

EVASIONS = frozenset(
    {
        "pytest.skip",
        "pytest.xfail",
        "pytest.importorskip",
        "pytest.mark.skip",
        "pytest.mark.skipif",
        "pytest.mark.xfail",
        "pytest.mark.flaky",
        "unittest.skip",
        "unittest.mock",
        "time.sleep",
    }
)

FRAGMENT_KINDS = ("added", "changed", "fixed", "removed", "security")


@functools.cache
def parsed(text: str) -> ast.Module:
    """The tree of a file, which several checks look at."""
    return ast.parse(text)


def long_file(text: str) -> Iterator[str]:
    """A file nobody can hold in mind is split before it grows further."""
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}"


def long_functions(text: str) -> Iterator[str]:
    """The same for functions."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def long_cython_functions(text: str) -> Iterator[str]:
    """The same for Cython, which `ast` cannot read: a function ends where its indentation does."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        header = re.match(r"(\s*)(?:cp?def|def)\b.*?(\w+)\(", line)
        if header:
            length = cython_function_length(lines[start:], indent=len(header[1]))
            if length > FUNCTION_LINES_MAX:
                yield f"{header[2]} has {length} lines, at most {FUNCTION_LINES_MAX}"


def cython_function_length(lines: list[str], indent: int) -> int:
    """Lines of the function that starts at the first line, blank ones at its end not counted."""
    length = 1
    for number, line in enumerate(lines[1:], start=2):
        is_closing_header = line.lstrip().startswith(")")
        if line.strip() and not is_closing_header:
            if len(line) - len(line.lstrip()) <= indent:
                break
            length = number
    return length


def unfinished_work(text: str) -> Iterator[str]:
    """Open work belongs in an issue or in the documentation, where it is looked for."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := UNFINISHED.search(line):
            yield f"line {number}: {found[0]}"


def unexplained_ignores(text: str) -> Iterator[str]:
    """A silenced checker names the rule and says why it is wrong here."""
    for number, line in enumerate(text.splitlines(), start=1):
        for comment in (IGNORE_COMMENT, NOQA_COMMENT):
            found = comment.search(line)
            if found and not (
                found["code"] and len(found["rest"].strip(" #-:")) >= REASON_LENGTH_MIN
            ):
                yield f"line {number}: {found[0].strip()}"


def any_in_public_signatures(text: str) -> Iterator[str]:
    """`Any` in a public signature is a promise that nothing checks."""
    for function in public_functions(parsed(text).body):
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [each for each in (arguments.vararg, arguments.kwarg) if each]
        annotations = [argument.annotation for argument in every] + [function.returns]
        if any(annotation and mentions_any(annotation) for annotation in annotations):
            yield f"{function.name} (line {function.lineno})"


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods of public classes whose names do not start with an underscore."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_public(node.name):
            yield node


def is_public(name: str) -> bool:
    """Whether users see it; they call classes and instances by these two magic names."""
    return not name.startswith("_") or name in ("__init__", "__call__")


def mentions_any(annotation: ast.expr) -> bool:
    """Whether `Any` is somewhere in the annotation."""
    names = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    names += [node.attr for node in ast.walk(annotation) if isinstance(node, ast.Attribute)]
    return "Any" in names


def impure_core(text: str) -> Iterator[str]:
    """The core gets time, ids and seeds as arguments, and asks nobody for anything."""
    tree = parsed(text)
    for module in sorted(imported_modules(tree)):
        if module.partition(".")[0] in IMPURE_MODULES:
            yield f"imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in IMPURE_CALLS:
            yield f"line {node.lineno}: calls {ast.unparse(node.func)}"


VALUES_ARE = {
    "dataclasses.dataclass": "msgspec.Struct",
    "dataclasses.replace": "kohort.values.replace",
    "msgspec.structs.replace": "kohort.values.replace",
}


def slow_dataclasses(text: str) -> Iterator[str]:
    """Values are made and copied all the time, and `dataclasses` is slow at it."""
    tree = parsed(text)
    used = imported_modules(tree) | {
        ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    for name in sorted(VALUES_ARE.keys() & used):
        yield f"{name} instead of {VALUES_ARE[name]}"


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules that a file imports anywhere in it."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def evasive_tests(text: str) -> Iterator[str]:
    """A test runs, on the real thing, and waits for what it waits for, not for time to pass."""
    tree = parsed(text)
    for module in sorted(imported_modules(tree) & EVASIONS):
        yield f"imports {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in EVASIONS:
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Call) and is_real_sleep(node):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def is_real_sleep(call: ast.Call) -> bool:
    """Whether it is `asyncio.sleep` for longer than one turn of the loop."""
    return ast.unparse(call.func) == "asyncio.sleep" and ast.unparse(call.args[0]) != "0"


def machine_paths(text: str) -> Iterator[str]:
    """Nothing in the repository is true on one machine only."""
    for number, line in enumerate(text.splitlines(), start=1):
        if MACHINE_PATH.search(line):
            yield f"line {number}: {line.strip()[:80]}"


def registry_hosts(text: str) -> Iterator[str]:
    """Packages have names; where they come from is set on each machine."""
    for number, line in enumerate(text.splitlines(), start=1):
        if REGISTRY_HOST.search(line):
            yield f"line {number}: {line.strip()[:80]}"


def unlinked_rule_ids(text: str) -> Iterator[str]:
    """A reader who meets a rule's number can follow it to the rule."""
    for number, line in enumerate(text.splitlines(), start=1):
        for found in RULE_ID.finditer(RULES_LINK.sub("", line)):
            yield f"line {number}: {found[0]} without a link to rules.md"


# Words that make a sentence vague or bookish where a noun or a verb would say it.
OVERUSED = (
    *("whoever", "nobody", "somebody", "everybody", "anew", "who is", "what is not", "of what"),
    *("one's own", "is told", "no such"),
)
_OVERUSED = re.compile(rf"\b({'|'.join(OVERUSED)})\b", re.IGNORECASE)
_LINE_BREAK = re.compile(r"[ \t]*\n[ \t]*(?:#:? ?)?")


def overused_words(text: str) -> list[str]:
    """Those words in a text, also where a line ends between two of them."""
    return [found.lower() for found in _OVERUSED.findall(_LINE_BREAK.sub(" ", text))]


def repeated_changes(text: str) -> Iterator[str]:
    """One change is told once."""
    entries = [line.strip() for line in text.splitlines() if line.startswith("- ")]
    for entry in sorted({entry for entry in entries if entries.count(entry) > 1}):
        yield f"twice: {entry[:80]}"


def misnamed_fragment(name: str) -> Iterator[str]:
    """A change's fragment is called `<what>.<kind>.md`, so that the release can sort them."""
    if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(FRAGMENT_KINDS)})\.md", name):
        yield f"{name}: expected <what>.<{'|'.join(FRAGMENT_KINDS)}>.md"


# ----------------------------------------------------------------------------------- import circles


def import_circle(modules: Mapping[str, str]) -> list[str]:
    """Return modules that import each other in a circle, for types alone or not; or none.

    Args:
        modules: The text of each module, by its dotted name; empty where only its name is known.
    """
    imports = {name: _imported(text, modules) - {name} for name, text in modules.items()}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _imported(text: str, modules: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in modules else node.module for name in whole}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys()
