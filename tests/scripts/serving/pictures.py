"""Pictures of the page for the documents: real bots on a phone and a desktop, light and dark.

    python -m tests.scripts.serving.pictures runs/chatbot runs/zh docs

The runs are those of README.md's commands, in English and in Chinese, for which there has to be a
font (Debian: fonts-noto-cjk).
"""
# ruff: noqa: RUF001 - Chinese has its own punctuation.

import io
import pathlib
import sys
import tempfile

from PIL import Image

from tests.browsers import open_browser
from tests.programs import wait_until
from tests.scripts.serving import page_test
from tests.scripts.serving.served_runs import served

PHONE = {"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 900, "height": 560, "deviceScaleFactor": 1, "mobile": False}
TALKS = {
    "en-US": [
        "I have a cat called Daisy.",
        "What does it say?",
        "First take four and add five.",
        "Now add two.",
        "What is the capital of China?",
    ],
    "zh-CN": [
        "我叫小林。",
        "我叫什么名字？",
        "二加上三等于几？",
        "再加一呢？",
        "中国的首都是哪里？",
    ],
}
GREETINGS = {
    "en-US": "Hello! I was trained on small embedded dialogues.",
    "zh-CN": "你好！我学过一些简短的对话。",
}
GAP, COLOURS = 24, 48


def main(english: str, chinese: str, folder: str) -> None:
    """Writes `page.png`, two phones side by side, and `page-desktop.png`, two windows."""
    pictures = {}
    with tempfile.TemporaryDirectory() as profile, open_browser(pathlib.Path(profile)) as browser:
        for run_dir, language in ((english, "en-US"), (chinese, "zh-CN")):
            options = ["--title", "Daisy" if language == "en-US" else "小林"]
            options += ["--greeting", GREETINGS[language]]
            with served(pathlib.Path(run_dir), *options) as service:
                for size in ("phone", "desktop"):
                    is_dark = (size == "phone") == (language == "zh-CN")
                    show(browser, service.address, language, size, is_dark)
                    pictures[size, language] = picture_of(browser)
    for name, size in (("page.png", "phone"), ("page-desktop.png", "desktop")):
        save([pictures[size, language] for language in TALKS], pathlib.Path(folder) / name)


def show(browser, address, language, size, is_dark):
    """Opens the page as a user of a language sees it; on a phone something was said."""
    agent = browser.execute_script("return navigator.userAgent.replace('Headless', '')")
    browser.execute_cdp_cmd(
        "Emulation.setUserAgentOverride", {"userAgent": agent, "acceptLanguage": language}
    )
    feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"phone": PHONE, "desktop": DESKTOP}[size]
    )
    browser.get(address)
    browser.execute_script("sessionStorage.clear()")
    browser.refresh()
    wait_until(lambda: page_test.find(browser, "#examples button"), "the page knows the bot")
    if size == "phone":
        for question in TALKS[language]:
            page_test.ask(browser, question)


def picture_of(browser):
    """Returns what the browser shows."""
    return Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")


def save(pictures, path):
    """Writes pictures side by side, in few colours."""
    width = sum(one.width for one in pictures) + GAP * (len(pictures) - 1)
    both = Image.new("RGB", (width, pictures[0].height), "#888")
    left = 0
    for one in pictures:
        both.paste(one, (left, 0))
        left += one.width + GAP
    both.quantize(COLOURS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
