"""The page in a real browser: it asks, streams, remembers, and takes no text for HTML.

With the environment variable TOWERS_SCREENSHOTS=docs the picture of the documents is made anew.
"""

import os
import pathlib

import pytest

from tests.browsers import NEEDS_BROWSER, open_browser
from tests.programs import wait_until
from tests.scripts.serving.servers import Echo, serving

pytestmark = NEEDS_BROWSER
PHONE = {"width": 320, "height": 568, "deviceScaleFactor": 2, "mobile": True}
DIALOGUE = {
    "First take four and add five.": "i get nine.",
    "Now add two.": "i get eleven.",
    "What is the capital of China?": "beijing.",
}
ATTACK = "<img src=x onerror=\"document.title='broken'\"> <b>&amp;</b>"
# The names that a screen reader says for all that a user can operate.
NAMES = """
return [...document.querySelectorAll('button, input, textarea, summary, [tabindex]')]
  .filter((one) => one.checkVisibility())
  .map((one) => one.ariaLabel || (one.labels && one.labels[0] && one.labels[0].textContent)
    || one.textContent);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def chatbot():
    return Echo()


@pytest.fixture
def page(browser, chatbot):
    """The page, as somebody sees it who was never here."""
    with serving(chatbot, max_message_length=100) as client:
        browser.get(str(client.base_url))
        wait_until(lambda: text_of(browser, "#name") == "echo", "the page knows the model")
        yield browser
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not [one for one in errors if "favicon" not in one["message"]], errors


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def text_of(browser, selector):
    return " ".join(element.text for element in find(browser, selector))


def said(browser):
    """Returns the texts of the conversation, without their speakers' names."""
    return browser.execute_script(
        "return [...document.querySelectorAll('.message')].map((one) => one.childNodes[1].data)"
    )


def ask(browser, question):
    """Types a question and Enter; returns when the answer is there."""
    before = len(said(browser))
    (field,) = find(browser, "#question")
    field.send_keys(question, "\n")
    wait_until(lambda: len(said(browser)) == before + 2 and can_send(browser), "an answer")


def can_send(browser):
    return find(browser, "#send")[0].is_enabled()


def set_value(browser, selector, value):
    script = "arguments[0].value = arguments[1]"
    browser.execute_script(script, find(browser, selector)[0], value)


def test_it_asks_with_the_keyboard_remembers_and_forgets(page, chatbot):
    assert page.switch_to.active_element.get_attribute("id") == "question"
    ask(page, "hello")
    ask(page, "你好")
    assert said(page) == ["hello", "hello", "你好", "你好"]
    assert chatbot.batches[-1][0].turns == ("hello", "hello", "你好")
    announced = find(page, "[aria-live=polite]")[0].get_attribute("textContent")
    assert announced == "Chatbot: 你好"
    page.refresh()
    assert said(page) == ["hello", "hello", "你好", "你好"]
    find(page, "#new")[0].click()
    assert said(page) == [] and find(page, "#empty")[0].is_displayed()
    page.refresh()
    assert said(page) == []


def test_text_is_never_html(page):
    ask(page, ATTACK)
    assert said(page) == [ATTACK, ATTACK]
    assert not find(page, ".message img, .message b")
    page.refresh()
    assert said(page) == [ATTACK, ATTACK] and page.title == "echo"


def test_other_answers_are_offered_on_request(page, chatbot):
    set_value(page, "#choices", 3)
    ask(page, "hi")
    first, second = find(page, ".other")
    assert (said(page)[1], first.text, second.text) == ("hi", "hi!", "hi!!")
    second.click()
    assert (said(page)[1], second.text) == ("hi!!", "hi")
    ask(page, "ho")
    assert chatbot.batches[-1][0].turns == ("hi", "hi!!", "ho")


def test_what_the_server_refuses_is_shown_and_the_question_kept(page, chatbot):
    chatbot.error = ZeroDivisionError("a bug")
    (field,) = find(page, "#question")
    field.send_keys("hello\n")
    wait_until(lambda: "bug" in text_of(page, "#error") and can_send(page), "an error")
    assert said(page) == [] and field.get_attribute("value") == "hello"
    chatbot.error = None
    field.clear()
    ask(page, "hello")
    assert text_of(page, "#error") == ""
    page.get_log("browser")  # The browser's own line about the status 500.


def test_everything_has_a_name(page):
    find(page, "summary")[0].click()
    names = page.execute_script(NAMES)
    assert len(names) >= 8 and all(name.strip() for name in names)


def test_a_phone_needs_no_scrolling_aside(page, chatbot, tmp_path):
    widths = "return [document.documentElement.scrollWidth, innerWidth]"
    chatbot.says = DIALOGUE
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        for question in DIALOGUE:
            ask(page, question)
        folder = pathlib.Path(os.environ.get("TOWERS_SCREENSHOTS", tmp_path))
        assert page.save_screenshot(str(folder / "page.png"))
        ask(page, "a" * 90)
        assert page.execute_script(widths) == [320, 320]
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_and_light_are_chosen_by_the_system_or_by_the_user(page):
    def background():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    colours = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        colours[scheme] = background()
    assert colours["light"] != colours["dark"]
    find(page, "#theme")[0].click()
    assert background() == colours["light"]
    page.refresh()
    assert background() == colours["light"]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_asks_for_the_token(browser):
    with serving(Echo(), access={"token": "secret"}) as client:
        browser.get(str(client.base_url))
        wait_until(lambda: "token" in text_of(browser, "#error"), "an error")
        (field,) = find(browser, "#token")
        assert field.is_displayed()
        field.send_keys("secret\t")
        wait_until(lambda: text_of(browser, "#name") == "echo", "the model is known")
        ask(browser, "hello")
        assert said(browser) == ["hello", "hello"]
        assert "secret" not in browser.execute_script("return JSON.stringify(localStorage)")
