"""Certificates and keys that change while a client runs."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

from kohort.client.config.security import SecurityConfig
from kohort.client.net.security.tls_context import tls_context
from kohort.errors import ConfigError

log = logging.getLogger("kohort.client")

_FILES = (
    "ssl_ca_location",
    "ssl_truststore_location",
    "ssl_certificate_location",
    "ssl_key_location",
    "ssl_keystore_location",
)
_Stamps = tuple[object, ...]


class ReloadedFiles:
    """Reads the files of the settings again when one of them has changed.

    Args:
        config: The settings; their files must be read after this is created.
    """

    def __init__(self, config: SecurityConfig) -> None:
        self._config = config
        self._stamps = self._told = self._now()

    def __call__(self) -> ssl.SSLContext | None:
        """Return a context with the current contents, None if they are unchanged or invalid."""
        stamps = self._now()
        if stamps == self._stamps:
            return None
        try:
            made = tls_context(self._config)
        except ConfigError as error:
            self._tell(stamps, error)
            return None
        self._stamps = self._told = stamps
        log.info("certificates or keys have changed: new connections use the new files")
        return made

    def _tell(self, stamps: _Stamps, error: ConfigError) -> None:
        if stamps == self._told:
            return
        self._told = stamps
        log.warning(
            "certificates or keys have changed, but cannot be used (%s): new connections use the"
            " old ones, and check the files again",
            error,
        )

    def _now(self) -> _Stamps:
        named = (getattr(self._config, name) for name in _FILES)
        return tuple(stamp for name in named if name for stamp in _stamps(Path(name)))


def _stamps(path: Path) -> Iterator[object]:
    """Yield values that change when a file changes; for a folder, also those of its files."""
    for each in (path, *(sorted(path.iterdir()) if path.is_dir() else ())):
        try:
            found = each.stat()
        except OSError as error:
            yield error.errno
        else:
            yield found.st_mtime_ns, found.st_size, found.st_ino
