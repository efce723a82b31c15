"""The chat page in a headless Chromium, as its user sees it: by names, labels and texts."""
import json
import os
import shutil
import tempfile
import time

import pytest

WAIT_S = 60  # for anything that is to happen
BUTTON = """
    const [name, within] = arguments;
    const found = [...document.querySelectorAll(within + ' button')].filter((b) =>
        b.offsetWidth && b.checkVisibility({visibilityProperty: true}) && (b.ariaLabel ?? b.innerText).trim().startsWith(name));
"""
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


def missing():
    """What a browser test lacks here; "" when there is all."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium (tests/py/requirements.txt)"
    return "" if CHROMIUM and DRIVER else "chromium and chromedriver (scripts/setup browser)"


def open_browser(profile):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,800",
                 f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


class Page:
    """One window. `state()` reads the conversation off the elements that show it."""

    def __init__(self, driver, url):
        self.driver, self.url = driver, url

    def open(self, path="/"):
        self.driver.get(self.url + path)
        self.until(lambda: self.js("return document.readyState === 'complete' && !document.body.inert"))
        return self

    def open_with(self, script):
        """Opens it in a browser that this script has changed."""
        changed = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        self.open()
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", changed)
        return self

    def js(self, script, *args):
        return self.driver.execute_script(script, *args)

    def until(self, check, what=None):
        """Waits for a true value and returns it. Elements may be replaced while it is computed."""
        from selenium.common.exceptions import StaleElementReferenceException
        end = time.monotonic() + WAIT_S
        while True:
            try:
                if value := check():
                    return value
            except StaleElementReferenceException:
                pass
            assert time.monotonic() < end, f"{what or 'it'} did not come: {self.js('return document.body.innerText')}"
            time.sleep(0.02)

    def find(self, selector, text=None):
        """The first visible element of a selector that has this text."""
        return self.js("""const [selector, text] = arguments;
            return [...document.querySelectorAll(selector)].find((e) => e.getClientRects().length
                && e.checkVisibility({visibilityProperty: true}) && e.innerText.includes(text))""", selector, text or "")

    def see(self, selector, text=None):
        return self.until(lambda: self.find(selector, text), f"{selector} {text or ''}")

    def button(self, name, within=""):
        """The last visible button whose name begins so."""
        return self.until(lambda: self.js(BUTTON + "return found.at(-1)", name, within), f"button {name}")

    def press(self, name, within=""):
        self.until(lambda: self.js(BUTTON + "found.at(-1)?.click(); return found.length > 0", name, within), f"button {name}")

    def hover(self, selector, text):
        from selenium.webdriver.common.action_chains import ActionChains
        self.until(lambda: ActionChains(self.driver).move_to_element(self.see(selector, text)).perform() or True)

    def click(self, selector, text=None):
        self.until(lambda: self.see(selector, text).click() or True)

    def keys(self, *keys, into=None):
        (into or self.driver.switch_to.active_element).send_keys(*keys)

    def chord(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains
        chain = ActionChains(self.driver)
        for k in keys[:-1]:
            chain.key_down(k)
        chain.send_keys(keys[-1])
        for k in keys[:-1]:
            chain.key_up(k)
        chain.perform()

    def write(self, text):
        self.see("#input").send_keys(text)

    def send(self, text, waits=True):
        n = len(self.state()) if waits else 0
        self.write(text + "\n")
        if waits:
            self.until(lambda: len(self.state()) >= n + 2, "the message")
            self.until_done()

    def is_writing(self):
        return self.js("return !document.getElementById('stop').hidden")

    def until_done(self):
        self.until(lambda: not self.is_writing(), "the end of the answer")

    def state(self):
        """[{role, text, thought, note, figures, branch}] of the messages shown."""
        return self.js("""
            const text = (e, s) => e.querySelector(s)?.textContent ?? '';
            return [...document.querySelectorAll('#thread article')].map((a) => ({
                role: a.classList[0], text: text(a, ':scope > .text').trim(), thinking: text(a, 'summary'),
                note: text(a, '.problem'), figures: text(a, '.figures'), branch: text(a, '.branches'),
                calls: [...a.querySelectorAll('.call')].map((c) => c.textContent),
                busy: a.ariaBusy === 'true'}))""")

    def stored(self):
        """The conversations in the browser's database."""
        return self.driver.execute_async_script("""
            const done = arguments[0], open = indexedDB.open('pantheon', 1);
            open.onsuccess = () => {
                const all = open.result.transaction('chats').objectStore('chats').getAll();
                all.onsuccess = () => { open.result.close(); done(all.result); };
            };""")

    def titles(self):
        return self.js("return [...document.querySelectorAll('#chats .open')].map((e) => e.textContent)")

    def set(self, **fields):
        """Fills in the settings' form; fields: the request's further ones."""
        self.press("Settings", "#side")
        for name, value in fields.items():
            value = json.dumps(value) if isinstance(value, dict) else str(value)
            self.js("""const [name, value] = arguments, input = document.querySelector(`#settings [name=${name}]`);
                input.value = value; input.dispatchEvent(new Event('change', {bubbles: true}));""", name, value)
        self.press("Done", "#settings")

    def width(self, pixels, height=720):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": pixels, "height": height, "deviceScaleFactor": 1, "mobile": pixels < 600})

    def colours(self, scheme):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def complaints(self):
        """What the browser's console got, failed requests apart."""
        return [line["message"] for line in self.driver.get_log("browser")
                if line["level"] in ("SEVERE", "WARNING") and "Failed to load resource" not in line["message"]]


@pytest.fixture(scope="session")
def browser():
    if why := missing():
        pytest.skip(f"the page's tests need {why}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        driver = open_browser(profile)
        yield driver
        driver.quit()
