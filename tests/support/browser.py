"""A page in headless Chromium, driven over its debugging pipe, for tests that look at pages as a reader sees them.
No package is needed beside the browser.

    with Browser() as browser:                 # raises Missing if there is no browser
        page = browser.open("file:///…", width=360, dark=True)
        page.value("document.title")           # a JavaScript expression
        page.complaints                        # errors and warnings of the console, and exceptions
        page.requests                          # addresses that it asked for, itself included
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
OPTIONS = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
           "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
           "--force-color-profile=srgb", "--hide-scrollbars"]
SECONDS = 60


class Missing(Exception):
    """There is no browser."""


class Browser:
    def __init__(self):
        program = next((p for p in map(shutil.which, NAMES) if p), None)
        if not program:
            raise Missing("Chromium is not installed")
        self.profile = tempfile.mkdtemp()
        ours, theirs = os.pipe(), os.pipe()
        # The browser reads from 3 and writes to 4.
        command = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, f"--user-data-dir={self.profile}", *OPTIONS, "about:blank"],
            pass_fds=(ours[0], theirs[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.from_, self.rest, self.number, self.pages = ours[1], theirs[0], b"", 0, {}

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.from_)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, until):
        while b"\0" not in self.rest:
            if not select.select([self.from_], [], [], max(0, until - time.monotonic()))[0]:
                raise RuntimeError("the browser does not answer")
            got = os.read(self.from_, 1 << 16)
            if not got:
                raise RuntimeError("the browser ended")
            self.rest += got
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        page = self.pages.get(message.get("sessionId"))
        if page and "method" in message:
            page.note(message["method"], message["params"])
        return message

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            answer = self.receive(until)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, address, width=1280, height=900, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, target, session)
        for part in ["Page", "Runtime", "Log", "Network"]:
            page.call(part + ".enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        page.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.navigate", url=address)
        until = time.monotonic() + SECONDS
        while not page.loaded:
            self.receive(until)
        page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return page


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session = browser, target, session
        self.complaints, self.requests, self.loaded = [], [], False

    def note(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def value(self, expression):
        """Returns the value of a JavaScript expression as JSON represents it; waits for a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {json.dumps(answer['exceptionDetails'])[:500]}")
        return answer["result"].get("value")

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path):
        """The whole page as a PNG file."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
