"""A real Chromium, driven over its debugging pipe.

Null-terminated JSON on two file descriptors needs no package.
"""

import base64
import itertools
import json
import os
import select
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from gspo_lab.common.plain_data import JsonObject, OptionalText

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    # A tab that counts as hidden draws no frames, and then nothing that waits for one goes on.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


Y = "Math.round(scrollY)"
SETTLED = """
new Promise((done) => {
  let last = -1, same = 0;
  const look = () => {
    same = scrollY === last ? same + 1 : 0;
    last = scrollY;
    same > 20 ? done(true) : setTimeout(look, 20);
  };
  look();
})
"""
"""Resolves once the page has not scrolled for 20 looks, 20 ms apart."""


class Browser:
    """One tab.

    `events` holds everything the browser reported: console lines, log entries, requests.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session: OptionalText = None
        self.events: list[JsonObject] = []

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        words = [self._program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        # Chromium reads commands from descriptor 3 and answers on 4.
        command = f"exec {shlex.join(words)} 3<&{theirs_in} 4>&{theirs_out}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(120)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> Any:
        """Send one command and wait for its answer."""
        number = next(self._ids)
        message: JsonObject = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 240
        while True:
            answer = self._read(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(
        self,
        path: Path,
        fragment: str = "",
        *,
        width: int = 1200,
        height: int = 900,
        dark: bool = False,
    ) -> None:
        """Load a file and wait for its `load` event."""
        self.resize(width, height)
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.call("Page.bringToFront")
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri() + fragment)
        self.wait_for("document.readyState === 'complete'")

    def resize(self, width: int, height: int = 900) -> None:
        """The size of the window, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression (of its promise)."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def frame(self) -> None:
        """Wait for the next frame, or for half a second where the browser leaves one out."""
        self.evaluate(
            "new Promise((done) => { requestAnimationFrame(done); setTimeout(done, 500); })"
        )

    def wait_for(self, expression: str, seconds: float = 240) -> None:
        """Wait until a JavaScript expression is true.

        A page that is just being replaced has no answer yet.
        """
        deadline = time.monotonic() + seconds
        true = False
        while not true:
            assert time.monotonic() < deadline, f"still not true after {seconds} s: {expression}"
            time.sleep(0.05)
            try:
                true = bool(self.evaluate(expression))
            except AssertionError as error:
                if "navigated" not in str(error) and "context" not in str(error):
                    raise

    def complaints(self) -> list[str]:
        """Console errors and warnings, exceptions, and what the content-security policy blocked."""
        out = []
        for event in self.events:
            method = event.get("method")
            params = event.get("params", {})
            level = params.get("type") or params.get("entry", {}).get("level")
            told = method in ("Runtime.consoleAPICalled", "Log.entryAdded") and level in (
                "error",
                "warning",
            )
            if told or method == "Runtime.exceptionThrown":
                out.append(json.dumps(params))
        return out

    def requests(self) -> list[str]:
        """The URLs that were asked for."""
        sent = [
            event for event in self.events if event.get("method") == "Network.requestWillBeSent"
        ]
        return [event["params"]["request"]["url"] for event in sent]

    def click(self, selector: str) -> None:
        """Press and release the left button in the middle of an element.

        The element may be anywhere on the page.
        """
        middle = "(b => ({x: b.x + b.width / 2, y: b.y + b.height / 2}))"
        box = self.evaluate(f"{middle}({selector}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **box)

    def press(self, key: str, text: str = "") -> None:
        """One key, down and up, at whatever has the focus."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                text=text if kind == "keyDown" else "",
            )

    def downloads_to(self, folder: Path) -> None:
        """Files that the page saves land in `folder`."""
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _read(self, deadline: float) -> JsonObject:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._in, 1 << 20) if ready else b""
            if not part:
                raise AssertionError("the browser does not answer")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)


def scroll_through(browser: Browser) -> None:
    """Every figure of the page has been near the window and is alive.

    That includes those above a link's target.
    """
    browser.evaluate(
        "document.querySelectorAll('.folded, .fold').forEach((one) => { one.open = true; })"
    )
    browser.evaluate("window.scrollTo({top: 0, behavior: 'instant'})")
    browser.frame()
    while browser.evaluate(
        "(before => (scrollBy({top: 600, behavior: 'instant'}), scrollY > before))(scrollY)"
    ):
        browser.frame()
    browser.wait_for(
        "[...document.querySelectorAll('figure:not(.empty)')].every((f) =>"
        " f.querySelector('.main-svg'))"
    )


def axis_title(browser: Browser, figure: str) -> str:
    return browser.evaluate(f"document.querySelector('#{figure} .plot').layout.xaxis.title.text")


def saved(folder: Path, name: str) -> bytes:
    """What the page has saved as `name`, once it is there."""
    deadline = time.monotonic() + 240
    while not (folder / name).exists():
        assert time.monotonic() < deadline, [path.name for path in folder.iterdir()]
        time.sleep(0.05)
    return (folder / name).read_bytes()
