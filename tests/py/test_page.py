"""The chat page of `pantheon serve`: one file without outside resources, driven in a real Chromium."""
import base64
import hashlib
import json
import re
import time

import pytest

from conftest import IS_SANITIZED, MODEL, pantheon
from page import Page, browser  # noqa: F401
from serving import Server

# The page's script is the same whatever the server was built with.
in_browser = pytest.mark.skipif(IS_SANITIZED, reason="browser tests are for the release build")
QUESTION = "What is the capital of France?"
GREEDY = {"temperature": 0}


@pytest.fixture
def page(browser, server):  # noqa: F811
    """A page without conversations and settings, in a window of its own."""
    fresh = new_page(browser, server.url)
    yield fresh
    assert fresh.complaints() == []


def new_page(driver, url):
    driver.switch_to.window(driver.window_handles[0])
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": url, "storageTypes": "all"})
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    driver.get("about:blank")
    driver.get_log("browser")
    fresh = Page(driver, url).open()
    fresh.js("sessionStorage.clear(); localStorage.clear()")
    fresh.open()
    fresh.set(temperature=0, seed=1)
    return fresh


@pytest.fixture(scope="session")
def endless():
    """Fields with which the tiny model thinks, or writes, until it is stopped."""
    ids = {word: json.loads(pantheon("tokenize", "-m", MODEL, "--special", input=word.encode()).ok().text)
           for word in ("<think>", "</think>", "<|im_end|>", "<|endoftext|>", "<tool_call>")}
    assert all(len(i) == 1 for i in ids.values())
    return {"ignore_eos": True, "max_tokens": 20000, "logit_bias": {str(i[0]): -100 for i in ids.values()}}


# --- without a browser ----------------------------------------------------------------------------

def test_one_file_and_its_policy(server):
    answer = server.get("/")
    html = answer.data.decode()
    assert answer.status == 200 and answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert html.startswith("<!doctype html>") and html.rstrip().endswith("</html>")
    markup = re.sub(r"(<script[^>]*>).*?</script>", r"\1", html, flags=re.S)
    assert not re.search(r"\bsrc=|\bhref=\"(?!#|data:)|\bon\w+=|\bstyle=", markup)
    assert not re.search(r"@import|url\(", html.split("<style>")[1].split("</style>")[0])
    policy = dict(part.strip().split(" ", 1) for part in answer.getheader("Content-Security-Policy").split(";"))
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        texts = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html, re.S)
        hashes = ["'sha256-%s'" % base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in texts]
        assert policy[directive].split() == hashes
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    for directive in ("base-uri", "form-action", "frame-ancestors"):
        assert policy[directive] == "'none'"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"


# --- answers --------------------------------------------------------------------------------------

@in_browser
def test_answer_is_the_servers(page, server):
    page.send(QUESTION)
    user, model = page.state()
    whole = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
                                                "chat_template_kwargs": {"enable_thinking": True}})
    said, n = whole["choices"][0]["message"], whole["usage"]["completion_tokens"]
    assert user["text"] == QUESTION and not model["busy"] and model["note"] == ""
    assert model["text"].split() == said["content"].split()
    assert re.match(r"Thought for [\d.]+ s, \d+ tokens", model["thinking"])
    assert re.search(rf"tokens/s · {n} tokens written · {whole['usage']['prompt_tokens']} read, \d+ of them cached", model["figures"])
    box = page.find(".thought details")
    assert not page.js("return arguments[0].open", box)
    page.click("summary", "Thought")
    # the toggle's event comes some time after the click
    page.until(lambda: page.js("return arguments[0].querySelector('.text').textContent", box).strip() == said["reasoning_content"].strip())
    assert page.see("#context").text.endswith("k") and page.find("#model").text


@in_browser
def test_without_thinking(page):
    page.press("Thinking", "#composer")
    page.send(QUESTION)
    model = page.state()[-1]
    assert page.find(".thought") is None and model["text"]
    # The second turn's prompt begins as the first's ended.
    page.send("And of Spain?")
    read, cached = map(int, re.search(r"(\d+) read, (\d+) of them cached", page.state()[-1]["figures"]).groups())
    assert 0 < cached < read
    page.open()
    assert page.find("#think").get_attribute("aria-pressed") == "false"


@in_browser
def test_thoughts_have_a_budget(page, endless):
    page.set(thinking_budget=5, fields=endless | {"max_tokens": 200})
    page.send(QUESTION)
    model = page.state()[-1]
    assert int(re.match(r"Thought for [\d.]+ s, (\d+) tokens", model["thinking"])[1]) < 100 and model["text"]


@in_browser
def test_streams_while_it_thinks_and_answers_now(page, endless):
    page.set(fields=endless)
    page.send(QUESTION, waits=False)

    def count():
        title = page.state()[-1]["thinking"] if page.state() else ""
        found = re.search(r"Thinking for [\d.]+ s, ([\d,]+) tokens", title)
        return int(found[1].replace(",", "")) if found else 0

    first = page.until(count, "thoughts")
    page.until(lambda: count() > first, "more thoughts")
    assert page.state()[-1]["busy"] and page.state()[-1]["text"] == ""
    page.press("Answer now")
    page.see("summary", "Thought for")
    text = page.until(lambda: page.state()[-1]["text"], "the answer")
    page.until(lambda: len(page.state()[-1]["text"]) > len(text), "more of the answer")
    page.press("Stop")
    page.until_done()
    assert page.find(".thought button") is None


@in_browser
def test_stop_keeps_what_came_and_goes_on(page, endless):
    from selenium.webdriver.common.keys import Keys
    page.press("Thinking", "#composer")
    page.set(fields=endless)
    page.send(QUESTION, waits=False)
    page.until(lambda: len(page.state()[-1]["text"]) > 40, "text")
    page.keys(Keys.ESCAPE)
    page.until_done()
    stopped = page.state()[-1]
    assert stopped["note"].startswith("Stopped.") and len(stopped["text"]) > 40
    raw = last_node(page)["content"]
    page.set(fields=endless | {"max_tokens": 30})
    page.press("Continue")
    page.until(lambda: "limit of tokens" in page.state()[-1]["note"], "the rest")
    assert last_node(page)["content"].startswith(raw) and len(last_node(page)["content"]) > len(raw)
    assert len(page.state()) == 2


def last_node(page):
    """The latest message that nothing follows, as it is stored."""
    [chat] = page.stored()
    parents = {n["parent"] for n in chat["nodes"].values()}
    return max((n for n in chat["nodes"].values() if n["id"] not in parents), key=lambda n: n["at"])


@in_browser
def test_tool_calls_are_shown_and_answered(page):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    page.press("Thinking", "#composer")
    page.set(fields={"tools": tools, "max_tokens": 60, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}})
    page.send("How is the weather in Rome?")
    model = page.state()[-1]
    assert len(model["calls"]) >= 1 and "get_weather" in model["calls"][0]
    node = last_node(page)
    for area in page.driver.find_elements("css selector", ".problem textarea"):
        area.send_keys("17 <b>degrees</b>")
    page.set(fields={"tools": tools, "max_tokens": 8})
    page.press("Send results")
    page.until(lambda: len(page.state()) == 4)
    page.until_done()
    assert page.state()[2]["role"] == "tool" and "17 <b>degrees</b>" in page.state()[2]["calls"][0]
    results = [n for n in page.stored()[0]["nodes"].values() if n["role"] == "tool"]
    assert [r["id"] for r in results[0]["results"]] == [c["id"] for c in node["calls"]]


# --- branches, storage ----------------------------------------------------------------------------

@in_browser
def test_edit_and_regenerate_make_branches(page):
    page.set(max_tokens=12)
    page.send(QUESTION)
    first = page.state()
    page.press("Edit message")
    area = page.see("article .editor textarea")
    assert area.get_attribute("value") == QUESTION
    area.clear()
    area.send_keys("Say hello.\n")
    page.until(lambda: page.state() and page.state()[0]["text"] == "Say hello.")
    page.until_done()
    assert page.state()[0]["branch"] == "2/2" and len(page.state()) == 2
    page.press("Regenerate")
    page.until(lambda: page.state()[-1]["branch"] == "2/2")
    page.until_done()
    page.press("Version before", "article.user")
    page.until(lambda: page.state()[0]["text"] == QUESTION)
    assert [m["text"] for m in page.state()] == [m["text"] for m in first]
    page.open("/" + page.js("return location.hash"))
    page.until(lambda: len(page.state()) == 2, "the conversation")
    assert page.state()[0]["branch"] == "1/2" and page.state()[0]["text"] == QUESTION
    page.press("Next version", "article.user")
    page.until(lambda: page.state()[0]["text"] == "Say hello.")
    assert page.state()[1]["branch"] == "2/2"


@in_browser
def test_reload_keeps_the_conversation_even_while_it_is_written(page, endless):
    page.press("Thinking", "#composer")
    page.set(fields=endless)
    page.send(QUESTION, waits=False)
    page.until(lambda: len(page.state()[-1]["text"]) > 100, "text")
    page.until(lambda: page.stored() and len(last_node(page)["content"]) > 50, "a stored part")
    page.driver.refresh()
    page.until(lambda: len(page.state()) == 2, "the conversation")
    assert page.state()[0]["text"] == QUESTION and len(page.state()[1]["text"]) > 50
    page.write("half a thou")
    page.driver.refresh()
    page.until(lambda: page.find("#input").get_attribute("value") == "half a thou", "the draft")
    page.until(lambda: "What came is kept" in (page.driver.refresh() or page.until(page.state)[-1]["note"]), "the note")
    assert page.button("Continue")


@in_browser
def test_conversations_are_listed_found_renamed_deleted(page):
    from selenium.webdriver.common.keys import Keys
    page.set(max_tokens=4)
    for text in ("About pears\nand more", "About plums"):
        page.chord(Keys.CONTROL, "k")
        page.until(lambda: not page.state())
        page.js("const i = document.getElementById('input'); i.value = arguments[0]; i.focus()", text)
        page.send("")
    assert page.titles() == ["About plums", "About pears"]
    page.see("#search").send_keys("and MORE")
    assert page.titles() == ["About pears"]
    page.find("#search").clear()
    page.find("#search").send_keys("x\b")
    page.hover("#chats li", "About pears")
    page.press("Rename About pears")
    name = page.see("#ask-text")
    name.clear()
    name.send_keys("<b>Fruit</b>\n")
    page.until(lambda: "<b>Fruit</b>" in page.titles())
    page.hover("#chats li", "About plums")
    page.press("Delete About plums")
    page.press("Cancel", "#ask")
    assert len(page.titles()) == 2
    page.hover("#chats li", "About plums")
    page.press("Delete About plums")
    page.press("Delete", "#ask")
    page.until(lambda: page.titles() == ["<b>Fruit</b>"])
    page.until(lambda: len(page.stored()) == 1 and not page.state())
    page.driver.refresh()
    page.until(lambda: page.titles() == ["<b>Fruit</b>"])


@in_browser
def test_export_and_import(page, tmp_path):
    page.set(max_tokens=12)
    page.send(QUESTION)
    before = page.stored()
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.press("Export all")
    file = tmp_path / "pantheon-chats.json"
    page.until(file.exists, "the file")
    page.press(f"Delete {QUESTION}")
    page.press("Delete", "#ask")
    page.until(lambda: page.stored() == [])
    import_file(page, file)
    page.until(lambda: page.titles() == [QUESTION])
    assert page.stored() == before
    for text, why in (("{", "is no JSON"), ("[]", "holds no conversations"),
                      ('{"format":"pantheon-chats","chats":[{"id":"__proto__","nodes":{}}]}', "damaged")):
        file.write_text(text)
        import_file(page, file)
        page.see("#notice", why)
    assert page.titles() == [QUESTION]


def import_file(page, path):
    page.driver.find_element("css selector", "#import-file").send_keys(str(path))


@in_browser
@pytest.mark.parametrize("hears", [True, False], ids=["told", "not told"])
def test_two_windows_lose_nothing(page, browser, hears):  # noqa: F811
    """Also when the first learns of the second's messages only as it writes its own."""
    if not hears:
        page.open_with("delete window.BroadcastChannel")
    page.set(max_tokens=8)
    page.send(QUESTION)
    address = "/" + page.js("return location.hash")
    first = browser.current_window_handle
    browser.switch_to.new_window("window")
    try:
        other = Page(browser, page.url).open(address)
        other.until(lambda: len(other.state()) == 2)
        other.send("From the second window")
    finally:
        browser.close()
        browser.switch_to.window(first)
    if hears:
        page.until(lambda: len(page.state()) == 4, "what the other window wrote")
    page.send("From the first")
    page.until(lambda: {QUESTION, "From the second window", "From the first"}
               <= {n["content"] for n in page.stored()[0]["nodes"].values()}, "all messages")


@in_browser
def test_without_storage(page):
    page.open_with("Object.defineProperty(window, 'indexedDB', {get() { throw new DOMException('no', 'SecurityError'); }})")
    page.see("#notice", "keeps nothing")
    page.set(max_tokens=4)
    page.send(QUESTION)
    assert page.titles() == [QUESTION]


# --- hostile text ---------------------------------------------------------------------------------

HOSTILE = [
    "<script>pwned()</script>", "<img src=x onerror=pwned()>", "<svg onload=pwned()>", "<svg><script>pwned()</script></svg>",
    "[a](javascript:pwned())", "[a](JaVaScRiPt:pwned())", "[a](java\nscript:pwned())", "[a](&#106;avascript:pwned())",
    "[a](data:text/html,<script>pwned()</script>)", "[a](vbscript:pwned())", "[a](//evil.example/x)", "[a](/v1/models)",
    "![a](x\" onerror=\"pwned())", "![a](javascript:pwned())", "![track](https://evil.example/pixel.png)",
    "<a href=\"javascript:pwned()\">a</a>", "<iframe srcdoc=\"<script>pwned()</script>\"></iframe>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=pwned()&gt;\">",
    "<form action=\"javascript:pwned()\"><button>x</button></form>", "<style>body{display:none}</style>",
    "<meta http-equiv=refresh content=\"0;url=https://evil.example\">", "<base href=\"https://evil.example/\">",
    "```\"><img src=x onerror=pwned()>\ncode\n```", "```js\"onmouseover=\"pwned()\n</code></pre><script>pwned()</script>\n```",
    "[a]: javascript:pwned()\n\n[a]", "<javascript:pwned()>", "$<img src=x onerror=pwned()>$", "\\(<script>pwned()</script>\\)",
    "| <img src=x onerror=pwned()> |\n|---|\n| <script>pwned()</script> |", "<details open ontoggle=pwned()>x</details>",
    "<input autofocus onfocus=pwned()>", "<div id=input name=chats>clobber</div>", "<br onclick=pwned()>", "`` <img src=x onerror=pwned()> ``",
]


def assert_harmless(page):
    assert page.js("return window.isPwned") is None
    found = page.js("""
        const bad = [];
        for (const e of document.querySelectorAll('#thread *, #chats *, #title')) {
            if (e.matches('script, iframe, object, embed, style, link, base, meta, img, form:not(.editor)')) bad.push(e.outerHTML);
            for (const a of e.attributes) {
                if (/^on/i.test(a.name) || a.name === 'style' || (a.name === 'href' && !/^(https?:\\/\\/|mailto:|#icon-)/.test(a.value))) bad.push(e.outerHTML);
            }
            if (e.matches('a[href]') && (e.target !== '_blank' || !/noopener/.test(e.rel))) bad.push(e.outerHTML);
        }
        return bad;""")
    assert found == []


WATCH = """
    window.pwned = () => { window.isPwned = true; };
    window.requested = [];
    new PerformanceObserver((list) => window.requested.push(...list.getEntries().map((e) => e.name))).observe({type: 'resource', buffered: true});
"""


@in_browser
def test_hostile_conversations_do_nothing(page, tmp_path):
    nodes, parent = {}, ""
    for i, text in enumerate(HOSTILE):
        for k, role in enumerate(("user", "assistant")):
            node = {"id": f"{i:04x}{k:04x}", "parent": parent, "role": role, "at": 2 * i + k, "content": text}
            if role == "assistant":
                node |= {"thought": text, "finish": "stop", "problem": text, "figures": {"prompt": text, "generated": 3},
                         "calls": [{"id": text, "name": text, "args": text}]}
            nodes[node["id"]] = node
            parent = node["id"]
    chat = {"id": "00000000ff", "title": HOSTILE[1], "system": HOSTILE[1], "nodes": nodes, "pick": {"__proto__": "constructor"}}
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps({"format": "pantheon-chats", "version": 1, "chats": [chat]}))
    page.js(WATCH)
    import_file(page, file)
    page.until(lambda: page.titles() == [HOSTILE[1]])
    page.click("#chats .open")
    page.until(lambda: len(page.state()) == 2 * len(HOSTILE))
    page.js("for (const d of document.querySelectorAll('details')) d.open = true")
    page.until(lambda: page.js("return [...document.querySelectorAll('.thought .text')].map((e) => e.textContent)") == HOSTILE)
    shown = page.state()
    assert_harmless(page)
    assert [m["text"] for m in shown[0::2]] == HOSTILE  # a user's text is shown as it was typed
    assert all("evil.example" not in name for name in page.js("return window.requested"))
    page.driver.refresh()
    page.until(lambda: len(page.state()) == 2 * len(HOSTILE))
    assert_harmless(page)


# Answers that the tiny model would not give come from a fetch that is ours, piece by piece.
FAKE = WATCH + """
    const [pieces, end] = arguments, real = window.fetch;
    window.fetch = (url, options) => {
        if (!String(url).includes('chat/completions')) return real(url, options);
        const body = new ReadableStream({async start(out) {
            const put = (s) => out.enqueue(new TextEncoder().encode(s));
            for (const piece of pieces) {
                put('data: ' + JSON.stringify({id: 'x', choices: [{index: 0, delta: piece}]}) + '\\r\\n\\r\\n: ping\\n\\n');
                await new Promise((r) => setTimeout(r, 5));
            }
            if (end === 'lost') return out.error(new TypeError('network error'));
            put('data: ' + JSON.stringify(end) + '\\n\\ndata: [DONE]\\n\\n');
            out.close();
        }});
        return Promise.resolve(new Response(body, {headers: {'Content-Type': 'text/event-stream'}}));
    };
"""
STOP = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def pieces_of(text, key="content", n=3):
    return [{key: text[i:i + n]} for i in range(0, len(text), n)]


@in_browser
def test_hostile_streams_do_nothing(page):
    text = "\n\n".join(HOSTILE)
    page.js(FAKE, pieces_of("".join(HOSTILE), "reasoning_content", 40) + pieces_of(text, n=11), STOP)
    page.send("Go", waits=False)
    for _ in range(20):
        assert_harmless(page)
    page.until_done()
    assert_harmless(page)
    assert last_node(page)["content"] == text
    assert all("evil.example" not in name for name in page.js("return window.requested"))


@in_browser
@pytest.mark.parametrize("text", ["**a " * 5000, ">" * 20000, "1. " * 3000, "[" * 9000, "|" * 9000, "word " * 9000, "```\n" + "x = 1\n" * 3000])
def test_answers_that_repeat_themselves_do_not_hang(page, text):
    page.js(FAKE, pieces_of(text, n=500), STOP)
    begun = time.monotonic()
    page.send("Go")
    shown = page.js("return document.querySelector('.markdown').textContent")
    assert len(shown) > 0.3 * len(text) or set(text) == {"|"}
    assert last_node(page)["content"] == text
    assert time.monotonic() - begun < 20


MARKDOWN = """# Title

Some **bold**, *italic*, `code`, ~~gone~~ and [a link](https://example.org/a_b).

1. one
   - inner
2. two

| a | b |
|:--|--:|
| x | 1,5 |

```python
def f(x):  # a comment
    return "text" * 2
```

- [x] done

The sum $a_1 * b_1$ costs $5 or \\(x_2 * y\\).
"""


@in_browser
def test_markdown(page):
    page.js(FAKE, pieces_of(MARKDOWN), STOP)
    page.send("Go")
    html = page.js("return document.querySelector('.markdown').innerHTML")
    for part in ("<h1>Title</h1>", "<strong>bold</strong>", "<em>italic</em>", "<code>code</code>", "<del>gone</del>",
                 'href="https://example.org/a_b"', '<td align="right">1,5</td>', 'type="checkbox"', "$a_1 * b_1$",
                 "\\(x_2 * y\\)", '<span class="comment"># a comment</span>', '<span class="word">def</span>'):
        assert part in html, f"{part} is not in {html}"
    assert page.js("return [...document.querySelectorAll('.markdown ol > li > ul > li')].map((e) => e.textContent.trim())") == ["inner"]
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
    page.press("Copy code")
    page.see("#said")
    page.until(lambda: page.js("return document.getElementById('said').textContent") == "Copied")
    assert page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == \
        'def f(x):  # a comment\n    return "text" * 2\n'


# --- what goes wrong ------------------------------------------------------------------------------

@in_browser
def test_a_killed_server_costs_nothing(browser, endless):  # noqa: F811
    server = Server()
    try:
        page = new_page(browser, server.url)
        page.press("Thinking", "#composer")
        page.set(fields=endless)
        page.send(QUESTION, waits=False)
        page.until(lambda: len(page.state()[-1]["text"]) > 40, "text")
        server.kill()
        page.until_done()
        lost = page.state()[-1]
        assert "What came is kept" in lost["note"] and len(lost["text"]) > 40
        raw = last_node(page)["content"]
        page.press("Continue")
        page.until(lambda: "cannot be reached" in page.state()[-1]["note"])
        assert last_node(page)["content"] == raw
        with Server("--port", server.port):
            page.set(fields=endless | {"max_tokens": 30})
            page.press("Continue")
            page.until(lambda: "limit of tokens" in page.state()[-1]["note"], "the rest")
            assert last_node(page)["content"].startswith(raw) and len(last_node(page)["content"]) > len(raw)
    finally:
        server.kill()


@in_browser
def test_a_stream_that_breaks_off(page):
    page.js(FAKE, pieces_of("Half an answer"), "lost")
    page.send("Go")
    assert page.state()[-1]["text"] == "Half an answer"
    assert "The connection to the server broke" in page.state()[-1]["note"]
    assert page.button("Continue")


@in_browser
def test_key_is_asked_for(browser):  # noqa: F811
    with Server("--api-key", "open-sesame") as server:
        page = new_page(browser, server.url)
        page.see("#model", "asks for an API key")
        page.send(QUESTION)
        assert "asks for an API key" in page.state()[-1]["note"]
        page.set(api_key="wrong")
        page.see("#model", "does not accept")
        page.set(api_key="open-sesame", max_tokens=8)
        page.until(lambda: "key" not in page.find("#model").text)
        page.press("Try again")
        page.until(lambda: len(page.state()) == 2 and page.state()[-1]["figures"])
        assert page.state()[-1]["branch"] == ""


@in_browser
def test_a_conversation_beyond_the_context(browser):  # noqa: F811
    with Server("--ctx", "512") as server:
        page = new_page(browser, server.url)
        page.js("document.getElementById('input').value = 'word '.repeat(3000)")
        page.send("")
        note = page.state()[-1]["note"]
        assert "longer than the model's context" in note and "512" in note and "3" in note


@in_browser
def test_settings_say_what_is_wrong(page):
    page.press("Settings", "#side")
    for text, why in (("{", "no JSON"), ("[1]", "JSON object")):
        page.js("""const input = document.querySelector('#settings [name=fields]');
            input.value = arguments[0]; input.dispatchEvent(new Event('change', {bubbles: true}))""", text)
        assert why in page.js("return document.querySelector('#settings [name=fields]').validationMessage")
    page.open()
    page.set(fields={"temperature": "hot"})
    page.send(QUESTION)
    assert "refuses the request" in page.state()[-1]["note"] and "temperature" in page.state()[-1]["note"]


# --- looks, keyboard, names -----------------------------------------------------------------------

WIDE = "x" * 300 + "\n\n```\n" + "y" * 400 + "\n```\n\n|" + " long header |" * 12 + "\n|" + "---|" * 12 + "\n|" + " cell |" * 12 + "\n\n`" + "z" * 300 + "`"


@in_browser
def test_phone_width(page, tmp_path):
    page.width(375)
    page.js(FAKE, pieces_of(WIDE, n=50), STOP)
    page.send("w" * 300)
    for _ in range(2):
        assert page.js("return [document.documentElement.scrollWidth, innerWidth]") == [375, 375]
        outside = page.js("""return [...document.querySelectorAll('main *')].filter((e) => {
            const box = e.getBoundingClientRect();
            return box.width && (box.right > 375.5 || box.left < -0.5) && !e.closest('pre, .table');
        }).map((e) => e.outerHTML.slice(0, 200))""")
        assert outside == []
        page.driver.save_screenshot(str(tmp_path / "phone.png"))
        page.press("List of conversations")
        page.until(lambda: page.find("#search"))
        page.press("Close the list")
        page.until(lambda: page.find("#search") is None)
    page.js("document.querySelector('[data-do=settings]').click()")
    assert page.js("const b = document.getElementById('settings').getBoundingClientRect(); return b.left >= 0 && b.right <= 375")


@in_browser
def test_light_and_dark(page):
    page.js(FAKE, [{"reasoning_content": "hm"}] + pieces_of(MARKDOWN, n=50), STOP)
    page.send("Go")
    grounds = {}
    for scheme in ("light", "dark"):
        page.colours(scheme)
        grounds[scheme] = page.js("return getComputedStyle(document.body).backgroundColor")
        low = page.js(CONTRAST)
        assert low == [], scheme
    bright = {s: sum(map(int, re.findall(r"\d+", g)[:3])) for s, g in grounds.items()}
    assert bright["light"] > 600 and bright["dark"] < 150
    page.set(theme="light")
    assert page.js("return getComputedStyle(document.body).backgroundColor") == grounds["light"]


# Texts whose contrast is below 4.5 : 1 (WCAG 2.2, 1.4.3); colours as the browser computes them.
CONTRAST = """
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
        const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
    const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const low = [];
    for (const e of document.querySelectorAll('body *')) {
        const has = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (!has || !e.checkVisibility({opacityProperty: true, visibilityProperty: true}) || e.closest('.unseen, :disabled, dialog')) continue;
        let under = e, ground = [0, 0, 0, 0];
        while (ground[3] < 1 && under) { ground = rgba(getComputedStyle(under).backgroundColor); under = under.parentElement; }
        const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground)].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) low.push(`${e.tagName}.${e.className} "${e.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
    }
    return low;
"""


@in_browser
def test_keyboard(page):
    from selenium.webdriver.common.keys import Keys
    assert page.driver.switch_to.active_element.get_attribute("id") == "input"
    page.set(max_tokens=4)
    assert page.driver.switch_to.active_element.get_attribute("id") == "input"
    page.keys("first")
    page.chord(Keys.SHIFT, Keys.ENTER)
    page.keys("second", Keys.ENTER)
    page.until(lambda: len(page.state()) == 2)
    page.until_done()
    assert page.state()[0]["text"] == "first\nsecond"
    page.keys(Keys.ARROW_UP)
    assert page.see("article .editor textarea").get_attribute("value") == "first\nsecond"
    page.keys(Keys.ESCAPE)
    page.until(lambda: not page.find("article .editor"))
    assert len(page.state()) == 2
    page.chord(Keys.CONTROL, "k")
    page.until(lambda: not page.state())
    assert page.driver.switch_to.active_element.get_attribute("id") == "input"
    page.driver.back()
    page.until(lambda: len(page.state()) == 2, "the conversation before")
    # Tab reaches the input's buttons and shows where it is.
    page.js("document.getElementById('input').focus()")
    for name in ("think", "send"):
        page.keys(Keys.TAB)
        focused = page.driver.switch_to.active_element
        assert focused.get_attribute("id") == name
        assert page.js("return getComputedStyle(arguments[0]).outlineStyle", focused) == "solid"


@in_browser
def test_everything_has_a_name(page):
    page.js(FAKE, [{"reasoning_content": "hm"}] + pieces_of(MARKDOWN, n=50), STOP)
    page.send("Go")
    page.press("Edit message")
    for within in ("body", "#settings"):
        for tag in ("button", "input", "textarea", "select", "summary", "nav", "aside", "dialog"):
            for e in page.driver.find_elements("css selector", f"{within} {tag}"):
                if e.is_displayed() and e.get_attribute("type") != "checkbox":
                    assert e.accessible_name, e.get_attribute("outerHTML")
        page.press("Settings") if within == "body" else page.press("Done")
    assert page.js("""const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
        return ids.filter((id, i) => ids.indexOf(id) !== i)""") == []
    assert page.js("return document.documentElement.lang") == "en"
    assert page.js("return document.getElementById('said').ariaLive") == "polite"
    assert page.js("return document.getElementById('said').textContent") == "The answer is complete"
