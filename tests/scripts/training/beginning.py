"""The beginning of a run, in a process that may be killed; without TensorFlow, to be quick."""

import json

from tests.file_faults import Watch
from towers.data.text import TextCodec, TextSettings, build_vocabulary
from towers.scripts.training.run_directory import FIELDS_BEFORE, RunDirectory

RECORD = {
    "recipe": "chatbot", "fields": {"batch_size": 4, **FIELDS_BEFORE["chatbot"]}, "seed": 0,
    "precision": "float32", "batch_norm": "mean", "updates": "sync", "data": None,
}  # fmt: skip
TEXT = TextCodec(TextSettings("en"), build_vocabulary({"hello": 2, "world": 1}, 20))


def begin(path):
    """Checks the directory, records a run and saves its text, as `towers train` does."""
    directory = RunDirectory(path)
    directory.begin(RECORD, ["CPU"], directory.find_run(RECORD), 1)
    TEXT.save(directory.text)


def begin_and_die(path, last, power_cut):
    """Begins a run and is killed at an operation, if there are that many."""
    Watch(path.parent, last=last, power_cut=power_cut)
    begin(path)


def begin_and_report(path, report):
    """Begins a run and writes what it did to files into another file."""
    watch = Watch(path.parents[1])
    begin(path)
    report.write_text(json.dumps(watch.operations))
