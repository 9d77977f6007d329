"""The commands that are ended at their operations on files, and what must be there in the end."""

import contextlib
import dataclasses
import http.server
import shutil
import threading
import time

import numpy as np

from tests.curves import read_scalars
from tests.faults.injector import Scenario
from tests.scripts.runs import arrays_of

TRAIN = [
    "--batch-size", "250", "--set", "filters=2,3", "--set", "hidden_size=4", "--deterministic",
    "--checkpoint-every", "1", "--evaluate-every", "2", "--report-every", "1",
]  # fmt: skip
CONTENT = bytes(range(256)) * 4000
SMALL_DATA_SET = """
import hashlib
from towers.data.fetching import data_sets
from towers.data.fetching.data_sets import DataSet, RemoteFile
content = bytes(range(256)) * 4000
file = RemoteFile("small.bin", hashlib.sha256(content).hexdigest(), len(content))
data_sets.DATA_SETS["small"] = DataSet("", (file,))
"""
NAMES = ("continued", "export", "prepare", "download", "fresh")


@contextlib.contextmanager
def scenario(name, expected, folder):
    """The scope of a scenario by its name.

    Args:
        name: one of `NAMES`.
        expected: an `ExpectedRuns`.
        folder: for files that the command reads.
    """
    if name == "fresh":
        yield Scenario(lambda folder: train(folder, 2), SameRun(expected(2)))
    elif name == "continued":
        yield Scenario(
            lambda folder: train(folder, 2),
            SameRun(expected(1, 2)),
            make=lambda folder: shutil.copytree(expected(1), folder),
        )
    elif name == "export":
        yield Scenario(
            lambda folder: ["export", str(expected(2)), "--output", str(folder)],
            WholeExport(),
            finish=(0, 2),
        )
    elif name == "prepare":
        yield preparation(folder)
    else:
        with content_server() as url:
            yield Scenario(
                lambda folder: ["download", "small", "--data", str(folder), "--url", url],
                check_download,
                setup=SMALL_DATA_SET,
            )


class ExpectedRuns:
    """Undisturbed runs, each made once.

    Args:
        server: an `Injector`.
        folder: of the runs.
    """

    def __init__(self, server, folder):
        self._server = server
        self._folder = folder
        self._seconds = {}

    def __call__(self, *steps):
        """Returns the directory of a run of so many steps, one start after another."""
        path = self._folder / "-".join(map(str, steps))
        if not path.exists():
            begin = time.monotonic()
            for step in steps:
                code, _, output = self._server.run(train(path, step), self._folder, watched=False)
                assert code == 0, output
            self._seconds[steps] = time.monotonic() - begin
        return path

    def seconds(self, *steps):
        """Returns how long the run of so many steps took."""
        self(*steps)
        return self._seconds[steps]


def train(folder, steps):
    """Returns the arguments of a short deterministic training."""
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
        assert set(names_in(folder)) ^ set(self.names) == set(), names_in(folder)
        step, arrays = arrays_of(folder)
        assert step == self.step and arrays.keys() == self.arrays.keys()
        for name, array in self.arrays.items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=name)
        assert self.curves_of(folder) == self.curves

    @staticmethod
    def curves_of(folder):
        """Returns the losses of the average, the steps of a tower, and the evaluations."""
        summaries = folder / "summaries"
        losses = read_scalars(summaries, "average")["loss"]
        steps = [step for step, _ in read_scalars(summaries, "tower_0")["loss"]]
        return losses, steps, read_scalars(summaries, "evaluation")["loss"]


@dataclasses.dataclass
class WholeExport:
    """Checks that an export is there as a whole, and nothing unfinished beside it."""

    whole: list[str] | None = None

    def __call__(self, folder, output):
        self.whole = self.whole or names_in(folder)
        assert names_in(folder) == self.whole
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        assert all(path.stat().st_size for path in folder.rglob("*.pb"))


def preparation(folder):
    """Returns the scenario of `prepare` on a small corpus in the folder."""
    corpus = folder / "some.conv"
    text = "".join(f"E\nM question {i % 7} of {i}\nM answer {i % 5}\n" for i in range(60))
    corpus.write_text(text)
    options = ["--set", "held_out=0.3", "--language", "en", "--processes", "1"]

    def check(folder, output):
        (prepared,) = (folder.parent / "datasets" / "prepared").glob("[!.]*")
        assert (prepared / "manifest.json").stat().st_size

    return Scenario(lambda folder: ["prepare", "chatbot", "--data", str(corpus), *options], check)


class ContentHandler(http.server.BaseHTTPRequestHandler):
    """Sends `CONTENT`."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        with contextlib.suppress(OSError):  # The client was killed.
            self.wfile.write(CONTENT)

    def log_message(self, *_):
        """Says nothing."""


@contextlib.contextmanager
def content_server():
    """The scope of a server of `CONTENT`; yields its address."""
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ContentHandler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{served.server_address[1]}/"
    finally:
        served.shutdown()
        served.server_close()


def check_download(folder, output):
    """Checks that the file is there, whole and alone."""
    assert [path.name for path in folder.iterdir()] == ["small.bin"]
    assert (folder / "small.bin").read_bytes() == CONTENT
