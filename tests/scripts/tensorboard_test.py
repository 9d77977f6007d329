"""A real TensorBoard on a real run, seen in a real browser: one chart, a curve for each tower.

With the environment variable TOWERS_SCREENSHOTS=docs the pictures of the documents are made anew.
"""

import contextlib
import os
import pathlib
import re
import sys
import time

import pytest
from PIL import Image

from tests.browsers import NEEDS_BROWSER, open_browser
from tests.programs import started, wait_until
from towers.scripts.main import main

pytestmark = NEEDS_BROWSER
# All elements that match, also those in the shadow trees of TensorBoard's components.
FIND_DEEP = """
const found = [];
const visit = (root) => {
  found.push(...root.querySelectorAll(arguments[0]));
  root.querySelectorAll('*').forEach((node) => node.shadowRoot && visit(node.shadowRoot));
};
visit(document);
return found;
"""


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A short real training on two towers."""
    path = tmp_path_factory.mktemp("run") / "shapes"
    epochs = "5" if "TOWERS_SCREENSHOTS" in os.environ else "2"  # Longer curves for documents.
    command = ["train", "shapes", "--towers", "2", "--epochs", epochs, "--report-every", "5"]
    assert main([*command, "--histograms", "10", "--run-dir", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def bot_dir(tmp_path_factory):
    """A short real training of a chatbot on two towers, whose graph has loops."""
    path = tmp_path_factory.mktemp("run") / "chatbot"
    command = ["train", "chatbot", "--towers", "2", "--run-dir", str(path)]
    if "TOWERS_SCREENSHOTS" not in os.environ:  # Answers for documents need the whole training.
        command += ["--steps", "1", "--set", "hidden_size=16", "--set", "embedding_size=16"]
    assert main(command) == 0
    return path


@contextlib.contextmanager
def tensorboard(run_dir, logdir="summaries"):
    """The scope of a TensorBoard process that shows a run; yields its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir]
    with started([*command, "--host", "127.0.0.1", "--port", "0"], cwd=run_dir) as process:
        lines = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/", line):
                break
        else:
            pytest.fail(f"TensorBoard did not start: {''.join(lines)}")
        yield found.group(0)


@pytest.fixture(scope="module")
def address(run_dir):
    """The address of TensorBoard on the run with two towers."""
    with tensorboard(run_dir) as address:
        yield address


@pytest.fixture(scope="module")
def bot_address(bot_dir):
    """The address of TensorBoard on the chatbot's run."""
    with tensorboard(bot_dir) as address:
        yield address


@pytest.fixture
def browser(tmp_path):
    """A headless Chromium that asks nothing of the network but this machine."""
    with open_browser(tmp_path) as driver:
        yield driver


def wait_for(browser, selector, holds):
    """Returns the elements of a selector as soon as `holds(elements)` does."""
    elements = []

    def find():
        elements[:] = browser.execute_script(FIND_DEEP, selector)
        return holds(elements)

    wait_until(find, selector)
    return elements


def save_screenshot(browser, name, tmp_path):
    """Saves the page in few colours, for documents are downloaded often."""
    path = pathlib.Path(os.environ.get("TOWERS_SCREENSHOTS", tmp_path)) / name
    assert browser.save_screenshot(str(path))
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(48, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    assert 10_000 < path.stat().st_size < 60_000


def texts(elements):
    return {element.text.strip() for element in elements}


@pytest.mark.slow
def test_one_loss_chart_has_a_curve_for_each_tower_and_the_average(browser, address, tmp_path):
    browser.get(f"{address}?tagFilter=%5Eloss%24&smoothing=0#timeseries")
    (card,) = wait_for(browser, "scalar-card", lambda cards: len(cards) == 1)
    runs = {"average", "evaluation", "tower_0", "tower_1"}
    wait_for(browser, "scalar-card", lambda cards: all(run in cards[0].text for run in runs))
    assert card.text.startswith("loss")
    browser.execute_script(
        "arguments[0].querySelector('[title=\"Toggle full size mode\"]').click()", card
    )
    lines = wait_for(
        browser, "scalar-card line-chart svg path", lambda paths: len(drawn(paths)) >= len(runs)
    )
    colours = {line.value_of_css_property("stroke") for line in drawn(lines)} - {"none"}
    assert len(colours) == len(runs), "each curve has its own colour"
    time.sleep(1)  # The chart grows to its new size.
    save_screenshot(browser, "tensorboard.png", tmp_path)


def drawn(paths):
    """The curves that are visible and have more than one point."""
    return [
        path
        for path in paths
        if "L" in (path.get_attribute("d") or "")
        and path.value_of_css_property("display") != "none"
    ]


@pytest.mark.slow
def test_graph_page_has_a_box_for_each_tower_with_its_layers_inside(browser, bot_address, tmp_path):
    """In the main graph, which TensorBoard's columns of auxiliary nodes and functions are not."""
    browser.get(f"{bot_address}#graphs")
    boxes = {"inputs", "tower_0", "tower_1", "exchange", "average", "update", "results"}
    wait_for(browser, "g.node text", lambda labels: {"tower_0", "functions"} <= texts(labels))
    main_graph = "g.core g.node"
    assert boxes == top_names(browser, main_graph)
    assert "tower_0" not in top_names(browser, "g.inextract g.node")
    time.sleep(1)  # The graph is zoomed to fit the page, with its lower end below the window.
    browser.set_window_size(1280, 1060)
    time.sleep(1)
    (tower,) = browser.execute_script(FIND_DEEP, 'g.node[data-name="tower_1"]')
    browser.execute_script(
        "arguments[0].querySelector('.nodeshape > *')"
        ".dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))",
        tower,
    )
    for name in ("encoder", "decoder", "loss", "random", "backward"):
        wait_for(browser, f'g.node[data-name^="tower_1/{name}"]', bool)
    time.sleep(2)  # The box grows to its new size.
    save_screenshot(browser, "opened.png", tmp_path)


def top_names(browser, selector):
    """The names of the boxes that are in no other box."""
    names = {
        element.get_attribute("data-name")
        for element in browser.execute_script(FIND_DEEP, selector)
    }
    return {name for name in names if name and "/" not in name}


@pytest.mark.slow
def test_text_page_has_the_sample_answers(browser, bot_address, tmp_path):
    browser.get(f"{bot_address}#text")
    wait_for(browser, "tf-markdown-view", lambda views: any("->" in view.text for view in views))
    save_screenshot(browser, "text.png", tmp_path)


@pytest.mark.slow
def test_hparams_page_has_a_row_for_each_run_under_its_name(browser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = "80" if "TOWERS_SCREENSHOTS" in os.environ else "2"
    for name, size, rate in [("runs/a", 50, 0.001), ("runs/b", 50, 0.003), ("runs/c", 25, 0.003)]:
        command = ["train", "shapes", "--towers", "2", "--steps", steps, "--run-dir", name]
        fields = ["--batch-size", str(size), "--set", f"learning_rate={rate}"]
        assert main([*command, *fields, "--report-every", "5"]) == 0
    with tensorboard(tmp_path, "runs") as address:
        browser.get(f"{address}#hparams")
        rows = wait_for(
            browser, "vaadin-grid-cell-content", lambda cells: {"runs/a", "runs/c"} <= texts(cells)
        )
        assert {"0.0030000", "25.000"} <= texts(rows)
        time.sleep(1)
        save_screenshot(browser, "hparams.png", tmp_path)


@pytest.mark.slow
def test_histograms_of_the_variables_are_drawn(browser, address):
    browser.get(f"{address}?tagFilter=kernel#timeseries")
    cards = wait_for(browser, "histogram-card", lambda cards: len(cards) > 1)
    assert all("kernel" in card.text and "average" in card.text for card in cards)
    wait_for(browser, "histogram-card tb-histogram .histogram path", lambda paths: len(paths) > 3)
