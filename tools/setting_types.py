"""Generate the types of keyword settings: a TypedDict for each class of settings.

With `**settings: Unpack[ConsumerSettings]` mypy and pyright find a misspelt setting or a value of
the wrong type, and an editor shows what a setting does. Names, types and texts come from the class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import cleandoc, getdoc
from pathlib import Path
from textwrap import fill

from kohort.values import defaults

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100


@dataclass(frozen=True)
class Page:
    """A module to generate.

    Attributes:
        path: Its path below `src/kohort`.
        source: The module with the classes of settings.
        kinds: Name of each class, the purpose of its settings, and the class that it
            extends.
        imports: The imports that their types need.
        before: A class that the first extends, and its module.
    """

    path: str
    source: str
    kinds: tuple[tuple[str, str, str], ...]
    imports: tuple[str, ...]
    before: tuple[str, str] = ("", "")

    @property
    def file(self) -> Path:
        """The path of the module."""
        return ROOT / "src" / "kohort" / self.path


PAGES = (
    Page(
        "client/config/settings.py",
        "kohort.client.config.definitions",
        (
            ("SecurityConfig", "TLS and SASL, of every client", ""),
            ("ClientConfig", "every client", "SecurityConfig"),
            ("ConsumerConfig", "`Consumer` and `AsyncConsumer`", "ClientConfig"),
            ("ProducerConfig", "`Producer` and `AsyncProducer`", "ClientConfig"),
            ("AdminConfig", "`AdminClient` and `AsyncAdminClient`", "ClientConfig"),
        ),
        (
            "from collections.abc import Callable, Sequence",
            "from ssl import SSLContext",
            "from typing import Literal, TypedDict",
            "",
            "from kohort.client.config.definitions import AssignorsGiven, OnCommit, Partitioner",
            "from kohort.client.config.security import TokenProvider",
            "from kohort.group.events import GroupEvent",
        ),
        ("SecurityConfig", "kohort.client.config.security"),
    ),
    Page(
        "broker/settings.py",
        "kohort.broker.config",
        (("BrokerConfig", "`EmbeddedBroker`", ""),),
        ("from typing import TypedDict", "", "from kohort.broker.net.security import Security"),
    ),
)


def page(wanted: Page) -> str:
    """Return the text of a module."""
    sources = [each for each in (wanted.before[1], wanted.source) if each]
    classes = {
        each.name: each
        for source in sources
        for each in ast.parse(_file(source).read_text(encoding="utf-8")).body
        if isinstance(each, ast.ClassDef)
    }
    module = import_module(wanted.source)
    head = '"""Types of keyword settings, written by `python tools/setting_types.py`."""'
    parts = ["\n".join([head, "", "from __future__ import annotations", "", *wanted.imports])]
    for name, whose, base in wanted.kinds:
        kind = getattr(module, name)
        texts = described(getdoc(kind) or "")
        own = dict(annotated(classes[name]))
        shown = defaults(kind)
        lines = [f"class {typed(name)}({typed(base) or 'TypedDict'}, total=False):"]
        lines.append(f'    """Settings of {whose}."""')
        for field, annotation in own.items():
            lines += ["", f"    {field}: {annotation}", _docstring(texts[field], shown[field])]
        parts.append("\n".join(lines))
    return "\n\n\n".join(parts) + "\n"


def _file(module: str) -> Path:
    return (ROOT / "src" / Path(*module.split("."))).with_suffix(".py")


def typed(name: str) -> str:
    """Return the name of the TypedDict of a class of settings."""
    return name.replace("Config", "Settings")


def annotated(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Return the name and the type of each field of a class."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, ast.unparse(each.annotation).replace("'", '"')


def described(doc: str) -> dict[str, str]:
    """Return the text about each attribute in a docstring, without line breaks."""
    texts: dict[str, str] = {}
    field = ""
    for line in cleandoc(doc.partition("Attributes:\n")[2]).splitlines():
        if line and not line.startswith(" "):
            field, _, text = line.partition(": ")
            texts[field] = text
        elif field:
            texts[field] = f"{texts[field]} {line.strip()}".strip()
    return texts


def _docstring(text: str, default: object) -> str:
    whole = f'"""{text} Default: {_shown(default)}."""'
    lines = fill(whole, WIDTH, initial_indent="    ", subsequent_indent="    ")
    if "\n" not in lines:
        return lines
    words = fill(whole[:-3], WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f'{words}\n    """'


def _shown(default: object) -> str:
    if default is None or isinstance(default, bool | str) or not isinstance(default, int):
        return repr(default).replace("'", '"') if default != "" else "empty"
    return f"{default:_}"


def main() -> None:
    """Write the modules."""
    for each in PAGES:
        each.file.write_text(page(each), encoding="utf-8")


if __name__ == "__main__":
    main()
