"""Law 16: killed, or without power, at any operation on files, the same command goes on.

`-m slow` tries every operation; the default tier a sample.
"""

import contextlib
import functools
import http.server
import random
import shutil
import threading

import numpy as np
import pytest

from tests.faults.injector import injector, try_all
from tests.scripts.runs import arrays_of
from towers.run.summaries import read_scalars

TRAIN = [
    "--batch-size", "250", "--set", "filters=2,3", "--set", "hidden_size=4", "--deterministic",
    "--checkpoint-every", "1", "--evaluate-every", "2", "--report-every", "1",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with injector(tmp_path_factory.mktemp("injector")) as server:
        yield server


def sampled(count):
    """Returns a function that chooses so many of all operations, evenly and by chance."""

    def choose(number):
        print(f"seed {(seed := random.randrange(1000))}")
        return sorted(random.Random(seed).sample(range(1, number + 1), count))

    return choose


def train(folder, steps):
    return ["train", "shapes", "--run-dir", str(folder), *TRAIN, "--steps", str(steps)]


def names_in(folder):
    """Returns the relative names of all files but the event files, whose names tell the time."""
    files = [path for path in folder.rglob("*") if "tfevents" not in path.name]
    return sorted(str(path.relative_to(folder)) for path in files)


class SameRun:
    """Checks that a run is the one that was not interrupted."""

    def __init__(self, folder):
        self.names = names_in(folder)
        self.step, self.arrays = arrays_of(folder)
        self.curves = self.curves_of(folder)

    def __call__(self, folder, output):
        assert names_in(folder) == self.names
        step, arrays = arrays_of(folder)
        assert step == self.step and arrays.keys() == self.arrays.keys()
        for name, array in self.arrays.items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=name)
        assert self.curves_of(folder) == self.curves

    @staticmethod
    def curves_of(folder):
        summaries = folder / "summaries"
        losses = read_scalars(summaries, "average")["loss"]
        steps = [step for step, _ in read_scalars(summaries, "tower_0")["loss"]]
        return losses, steps, read_scalars(summaries, "evaluation")["loss"]


@pytest.fixture(scope="module")
def expected(server, tmp_path_factory):
    """A function that returns an undisturbed run of so many steps, one start after another."""
    folder = tmp_path_factory.mktemp("expected")

    @functools.cache
    def run(*steps):
        path = folder / "-".join(map(str, steps))
        for step in steps:
            code, _, output = server.run(train(path, step), folder, watched=False)
            assert code == 0, output
        return path

    return run


def nothing(folder):
    pass


def try_fresh_run(server, expected, **options):
    return try_all(
        server, lambda folder: train(folder, 2), nothing, SameRun(expected(2)), **options
    )


def try_continued_run(server, expected, **options):
    return try_all(
        server,
        lambda folder: train(folder, 2),
        lambda folder: shutil.copytree(expected(1), folder),
        SameRun(expected(1, 2)),
        **options,
    )


@pytest.mark.slow
def test_a_run_goes_on_after_a_sample_of_ends(server, expected):
    try_fresh_run(server, expected, points=sampled(1), ways=("power cut",))


@pytest.mark.slow
def test_a_fresh_run_goes_on_after_every_end(server, expected, capsys):
    tell(capsys, "fresh run", try_fresh_run(server, expected))


@pytest.mark.slow
def test_a_continued_run_goes_on_after_every_end(server, expected, capsys):
    tell(capsys, "continued run", try_continued_run(server, expected))


def tell(capsys, what, found):
    num_operations, counts = found
    with capsys.disabled():
        print(f"\n{what}: {num_operations} operations, {counts}")


@pytest.mark.slow
def test_an_export_is_whole_after_every_end(server, expected, capsys):
    """It is there as a whole, or the same command makes it; nothing unfinished stays."""
    whole = None

    def check(folder, output):
        nonlocal whole
        whole = whole or names_in(folder)
        assert names_in(folder) == whole
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        assert all(path.stat().st_size for path in folder.rglob("*.pb"))

    found = try_all(
        server,
        lambda folder: ["export", str(expected(2)), "--output", str(folder)],
        nothing,
        check,
        finish=(0, 2),
    )
    tell(capsys, "export", found)


@pytest.mark.slow
def test_a_corpus_is_prepared_after_every_end(server, tmp_path, capsys):
    text = "".join(f"E\nM question {i % 7} of {i}\nM answer {i % 5}\n" for i in range(60))
    (tmp_path / "some.conv").write_text(text)

    def command(folder):
        fields = ["--set", "held_out=0.3", "--language", "en"]
        data = ["--data", str(tmp_path / "some.conv")]
        return ["prepare", "chatbot", *data, *fields, "--processes", "1"]

    def check(folder, output):
        (prepared,) = (folder.parent / "datasets" / "prepared").glob("[!.]*")
        assert (prepared / "manifest.json").stat().st_size

    tell(capsys, "prepare", try_all(server, command, nothing, check))


SMALL_DATA_SET = """
import hashlib
from towers.data.fetching import data_sets
from towers.data.fetching.data_sets import DataSet, RemoteFile
content = bytes(range(256)) * 4000
file = RemoteFile("small.bin", "sha256", hashlib.sha256(content).hexdigest())
data_sets.DATA_SETS["small"] = DataSet("", (file,))
"""


@pytest.mark.slow
def test_a_data_set_is_downloaded_after_every_end(server, capsys):
    content = bytes(range(256)) * 4000

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(OSError):  # The client was killed.
                self.wfile.write(content)

        def log_message(self, *_):
            pass

    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{served.server_address[1]}/"

    def check(folder, output):
        assert [path.name for path in folder.iterdir()] == ["small.bin"]
        assert (folder / "small.bin").read_bytes() == content

    found = try_all(
        server,
        lambda folder: ["download", "small", "--data", str(folder), "--url", url],
        nothing,
        check,
        setup=SMALL_DATA_SET,
    )
    served.shutdown()
    served.server_close()
    tell(capsys, "download", found)
