"""JAAS entries, as in `sasl.jaas.config` of Java's clients and of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from kohort.errors import ConfigError

_KEY = "sasl.jaas.config"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LIKE = (
    'it must be like org.apache.kafka.common.security.plain.PlainLoginModule required username="u"'
    ' password="p";'
)


class JaasEntry(Struct, frozen=True, repr_omit_defaults=True):
    """A login module and its options.

    Attributes:
        module: Class name of the login module, without the package.
        options: Its options; they may contain secrets, so they never appear in a text.
    """

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Return a text with the names of the options, without values."""
        return f"JaasEntry({self.module!r}, {sorted(self.options)})"


def parse_jaas(text: str) -> JaasEntry:
    """Return the only entry of a JAAS configuration.

    Errors quote no part of the text, because a password may be anywhere in a malformed one.

    Args:
        text: `module flag name="value" ...;`

    Raises:
        ConfigError: It is malformed, or has several entries.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (";", False):
        raise ConfigError(f"{_KEY} is not complete, or does not end with a semicolon: {_LIKE}")
    if (";", False) in tokens[:-1]:
        raise ConfigError(f"{_KEY} has several entries; only one is allowed")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise ConfigError(f"{_KEY}: the second word is not one of {', '.join(_FLAGS)}: {_LIKE}")
    return JaasEntry(module.rpartition(".")[2], _options([text for text, _ in rest]))


def _options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if len(words) % 3:
        raise ConfigError(f"{_KEY}: its options are not name=value: {_LIKE}")
    for at in range(0, len(words), 3):
        name, equals, value = words[at : at + 3]
        if equals != "=":
            raise ConfigError(f"{_KEY}: its options are not name=value: {_LIKE}")
        found[name] = value
    return found


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Split a text like Java's `StreamTokenizer`; yield words, and whether they were quoted."""
    at = 0
    while at < len(text):
        char = text[at]
        if char in "\"'":
            word, at = _quoted(text, at + 1, char)
            yield word, True
        elif char in ";=":
            yield char, False
            at += 1
        elif char.isspace():
            at += 1
        else:
            end = at
            while end < len(text) and not text[end].isspace() and text[end] not in ";=\"'":
                end += 1
            yield text[at:end], False
            at = end


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    """Return a quoted word, and the index after it."""
    out: list[str] = []
    while at < len(text):
        char = text[at]
        if char == quote:
            return "".join(out), at + 1
        if char == "\\" and at + 1 < len(text):
            at += 1
            char = _ESCAPES.get(text[at], text[at])
        out.append(char)
        at += 1
    raise ConfigError(f"{_KEY}: a quote is not closed")
