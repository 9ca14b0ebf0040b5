r"""Translates Java's regular expressions for `subscribePattern` to Python's.

Topic names use 65 characters. So each element that matches one character (a letter, a class such as
`[a-z&&[^q]]` or `\p{Alpha}`, each with or without `(?i)`) becomes the set of topic characters that
it matches, and nothing depends on how the two languages treat other characters or line ends.
Constructs that Python lacks, or that depend on the version of Java, are refused by name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from kohort.spark.options.values import OptionError

LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

_NOTHING = "[^\\x00-\\U0010ffff]"
_DIGITS = frozenset("0123456789")
_LOWER = frozenset(c for c in LEGAL if c.islower())
_UPPER = frozenset(c for c in LEGAL if c.isupper())
_ALPHA = _LOWER | _UPPER
_WORD = _ALPHA | _DIGITS | {"_"}
_HEX = _DIGITS | frozenset("abcdefABCDEF")
_PUNCTUATION = LEGAL - _ALPHA - _DIGITS
_CLASSES = {
    "d": _DIGITS, "w": _WORD, "s": frozenset[str](), "h": frozenset[str](), "v": frozenset[str](),
}  # fmt: skip
_PROPERTIES = {
    "Lower": _LOWER, "Upper": _UPPER, "ASCII": LEGAL, "Alpha": _ALPHA, "Digit": _DIGITS,
    "Alnum": _ALPHA | _DIGITS, "Punct": _PUNCTUATION, "Graph": LEGAL, "Print": LEGAL,
    "Blank": frozenset[str](), "Cntrl": frozenset[str](), "XDigit": _HEX,
    "Space": frozenset[str](), "IsAlphabetic": _ALPHA, "IsLatin": _ALPHA,
}  # fmt: skip
# With (?i) their matches depend on the version of Java.
_CASED = frozenset({"Lower", "Upper", "Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt"})
_CATEGORIES = frozenset(
    re.findall("[A-Z][a-z]?", "L M N Z C P S Lu Ll Lt Lm Lo Nd Nl No Pc Pd Ps Pe Pi Pf Po")
)
_CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}
_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})[?+]?")
_FLAGS = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")


def java_pattern(text: str) -> re.Pattern[str]:
    """Return a pattern whose `match` succeeds where Java's `find` finds `text` in a topic name.

    Args:
        text: A regular expression of `java.util.regex`.

    Raises:
        OptionError: It is malformed, or has no equivalent in Python.
    """
    translated = _Translator(_unquoted(text)).whole()
    try:
        return re.compile(f"[\\s\\S]*?(?:{translated})", re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise OptionError(f"subscribePattern {text!r} is not supported: {error}") from error


def _unquoted(text: str) -> str:
    r"""Replace the text between \Q and \E with escaped literals."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("\\Q", at):
            end = text.find("\\E", at + 2)
            quoted = text[at + 2 : end if end >= 0 else len(text)]
            parts += (c if c.isalnum() else f"\\{c}" for c in quoted)
            at = end + 2 if end >= 0 else len(text)
        else:
            parts.append(text[at : at + 2] if text[at] == "\\" else text[at])
            at += len(parts[-1])
    return "".join(parts)


class _Translator:
    """Reads the text from left to right, and returns the equivalent in Python."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0
        self._ignores_case = False

    def whole(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._text):
            raise self._error("unmatched )")
        return translated

    # ---------------------------------------------------------------------------- reading

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        found = self._peek()
        self._at += 1
        return found

    def _taken(self, text: str) -> bool:
        """Whether `text` comes next; consumes it if so."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return found

    def _error(self, why: str) -> OptionError:
        return OptionError(
            f"subscribePattern {self._text!r} is not supported: {why}, at position {self._at}"
        )

    # ------------------------------------------------------------------------- expressions

    def _alternatives(self) -> str:
        """Read to the end of the group; flags set in it apply until there."""
        outside = self._ignores_case
        parts: list[str] = []
        while self._peek() not in ("", ")"):
            parts.append("|" if self._taken("|") else self._repeated())
        self._ignores_case = outside
        return "".join(parts)

    def _repeated(self) -> str:
        if self._peek() in "*+?{":
            raise self._error("there is nothing to repeat")
        atom = self._atom()
        if not atom:  # flags alone
            return ""
        repeat = self._match(_REPEAT)
        if repeat is None and self._peek() == "{":
            raise self._error("illegal repetition")
        return atom + (repeat[0] if repeat else "")

    def _atom(self) -> str:
        found = self._next()
        simple = {"^": "(?:\\A)", "$": "(?:\\Z)", ".": _shown(LEGAL)}
        if found in simple:
            return simple[found]
        if found == "(":
            return self._group()
        if found == "[":
            return _shown(self._class())
        if found == "\\":
            return self._escape()
        return _shown(self._literal(found))

    def _group(self) -> str:
        if self._peek() != "?":
            self._groups += 1
            return self._closed("(")
        for opening in ("?:", "?=", "?!", "?>", "?<=", "?<!"):
            if self._taken(opening):
                return self._closed(f"({opening}")
        if self._taken("?<"):
            self._groups += 1
            return self._closed(f"(?P<{self._name()}>")
        return self._with_flags()

    def _closed(self, opening: str) -> str:
        inside = self._alternatives()
        if not self._taken(")"):
            raise self._error("unclosed group")
        return f"{opening}{inside})"

    def _with_flags(self) -> str:
        found = self._match(_FLAGS)
        if found is None:
            raise self._error("unknown group")
        on, off, end = found[1], found[2] or "", found[3]
        if not set(on + off) <= set("imsduU"):
            raise self._error(f"flags {on + off}")
        before = self._ignores_case
        self._ignores_case = ("i" in on or before) and "i" not in off
        if end == ")":
            return ""
        inside = self._closed("(?:")
        self._ignores_case = before
        return inside

    def _name(self) -> str:
        found = self._match(_NAME)
        if found is None or not self._taken(">"):
            raise self._error("malformed name of a group")
        return found[0]

    # ----------------------------------------------------------------------------- escapes

    def _escape(self) -> str:
        found = self._peek()
        anchors = {"A": "A", "G": "A", "z": "Z", "Z": "Z", "b": "b", "B": "B"}
        if found in anchors:
            self._at += 1
            if self._text.startswith("{g}", self._at):
                raise self._error("\\b{g}")
            return f"(?:\\{anchors[found]})"  # in a group, as Python cannot repeat a bare anchor
        if found in "123456789" and found:
            return self._reference()
        if self._taken("k<"):
            return self._referring(f"(?P={self._name()})")
        if found in "RX" and found:
            self._at += 1
            return _shown(LEGAL if found == "X" else frozenset())
        return _shown(self._escaped())

    def _reference(self) -> str:
        """Read the number of a group: the longest run of digits that names an existing group."""
        number = int(self._next())
        while self._peek().isdecimal() and number * 10 + int(self._peek()) <= self._groups:
            number = number * 10 + int(self._next())
        if number > self._groups:
            raise self._error(f"group {number} does not come before")
        return self._referring(f"\\{number}")

    def _referring(self, reference: str) -> str:
        return f"(?{'i' if self._ignores_case else ''}:{reference})"

    def _escaped(self) -> frozenset[str]:
        """Read an escape that matches one character, inside or outside a class."""
        found = self._next()
        if found.lower() in _CLASSES and found:
            chosen = _CLASSES[found.lower()]
            return chosen if found.islower() else LEGAL - chosen
        if found in ("p", "P"):
            chosen = self._property()
            return chosen if found == "p" else LEGAL - chosen
        self._at -= 1
        return self._literal(self._character())

    def _character(self) -> str:
        """Read an escape for one specific character, after its backslash."""
        found = self._next()
        if found in _CONTROLS:
            return chr(_CONTROLS[found])
        if found == "c" and self._peek():
            return chr(ord(self._next()) ^ 64)
        if found == "0":
            return self._coded(r"([0-3]?[0-7]{1,2})", 8)
        if found == "x":
            return self._coded(r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}", 16)
        if found == "u":
            return self._coded(r"([0-9a-fA-F]{4})", 16)
        if not found or (found.isascii() and found.isalpha()):
            raise self._error(f"escape \\{found}")
        return found

    def _coded(self, digits: str, base: int) -> str:
        found = self._match(re.compile(digits))
        code = int(next(filter(None, found.groups())), base) if found else 0x110000
        if code > 0x10FFFF:
            raise self._error("malformed code of a character")
        return chr(code)

    def _property(self) -> frozenset[str]:
        found = self._match(re.compile(r"\{([^}]*)\}|([A-Z])"))
        name = (found[1] or found[2] or "") if found else ""
        if self._ignores_case and name in _CASED:
            raise self._error(f"\\p{{{name}}} where case is ignored")
        if name in _PROPERTIES:
            return _PROPERTIES[name]
        category = name.removeprefix("Is")
        if category not in _CATEGORIES:
            raise self._error(f"\\p{{{name}}}")
        return frozenset(c for c in LEGAL if unicodedata.category(c).startswith(category))

    # ----------------------------------------------------------------------------- classes

    def _class(self) -> frozenset[str]:
        """Read a class, after its `[`."""
        negated = self._taken("^")
        found = self._union()
        self._at += 1  # the closing ]
        return LEGAL - found if negated else found

    def _union(self) -> frozenset[str]:
        """Read to the `]` of the class; a `]` at the start is a literal."""
        found: frozenset[str] | None = None
        while found is None or self._peek() != "]":
            if not self._peek():
                raise self._error("unclosed class")
            if self._taken("&&"):
                right = self._right()
                found = right if found is None else found & right
            else:
                item = self._class() if self._taken("[") else self._range()
                found = item if found is None else found | item
        return found

    def _right(self) -> frozenset[str]:
        """Read the right side of `&&`: classes, and then everything to the end."""
        found: frozenset[str] = frozenset()
        if self._peek() in ("]", "&"):
            raise self._error("nothing after &&")
        while self._peek() not in ("]", "&"):
            found |= self._class() if self._taken("[") else self._union()
        return found

    def _range(self) -> frozenset[str]:
        first = self._bound()
        following = self._text[self._at + 1 : self._at + 2]
        if not isinstance(first, str):
            return first
        if self._peek() != "-" or following in ("]", "["):
            return self._literal(first)
        self._at += 1
        last = self._bound()
        if not isinstance(last, str) or last < first:
            raise self._error("illegal range")
        return self._folded(lambda c: first <= c <= last)

    def _bound(self) -> str | frozenset[str]:
        found = self._next()
        if found != "\\":
            return found
        if self._peek() and self._peek() in "dDwWsShHvVpP":
            return self._escaped()
        return self._character()

    def _literal(self, character: str) -> frozenset[str]:
        return self._folded(lambda c: c == character)

    def _folded(self, includes: Callable[[str], bool]) -> frozenset[str]:
        """Return the matching characters of topic names, in both cases if case is ignored."""
        if not self._ignores_case:
            return frozenset(filter(includes, LEGAL))
        return frozenset(c for c in LEGAL if includes(c.lower()) or includes(c.upper()))


def _shown(characters: frozenset[str]) -> str:
    """Return a set of characters in Python's syntax."""
    if not characters:
        return _NOTHING
    if len(characters) == 1:
        return re.escape(*characters)
    return f"[{''.join(map(re.escape, sorted(characters)))}]"
