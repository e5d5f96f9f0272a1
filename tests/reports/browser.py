"""A headless Chromium that tests speak to by the DevTools protocol: sizes, media, clicks, and what it asked of the network."""

import asyncio
import itertools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import aiohttp

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Browser:
    """A page in a process of its own. `size` and `media` come before `open`; `requests` are the addresses that it asked for."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0",
             f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.requests, self.errors, self._numbers = [], [], itertools.count(1)
        self._loop.run_until_complete(self._connect())
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    async def _connect(self):
        port = Path(self._profile.name) / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (port.is_file() and port.read_text().count("\n")):
            assert time.monotonic() < end and self._process.poll() is None, "Chromium did not start"
            await asyncio.sleep(0.05)
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port.read_text().splitlines()[0]}/json") as answer:
            page = next(each for each in await answer.json() if each["type"] == "page")
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)

    def send(self, method, **params):
        return self._loop.run_until_complete(self._send(method, params))

    async def _send(self, method, params):
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=120)
            if message.get("method") == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            elif message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"].get("exception", {}).get("description", "?"))
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def size(self, width, height=900, touch=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.send("Emulation.setTouchEmulationEnabled", enabled=touch)

    def media(self, kind="", scheme="light"):
        self.send("Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path, part=""):
        """Open a file, perhaps at a part such as #name, and wait until it is loaded."""
        self.send("Page.navigate", url=path.resolve().as_uri() + part)
        end = time.monotonic() + 60
        while self.js("document.readyState") != "complete" or "file" not in self.js("location.protocol"):
            assert time.monotonic() < end, "the page did not load"
            time.sleep(0.05)

    def js(self, expression):
        """Return the value of an expression, also of a promise."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def move(self, x, y):
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, start, end):
        for kind, (x, y) in (("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def close(self):
        self._loop.run_until_complete(self._session.close())
        self._process.terminate()
        self._process.wait(timeout=30)
        self._loop.close()
        self._profile.cleanup()
