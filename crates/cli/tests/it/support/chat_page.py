import itertools, json, sys, urllib.request
from playwright.sync_api import expect, sync_playwright

address, chromium = sys.argv[1:]

def answer(messages, seed):
    """Returns the text that the API answers, and its number of tokens."""
    body = json.dumps(dict(messages=messages, temperature=0.7, seed=seed)).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
    with urllib.request.urlopen(urllib.request.Request(address + "/v1/chat/completions", body, headers)) as response:
        document = json.load(response)
    return document["choices"][0]["message"]["content"], document["usage"]["completion_tokens"]

hello = [dict(role="user", content="hello world")]
# A second question must fit the context of the tiny model.
seed = next(seed for seed in itertools.count() if answer(hello, seed)[1] < 60)

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    page = browser.new_page()
    errors, foreign = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(address) else foreign.append(request.url))
    page.goto(address)
    send, log, text = page.locator("#send"), page.locator("#log"), page.locator("#input")

    text.fill("without a key")
    text.press("Enter")
    expect(log.locator(".error")).to_contain_text("API key")
    page.locator("#reset").click()
    expect(log).to_be_empty()

    page.locator("summary").click()
    for name, value in dict(key="secret", temperature="0.7", seed=str(seed)).items():
        page.locator("#" + name).fill(value)
    messages = []
    for question in ["hello world", "<b>"]:
        text.fill(question)
        text.press("Enter")
        expect(send).to_have_text("Send")
        messages.append(dict(role="user", content=question))
        expected, tokens = answer(messages, seed)
        shown = log.locator(".assistant").last.text_content()
        assert shown == expected, (shown, expected)
        assert log.locator(".user").last.text_content() == question
        expect(page.locator("#status")).to_contain_text(f"{tokens} tokens")
        messages.append(dict(role="assistant", content=expected))
    assert log.locator("b").count() == 0, "a message became HTML"

    page.locator("#reset").click()
    expect(log).to_be_empty()
    text.fill("word " * 300)
    send.click()
    expect(log.locator(".error")).to_contain_text("context")
    assert not errors and not foreign, (errors, foreign)
    browser.close()
print("ok")
