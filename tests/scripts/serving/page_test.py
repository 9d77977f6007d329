"""The page in a real browser: it asks, stops, remembers, and takes no text for HTML."""

import threading

import pytest
import tensorflow as tf

from tests.browsers import NEEDS_BROWSER, open_browser
from tests.programs import wait_until
from tests.scripts.serving.servers import Echo, serving

pytestmark = NEEDS_BROWSER
PHONE = {"width": 320, "height": 568, "deviceScaleFactor": 2, "mobile": True}
GREETING = "Ask <b>me</b>!"
CLIPBOARD = ["clipboardReadWrite", "clipboardSanitizedWrite"]
ATTACK = "<img src=x onerror=\"document.title='broken'\"> <b>&amp;</b>"
# The names that a screen reader says for all that a user can operate.
NAMES = """
return [...document.querySelectorAll('button, input, textarea, summary, [tabindex]')]
  .filter((one) => one.checkVisibility())
  .map((one) => one.ariaLabel || (one.labels && one.labels[0] && one.labels[0].textContent)
    || one.textContent);
"""
# Every text that the page itself has, shown or not.
TEXTS = """
const texts = [...document.body.querySelectorAll(':not(noscript)')].flatMap((one) => [
  one.ariaLabel, one.title, one.placeholder, ...[...one.childNodes]
    .filter((node) => node.nodeType === 3).map((node) => node.data.trim())]);
return texts.filter(Boolean);
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
        visit(browser, client)
        browser.execute_script("sessionStorage.clear(); localStorage.clear()")
        visit(browser, client)
        yield browser
        errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
        assert not [one for one in errors if "favicon" not in one["message"]], errors


def visit(browser, client, title="echo"):
    browser.get(str(client.base_url))
    wait_until(lambda: text_of(browser, "#name") == title, "the page knows the model")


def find(browser, selector):
    return browser.find_elements("css selector", selector)


def text_of(browser, selector):
    return " ".join(element.text for element in find(browser, selector))


def said(browser):
    """Returns the texts of the conversation, without their speakers' names."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#conversation .message')]"
        ".map((one) => one.childNodes[1].data)"
    )


def ask(browser, question):
    """Types a question and Enter; returns when the answer is there."""
    before = len(said(browser))
    (field,) = find(browser, "#question")
    field.send_keys(question, "\n")
    wait_until(lambda: len(said(browser)) == before + 2 and can_send(browser), "an answer")


def can_send(browser):
    return text_of(browser, "#send") in ("Send", "发送")


def announced(browser):
    return find(browser, "[aria-live=polite]")[0].get_attribute("textContent")


def set_value(browser, selector, value):
    script = "arguments[0].value = arguments[1]"
    browser.execute_script(script, find(browser, selector)[0], value)


def test_it_asks_with_the_keyboard_remembers_and_forgets(page, chatbot):
    assert page.switch_to.active_element.get_attribute("id") == "question"
    assert "2 before it" in text_of(page, "#empty")
    ask(page, "hello")
    ask(page, "你好")
    assert said(page) == ["hello", "hello", "你好", "你好"]
    assert chatbot.batches[-1][0].turns == ("hello", "hello", "你好")
    assert announced(page) == "Chatbot: 你好"
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


def test_text_from_right_to_left_begins_at_the_right(page):
    ask(page, "שלום hello")
    ask(page, "hello שלום")
    bubbles = find(page, "#conversation .message")
    directions = [one.value_of_css_property("direction") for one in bubbles]
    assert directions == ["rtl", "rtl", "ltr", "ltr"]
    (field,) = find(page, "#question")
    field.send_keys("שלום")
    assert field.value_of_css_property("direction") == "rtl"


def test_what_is_typed_and_not_sent_outlives_a_reload(page):
    find(page, "#question")[0].send_keys("a draft")
    page.refresh()
    wait_until(lambda: text_of(page, "#name") == "echo", "the page knows the model")
    ask(page, " of mine")
    assert said(page) == ["a draft of mine"] * 2
    page.refresh()
    assert find(page, "#question")[0].get_attribute("value") == ""


def test_other_answers_are_offered_on_request(page, chatbot):
    set_value(page, "#choices", 3)
    ask(page, "hi")
    first, second = find(page, ".message .other")
    assert (said(page)[1], first.text, second.text) == ("hi", "hi!", "hi!!")
    second.click()
    first, second = find(page, ".message .other")
    assert (said(page)[1], first.text, second.text) == ("hi!!", "hi!", "hi")
    assert page.switch_to.active_element == second
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
    ask(page, "hello")
    find(page, "summary")[0].click()
    names = page.execute_script(NAMES)
    assert len(names) >= 10 and all(name.strip() for name in names)


def test_a_phone_needs_no_scrolling_aside_and_options_hide_no_answer(page):
    widths = "return [document.documentElement.scrollWidth, innerWidth]"
    is_seen = """
        const [main, last] = ['main', '.message:last-child'].map(
          (one) => document.querySelector(one).getBoundingClientRect());
        return main.top <= last.top && last.bottom <= main.bottom && main.bottom <= innerHeight;
    """
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        for question in ("a" * 90, "b c " * 20, "hello"):
            ask(page, question)
        assert page.execute_script(widths) == [320, 320]
        assert page.execute_script(is_seen)
        find(page, "summary")[0].click()
        wait_until(lambda: page.execute_script(is_seen), "the last answer is seen")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_each_tab_has_a_conversation_of_its_own(page):
    ask(page, "hello")
    first, address = page.current_window_handle, page.current_url
    page.switch_to.new_window("tab")
    try:
        page.get(address)
        assert said(page) == []
        ask(page, "ho")
    finally:
        page.close()
        page.switch_to.window(first)
    page.refresh()
    assert said(page) == ["hello", "hello"]


def test_stop_ends_the_decoding_and_gives_the_question_back(page, chatbot):
    thinks = threading.Event()

    @tf.function(autograph=False)
    def think():
        first = tf.constant(0, tf.int64)
        return tf.while_loop(lambda count: count < 2**62, lambda count: count + 1, [first])

    def replies(request):
        if request.turns[-1] == "think":
            thinks.set()
            think()
        return Echo.replies(chatbot, request)

    chatbot.replies = replies
    ask(page, "hello")
    (field,) = find(page, "#question")
    field.send_keys("think\n")
    wait_until(thinks.is_set, "it thinks")
    find(page, "#send")[0].click()
    wait_until(lambda: can_send(page), "it is stopped")
    assert (said(page), field.get_attribute("value")) == (["hello", "hello"], "think")
    assert text_of(page, "#error") == ""
    field.clear()
    ask(page, "ho")
    assert said(page) == ["hello", "hello", "ho", "ho"]


def test_retry_asks_for_one_more_answer_and_copy_takes_the_last(page, chatbot):
    assert not find(page, "#retry")[0].is_displayed()
    ask(page, "hi")
    for others in (["hi!"], ["hi!", "hi!!"]):
        find(page, "#retry")[0].click()
        wait_until(lambda: can_send(page), "an answer")
        assert [other.text for other in find(page, ".message .other")] == others
        assert said(page) == ["hi", "hi"]
    assert chatbot.batches[-1][0].turns == ("hi",)
    page.refresh()
    find(page, ".message .other")[1].click()
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": CLIPBOARD})
    find(page, "#copy")[0].click()
    wait_until(lambda: announced(page) == "Copied.", "it is copied")
    copied = "navigator.clipboard.readText().then(arguments[0])"
    assert page.execute_async_script(copied) == said(page)[-1] == "hi!!"


def test_a_retry_that_fails_leaves_the_answer_as_it_was(page, chatbot):
    ask(page, "hi")
    chatbot.error = ZeroDivisionError("a bug")
    find(page, "#retry")[0].click()
    wait_until(lambda: "bug" in text_of(page, "#error") and can_send(page), "an error")
    assert said(page) == ["hi", "hi"]
    assert find(page, "#question")[0].get_attribute("value") == ""
    page.get_log("browser")


def test_nothing_is_cut_in_silence(page, chatbot):
    (field,) = find(page, "#question")
    field.send_keys("字" * 101)
    assert "at most 100 characters, this one 101" in text_of(page, "#error")
    field.send_keys("\n")
    assert said(page) == [] and not chatbot.batches
    field.clear()
    chatbot.unread, chatbot.is_cut = 3, True
    ask(page, "hello")
    asked, answered = find(page, ".note")
    assert "only its end counted" in asked.text and "was cut" in answered.text
    chatbot.unread, chatbot.is_cut = 0, False
    ask(page, "ho")
    assert len(find(page, ".note")) == 2


@pytest.mark.parametrize(
    ("languages", "language"),
    [("zh-CN", "zh"), ("fr,zh-TW,en", "zh"), ("en-GB,zh", "en"), ("fr", "en")],
)
def test_the_page_speaks_the_language_of_the_browser(page, chatbot, languages, language):
    english = set(page.execute_script(TEXTS))
    agent = page.execute_script("return navigator.userAgent")
    override = "Emulation.setUserAgentOverride"
    page.execute_cdp_cmd(override, {"userAgent": agent, "acceptLanguage": languages})
    try:
        page.refresh()
        wait_until(lambda: text_of(page, "#name") == "echo", "the page knows the model")
        assert page.execute_script("return document.documentElement.lang") == language
        others = set(page.execute_script(TEXTS))
        assert len(others) == len(english) > 20
        assert english & others == (english if language == "en" else {"echo", "an example"})
        chatbot.error = ZeroDivisionError("a bug")
        find(page, "#question")[0].send_keys("hello\n")
        error = "内部出错" if language == "zh" else "a bug in the server"
        wait_until(lambda: error in text_of(page, "#error") and can_send(page), "an error")
    finally:
        page.execute_cdp_cmd(override, {"userAgent": agent, "acceptLanguage": "en-US"})
    page.get_log("browser")


def test_the_title_the_greeting_and_examples_are_the_server_s(browser):
    with serving(Echo(), access={"title": "My bot", "greeting": GREETING}) as client:
        visit(browser, client, "My bot")
        assert (browser.title, text_of(browser, "#greeting")) == ("My bot", GREETING)
        find(browser, "#examples button")[0].click()
        wait_until(lambda: said(browser) == ["an example"] * 2, "an answer")
        assert text_of(browser, "#greeting") == GREETING


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
        browser.get_log("browser")
