"""Drive a headless Chromium through its DevTools protocol, over two pipes, without a library."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_PATIENCE_S = 30.0


class ChromiumError(Exception):
    """Chromium is missing, or refuses a command."""


class Chromium:
    """A browser with one tab."""

    def __init__(self) -> None:
        program = shutil.which("chromium")
        if program is None:
            raise ChromiumError("chromium is not on the path")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={self._profile.name}"]
        # Chromium reads commands from descriptor 3 and answers on 4.
        redirect = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", redirect, "chromium", *command, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        self.complaints: list[str] = []
        self._open_tab()

    def _open_tab(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  # a JSON object
        """Call a method of the protocol, and return its result.

        Raises:
            ChromiumError: Chromium refuses the call.
        """
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            self._note(answer)
            if answer.get("id") == number:
                if "error" in answer:
                    raise ChromiumError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], _PATIENCE_S)
            got = os.read(self._in, 1 << 20) if ready else b""
            if not got:
                raise ChromiumError("chromium does not answer")
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        """Collect the errors on the page's console."""
        if event.get("method") == "Log.entryAdded":
            self.complaints.append(event["params"]["entry"]["text"])
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(event["params"]["exceptionDetails"]))

    # ---------------------------------------------------------------------------------- the page

    def open(self, address: str, width: int, height: int, scheme: str = "light") -> None:
        """Open a page in a window of the given size, with a colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=address)

    def value(self, expression: str) -> Any:  # noqa: ANN401  # whatever JavaScript returns
        """Return the value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise ChromiumError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true; it may raise while a page loads.

        Raises:
            ChromiumError: It does not become true in time.
        """
        end = time.monotonic() + _PATIENCE_S
        guarded = f"(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()"
        while not self.value(guarded):
            if time.monotonic() > end:
                raise ChromiumError(f"not within {_PATIENCE_S:g} s: {expression}")
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        """Press a key: its name and its code, such as Tab and 9."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    def photograph(self, target: Path) -> None:
        """Save a screenshot of the window."""
        shot = self.call("Page.captureScreenshot", format="png")
        target.write_bytes(base64.b64decode(shot["data"]))
