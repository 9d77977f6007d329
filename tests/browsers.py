"""A headless Chromium for tests, which skip with a reason where there is none."""

import contextlib
import shutil

import pytest

from tests.programs import PATIENCE

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="chromium and chromedriver (Debian: chromium, chromium-driver) are not installed",
    ),
]
CHROMIUM_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-3d-apis",  # Without WebGL the curves are SVG paths that a test can count.
    "--window-size=1280,960",
)


@contextlib.contextmanager
def open_browser(folder):
    """Yields a browser that asks nothing of the network but this machine."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*CHROMIUM_FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_page_load_timeout(PATIENCE)
        driver.set_script_timeout(PATIENCE)
        yield driver
    finally:
        driver.quit()
