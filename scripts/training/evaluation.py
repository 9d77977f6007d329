"""The evaluation of a run's checkpoint on its test data."""

from __future__ import annotations

import filecmp
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

from towers.checkpoints import Checkpoint
from towers.scripts.training.catalogue import restore_recipe
from towers.scripts.training.options import EvaluateOptions
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import Session, open_session
from towers.scripts.training.trained import choose_checkpoint, restore_model


class Evaluation(NamedTuple):
    """A run's model with its test data.

    Attributes:
        session: the model, filled from the checkpoint, and the data.
        checkpoint: the checkpoint.
    """

    session: Session
    checkpoint: Checkpoint

    @property
    def unit(self) -> str:
        """The metrics are means over these."""
        return self.session.recipe.unit

    @property
    def part(self) -> str:
        """The part of the data that is evaluated, such as test or valid."""
        return self.session.data.evaluated

    def evaluate(self, write: Callable[[str], None]) -> dict[str, float]:
        """Returns the metrics, and writes samples of a chatbot's answers."""
        metrics = self.session.evaluate()
        if self.session.answer_evaluator is not None:
            metrics.update(self.session.answer_evaluator.evaluate(write))
        return metrics


def open_evaluation(options: EvaluateOptions) -> Evaluation:
    """Returns a run's model and test data, ready to be evaluated.

    Raises:
        ValueError: the run, its checkpoint, the fields or the data cannot be used.
        OSError: a file cannot be read.
    """
    directory = RunDirectory(options.run_dir)
    record = directory.read()
    checkpoint = choose_checkpoint(directory, options.checkpoint)
    fields = dict(record["fields"])
    fields["batch_size"] = options.batch_size or fields["batch_size"]
    session = open_session(
        restore_recipe(record["recipe"], fields, options.overrides),
        data=options.data or record["data"],
        devices=options.devices,
        seed=record["seed"],
        precision=record["precision"],
    )
    check_text(directory.text, session.data.text)
    check_classes(record.get("about"), session.data.about)
    restore_model(session.model, checkpoint)
    return Evaluation(session, checkpoint)


def check_text(saved: pathlib.Path, text: Any) -> None:
    """Raises ValueError unless the data becomes the ids that the run was trained with."""
    if text is None or not saved.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        text.save(folder)
        names = [path.name for path in pathlib.Path(folder).iterdir()]
        same, *_ = filecmp.cmpfiles(saved, folder, names, shallow=False)
    if len(same) < len(names):
        raise ValueError(
            "The data has another vocabulary than the run: a model knows only the ids that it was "
            "trained with. Keep the training part as it was and exchange only the part that is "
            "evaluated."
        )


def check_classes(trained: dict[str, Any] | None, found: dict[str, Any] | None) -> None:
    """Raises ValueError unless the data has the classes that the run was trained with."""
    before, now = ((about or {}).get("classes") for about in (trained, found))
    if before != now:
        differing = sorted(set(before or []) ^ set(now or [])) or "the same names in another order"
        raise ValueError(
            "The data has other classes than the run: a model knows only those that it was "
            f"trained with. Received {len(now or [])} classes, expected {len(before or [])}; they "
            f"differ by {differing}."
        )


def describe_evaluation(evaluation: Evaluation, metrics: dict[str, float]) -> str:
    """Returns the metrics in one line."""
    values = " | ".join(
        f"{name} {value:.4f}" for name, value in metrics.items() if name != "examples"
    )
    count = f"{metrics['examples']:.0f} {evaluation.unit}"
    return f"{evaluation.part:<5} | step {evaluation.checkpoint.step} | {values} | {count}"
