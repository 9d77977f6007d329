"""TensorBoard's event files: one run per tower with equal tags, so one chart shows all towers."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.metadata import create_summary_metadata
from tensorboard.plugins.hparams.api import hparams
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.util.tensor_util import make_tensor_proto

from towers.ground.durable import durable_file, make_folder, sync, sync_folder
from towers.saving.graph_boxes import box_graph
from towers.saving.lock import check_in_place

GRAPH_RUN = "average"
FLUSH_MILLISECONDS = 10_000
HISTOGRAM_BUCKETS = 30  # As TensorFlow's own histograms have.
EVENTS = "tfevents"
HYPERPARAMETERS = ".hyperparameters"  # Behind the name of their file.
DAMAGED = "damaged"
PARTIAL = "rewriting.partial"  # Without "tfevents", so that TensorBoard does not read it.

# A record: its length (uint64), a checksum (uint32), the data, a checksum.
# https://www.tensorflow.org/tutorials/load_data/tfrecord
RECORD_FRAME = 16


class SummaryWriters(contextlib.AbstractContextManager["SummaryWriters"]):
    """Writers of event files, one per run, such as `average` and `tower_0`, made when needed.

    Args:
        folder: TensorBoard's log directory; each run is a folder in it.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self._folder = Path(folder)
        self._writers: dict[str, tf.summary.SummaryWriter] = {}

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, run: str, step: int, scalars: Mapping[str, float]) -> None:
        """Writes one point of a run's curve for every tag.

        Raises:
            OSError: the file cannot be written; the other methods raise it too.
        """
        with np.errstate(over="ignore"):  # A float64 too large for float32 becomes infinite.
            values = [scalar_pb(tag, value).value[0] for tag, value in scalars.items()]
        self._write(run, step, values)

    def write_histograms(self, run: str, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes how the numbers of each array are distributed, for TensorBoard's page Histograms.

        Numbers that are not finite are left out.

        Args:
            run: the run whose page shows them.
            step: the step of the run.
            arrays: floating point or integers of any shape, by tag.
        """
        self._write(run, step, [histogram_value(tag, array) for tag, array in arrays.items()])

    def write_text(self, run: str, step: int, tag: str, text: str) -> None:
        """Writes a text; TensorBoard renders it as Markdown."""
        with self._default_writer(run):
            tf.summary.text(tag, text, step=np.int64(step))

    def write_hyperparameters(
        self, run: str, values: Mapping[str, Any], *, name: str | None = None
    ) -> None:
        """Writes the settings of a training, for TensorBoard's page HParams.

        The page shows them with the last point of each curve of the run. They take the place of
        those that were written before.

        Args:
            run: the run whose curves they belong to.
            values: numbers, texts, true or false, by name; others are shown as text.
            name: the name of the training's row; None for a digest of the values, so that trainings
                with the same settings share a row.
        """
        plain = {
            key: value if isinstance(value, (bool, int, float, str)) else str(value)
            for key, value in values.items()
        }
        folder = self._folder / run
        with named_failure(folder):
            make_folder(folder)
            before = [*folder.glob(f"*{HYPERPARAMETERS}")]
            writer = tf.summary.create_file_writer(str(folder), filename_suffix=HYPERPARAMETERS)
            with writer.as_default():
                hparams(plain, trial_id=name)
            writer.close()
            for path in folder.glob(f"*{HYPERPARAMETERS}"):
                path.unlink() if path in before else sync(path)
            sync_folder(folder)

    def write_graph(self, graph: tf.Graph) -> None:
        """Writes a graph into the run `average`, boxed as `box_graph` does."""
        with self._default_writer(GRAPH_RUN):
            tf.summary.graph(box_graph(graph))

    def flush(self) -> None:
        """Returns once all written events are on the disk."""
        with named_failure(self._folder):
            for run, writer in self._writers.items():
                writer.flush()
                for path in (self._folder / run).glob(f"*{EVENTS}*"):
                    sync(path)
                sync_folder(self._folder / run)

    def close(self) -> None:
        """Closes the files; a later write begins new ones."""
        with named_failure(self._folder):
            while self._writers:
                self._writers.popitem()[1].close()

    def _write(self, run: str, step: int, values: list[Summary.Value]) -> None:
        summary = Summary(value=values).SerializeToString()
        with self._default_writer(run):
            tf.summary.experimental.write_raw_pb(summary, step=np.int64(step))

    @contextlib.contextmanager
    def _default_writer(self, run: str) -> Iterator[None]:
        """The scope in which summaries go to this run."""
        folder = self._folder / run
        with named_failure(folder):
            if run not in self._writers:
                check_in_place(self._folder.parent)
                make_folder(folder)
                self._writers[run] = tf.summary.create_file_writer(
                    str(folder), flush_millis=FLUSH_MILLISECONDS
                )
            with self._writers[run].as_default():
                yield


def histogram_value(tag: str, array: np.ndarray) -> Summary.Value:
    """Returns the histogram of an array's finite numbers: buckets of equal width.

    TensorBoard's own functions make a row of 30 numbers for each number of the array; this one
    needs no more than a copy.
    """
    numbers = np.asarray(array, np.float64).ravel()
    counts, edges = np.histogram(numbers[np.isfinite(numbers)], bins=HISTOGRAM_BUCKETS)
    buckets = np.stack([edges[:-1], edges[1:], counts], axis=1)
    return Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name=None, description=None),
        tensor=make_tensor_proto(buckets, dtype=np.float64),
    )


@contextlib.contextmanager
def named_failure(folder: Path) -> Iterator[None]:
    """The scope in which TensorFlow's error becomes an OSError that names the folder."""
    try:
        yield
    except tf.errors.OpError as error:
        cause = error.message.splitlines()[0].split("; ")[-1]
        raise OSError(f"Cannot write summaries in {folder}: {cause}.") from error


def remove_events_after(folder: str | os.PathLike[str], step: int) -> None:
    """Removes every event after a step, and the last one if a killed writer left it incomplete.

    So a run that resumes from a checkpoint shows each step once. File versions and graphs stay. No
    writer may have a file in the folder open. A file that is damaged in another way keeps its
    events up to the damage; the original is kept beside it, with a RuntimeWarning.

    Args:
        folder: TensorBoard's log directory.
        step: the step of the checkpoint from which the run continues.
    """
    for leftover in sorted(Path(folder).rglob(PARTIAL)):
        leftover.unlink()
    for path in event_files(folder):
        spans, size = [], 0
        damages: list[str] = []
        for event, num_bytes in read_events(path, damages.append):
            if event.step <= step or event.WhichOneof("what") == "graph_def":
                spans.append((size, num_bytes))
            size += num_bytes
        if damages:
            keep_damaged(path, damages[0])
        if sum(num_bytes for _, num_bytes in spans) < path.stat().st_size:
            keep_spans(path, spans)


def event_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Returns the event files in a folder and its subfolders, in TensorBoard's reading order."""
    return sorted(path for path in Path(folder).rglob(f"*{EVENTS}*") if path.is_file())


def read_events(
    path: Path, note_damage: Callable[[str], None] | None = None
) -> Iterator[tuple[Any, int]]:
    """Yields the events of a file with their sizes in bytes, up to the first damaged one.

    Args:
        note_damage: called with a description of a damage; not for a last event that is cut short,
            as a killed writer leaves it.
    """
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    try:
        for record in records:
            yield Event.FromString(record), len(record) + RECORD_FRAME
    except (tf.errors.DataLossError, DecodeError) as error:
        if note_damage is not None and "truncated" not in str(error):
            note_damage(str(error).partition(" [Op")[0].split(";")[0])


def keep_damaged(path: Path, damage: str) -> None:
    """Keeps a copy of a damaged file under a name that TensorBoard does not read, and warns."""
    number = 1
    while (copy := path.with_name(f"{DAMAGED}-{number}-{path.name.replace(EVENTS, '')}")).exists():
        number += 1
    with open(path, "rb") as source, durable_file(copy, path.with_name(PARTIAL)) as target:
        shutil.copyfileobj(source, target)
    warnings.warn(
        f"The curves in {path} are damaged ({damage}). They continue after the last intact event "
        f"before the damage; the damaged file is kept as {copy.name}.",
        RuntimeWarning,
        stacklevel=3,
    )


def keep_spans(path: Path, spans: list[tuple[int, int]]) -> None:
    """Replaces a file atomically by spans of itself, pairs (offset, number of bytes)."""
    with open(path, "rb") as source, durable_file(path, path.with_name(PARTIAL)) as target:
        for offset, num_bytes in spans:
            source.seek(offset)
            target.write(source.read(num_bytes))
