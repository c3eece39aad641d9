"""A headless browser, driven by the WebDriver protocol (https://www.w3.org/TR/webdriver2/), for checks that need a browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name can be resolved
)


_HERE = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks this machine, whatever proxy the environment names for others."""


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser with its own profile."""

    session: str

    def open(self, page: Path) -> None:
        _ask(f"{self.session}/url", {"url": page.resolve().as_uri()})

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Fails if the page shows a dialogue."""
        return _ask(f"{self.session}/execute/sync", {"script": f"return {expression}", "args": []})

    def command(self, name: str, **parameters: object) -> None:
        """Send a command of the DevTools protocol."""
        _ask(f"{self.session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)

    def media(self, media: str = "", *, dark: bool = False) -> None:
        """Emulate "print", or a screen with light or dark colours."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def printed(self) -> bytes:
        """The page as a PDF file."""
        return base64.b64decode(_ask(f"{self.session}/print", {"background": True}))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile in the folder `profile`."""
    assert BROWSER is not None and DRIVER is not None
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert driver.stdout is not None
    try:
        ports = (re.search(r"successfully on port (\d+)", line) for line in driver.stdout)
        port = next(match[1] for match in ports if match is not None)
        chrome = {"binary": BROWSER, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": chrome}}}
        session = f"http://127.0.0.1:{port}/session/{_ask(f'http://127.0.0.1:{port}/session', wanted)['sessionId']}"
        try:
            yield Browser(session)
        finally:
            _ask(session, method="DELETE")
    finally:
        driver.terminate()
        driver.wait(10)
        driver.stdout.close()


def _ask(url: str, body: object = None, method: str = "POST") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with _HERE.open(request, timeout=60) as response:
        return json.load(response)["value"]
