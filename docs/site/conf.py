"""The documentation as a site: `make docs` builds it with Sphinx, strictly, into build/site.

The source folder is the repository itself, so pages and links are those that one reads there. The
API reference is made from docstrings in Google's style with names in single backticks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.transforms import SphinxTransform

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "src"))

# The signature of a struct evaluates its annotations; here are those of `Effects` that are imported
# for type checkers only.
_effects = import_module("kohort.group.effects")
for _module, _names in (
    ("kohort.group.coordinator.jobs", ("DraftAssignmentJob", "Job")),
    ("kohort.wire.messages.group_records", ("GroupRecord",)),
):
    for _name in _names:
        setattr(_effects, _name, getattr(import_module(_module), _name))

project = "kohort"
html_title = "kohort"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
language = "en"

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/decisions/*.md",
    "docs/internals/*.md",
    "docs/internals/diagrams/*.md",
    "docs/site/api/*.rst",
]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# ------------------------------------------------------------------------------------- pages

myst_heading_anchors = 3


class Anchors(SphinxTransform):
    """Makes `<a id="c1"></a>` a place that links may name, as it is where Markdown is shown."""

    default_priority = 500

    def apply(self) -> None:
        """Add the anchors of a page to its headings."""
        slugs = dict(getattr(self.document, "myst_slugs", {}))
        for raw in self.document.findall(nodes.raw):
            if found := re.fullmatch(r'<a id="([\w-]+)">', raw.astext()):
                slugs[found[1]] = (raw.line or 0, found[1], found[1])
        if slugs:
            self.document.myst_slugs = slugs
            self.env.metadata[self.env.docname]["myst_slugs"] = slugs


# Pages whose list of further pages is not in the text, with the file that has it.
CONTENTS = {
    root_doc: "contents.md",
    "docs/decisions/README": "decisions.md",
    "docs/internals/diagrams/README": "diagrams.md",
}


def add_contents(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the first page and some others the contents of the site."""
    if docname in CONTENTS:
        source[0] += (HERE / CONTENTS[docname]).read_text(encoding="utf-8")


MERMAID = re.compile(r"```mermaid\n(.*?)```\n", re.DOTALL)
ARROW = re.compile(r"^ *(\w+) --> (\w+): (.*)$", re.MULTILINE)


def draw_as_table(_app: Sphinx, _docname: str, source: list[str]) -> None:
    """Show the arrows of a diagram as a table: its picture would need a script from elsewhere."""
    source[0] = MERMAID.sub(lambda found: _arrows(found[1]), source[0])


def _arrows(diagram: str) -> str:
    rows = "\n".join(f"| {a} | {b} | {upon} |" for a, b, upon in sorted(ARROW.findall(diagram)))
    return f"| from | to | upon |\n|---|---|---|\n{rows}\n"


FORWARD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="refresh" content="0; url={url}"><a href="{url}">{title}</a></html>
"""


def make_index(app: Sphinx, error: Exception | None) -> None:
    """Forward to the first page from the name that web servers look for."""
    if error is None and app.builder.name == "html":
        text = FORWARD.format(title=project, url=f"{root_doc}.html")
        (app.outdir / "index.html").write_text(text, encoding="utf-8")


# --------------------------------------------------------------------------------- docstrings

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
toc_object_entries_show_parents = "hide"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
# What stands in backticks is code, and a link where it names something of the reference.
default_role = "py:obj"


PACKAGES = (
    "kohort",
    "kohort.broker",
    "kohort.client",
    "kohort.group",
    "kohort.group.assignors",
    "kohort.group.coordinator",
    "kohort.group.member",
    "kohort.region",
    "kohort.spark",
    "kohort.streams",
    "kohort.testing",
)
RULE = re.compile(r"\b([CKLAB]\d{1,2})\b")
RETURNS = "Returns:"


IN_BACKTICKS = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# Public names with the package that documents them; two things of one name have none.
HOMES: dict[str, str | None] = {}


def load_lazy_names() -> None:
    """Import what packages import when it is first used: autodoc looks only at what is there."""
    for package in map(import_module, PACKAGES):
        for name in package.__all__:
            known = HOMES.setdefault(name, package.__name__)
            if known and getattr(import_module(known), name) is not getattr(package, name):
                HOMES[name] = None


def as_rst(*arguments: object) -> None:
    """Rewrite a docstring, before napoleon reads its sections."""
    lines = arguments[-1]
    assert isinstance(lines, list)
    linked = (RULE.sub(_rule_link, IN_BACKTICKS.sub(_link, line)) for line in lines)
    lines[:] = _with_returns(_with_examples(linked))


def _link(found: re.Match[str]) -> str:
    """Link a public name to where it is described; what is no name is code."""
    home = HOMES.get(found[1])
    if home:
        return f"`{found[1]} <{home}.{found[1]}>`"
    return found[0] if found[1].replace(".", "").isidentifier() else f"`{found[0]}`"


def _rule_link(found: re.Match[str]) -> str:
    return f"`{found[0]} <../../rules.html#{found[0].lower()}>`__"


def _with_examples(lines: Iterator[str]) -> Iterator[str]:
    """An indented block after an empty line is an example."""
    is_example, is_after_blank = False, False
    for line in lines:
        is_indented = line.startswith("    ")
        if is_indented and is_after_blank and not is_example:
            yield from (".. code-block:: python", "")
            is_example = True
        elif line and not is_indented:
            is_example = False
        is_after_blank = not line
        yield line


def _with_returns(lines: Iterator[str]) -> Iterator[str]:
    """A section "Returns" has no type before a colon: the signature has it."""
    is_returns = False
    for line in lines:
        if line == RETURNS:
            is_returns, prefix = True, ":returns: "
        elif is_returns and line:
            yield prefix + line.strip()
            prefix = "    "
        else:
            is_returns = False
            yield line


def setup(app: Sphinx) -> None:
    """Connect the above."""
    load_lazy_names()
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.add_transform(Anchors)
    app.connect("source-read", add_contents)
    app.connect("source-read", draw_as_table)
    app.connect("build-finished", make_index)
    app.connect("autodoc-process-docstring", as_rst, priority=400)
