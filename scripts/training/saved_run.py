"""What a run has saved, opened again: its model, its evaluation, its weights for another run."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras

import towers
from towers.data.prepared import digest_of
from towers.data.text import LineCodec, TextCodec
from towers.scripts.training.catalogue import restore_recipe
from towers.scripts.training.options import DeviceOptions, EvaluateOptions, ModelOptions
from towers.scripts.training.recipe import Data, Recipe, Trained
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import Measure, Session, choose_devices, open_session
from towers.scripts.wrong_input import as_many_as_fit

SHOWN = 130  # Characters of the variables that are named in a line.
DYNAMIC = ("evaluation_rows=1", "evaluation_steps=5")  # As in the paper of the evaluation.
MOST_BATCHES = 200  # Of the training text, which tell how large its gradients are.


class OpenModel(NamedTuple):
    """A run's trained model without its data.

    Attributes:
        recipe: with the run's fields.
        model: with the checkpoint's values.
        text: the codec between text and ids.
        description: a line that names the recipe, the step and the run.
        about: what the run recorded about its data.
    """

    directory: RunDirectory
    recipe: Recipe
    model: keras.Model
    text: Any
    description: str
    about: dict[str, Any]


class InitialWeights(NamedTuple):
    """The best checkpoint of a run, with whose weights another one begins."""

    directory: RunDirectory
    checkpoint: towers.checkpoints.Checkpoint

    def fill(self, session: Session, updates: towers.steps.Updates) -> str:
        """Assigns the weights to the variables of the same name and shape; the rest begins anew.

        Returns a line that says which weights found a variable; raises ValueError if none did.
        """
        match = towers.checkpoints.restore_matching(
            self.checkpoint, updates.step.groups()["variables"]
        )
        total = len(match.restored) + len(match.unmatched)
        source = f"{self.directory.path} (step {self.checkpoint.step})"
        unmatched = as_many_as_fit(match.unmatched, ", ", SHOWN) if match.unmatched else ""
        if not match.restored:
            raise ValueError(
                "--init-from needs a run with variables of the same names and shapes. Received "
                f"{source}, where none of {total} variables match: {unmatched}. Give a run of a "
                "similar model."
            )
        line = f"starts with {len(match.restored)} of {total} variables from {source}"
        if unmatched:
            line += f"; not found there: {unmatched}"
        try:
            check_text(self.directory.text, session.data.text)
        except ValueError:
            line += "; warning: its vocabulary differs, so its tables have rows of other words"
        return line


def open_model(
    options: ModelOptions, devices: DeviceOptions | None = None, *, command: str = "chat"
) -> OpenModel:
    """Returns the model of a run that has text.

    Without a choice the devices stay as they are. The command lets the model speak: chat (also for
    an export) or generate.

    Raises:
        ValueError: the run has no checkpoint, or no model for this command.
    """
    directory = RunDirectory(options.run_dir)
    record = directory.read()
    recipe = restore_recipe(record["recipe"], record["fields"])
    if not recipe.command:
        raise ValueError(
            f"{directory.path} is a run of {recipe.name}, which has no text. Give a run of a "
            "recipe with text, such as chatbot."
        )
    if recipe.command != command:
        raise ValueError(
            f"{directory.path} is a run of {recipe.name}, which answers with `towers "
            f"{recipe.command} {directory.typed}`."
        )
    chosen = choose_checkpoint(directory, record, options.checkpoint)
    if devices is not None:
        choose_devices(devices)
    towers.steps.set_precision(record["precision"])
    text = load_text(directory, record, recipe)
    model = recipe.make_model(recipe.fields, Data(None, None, text))
    restore_model(model, chosen)
    description = f"{recipe.name}, step {chosen.step} of {directory.path}"
    return OpenModel(directory, recipe, model, text, description, record.get("about") or {})


def open_evaluation(options: EvaluateOptions) -> tuple[Session, towers.checkpoints.Checkpoint]:
    """Returns a run's model with its test data, and the checkpoint whose values it has.

    Raises:
        ValueError: the run, its checkpoint, the fields or the data cannot be used.
        OSError: a file cannot be read.
    """
    directory = RunDirectory(options.run_dir)
    record = directory.read()
    checkpoint = choose_checkpoint(directory, record, options.checkpoint)
    fields = dict(record["fields"])
    fields["batch_size"] = options.batch_size or fields["batch_size"]
    is_other = options.data is not None and list(options.data) != record["data"]
    if options.dynamic is not None:
        check_dynamic(record, is_other)
        options = dataclasses.replace(options, overrides=(*DYNAMIC, *options.overrides))
    recipe = restore_recipe(record["recipe"], fields, options.overrides)
    text = load_text(directory, record, recipe) if directory.text.exists() else None
    session = open_session(
        recipe,
        data=options.data or record["data"],
        devices=options.devices,
        seed=record["seed"],
        precision=record["precision"],
        trained=Trained(record.get("about"), record.get("data_key"), text if is_other else None),
    )
    check_text(directory.text, session.data.text)
    check_classes(record.get("about"), session.data.about)
    is_changed = session.data.key not in (None, record.get("data_key"))
    share = getattr(recipe.fields, "validation_share", None)
    if not is_other and (is_changed or fields.get("validation_share", share) != share):
        warnings.warn(
            "The data, or how it is prepared or split, is no longer what the run was trained with, "
            "so what is evaluated may have been trained on. Put it back as it was, or give other "
            "--data.",
            RuntimeWarning,
            stacklevel=2,
        )
    restore_model(session.model, checkpoint)
    return session, checkpoint


def check_dynamic(record: dict[str, Any], is_other: bool) -> None:
    """Raises ValueError if a run cannot be evaluated dynamically, or not on other data."""
    if record["fields"].get("form") != "streams":
        raise ValueError(
            "--dynamic is for language models that read streams (form=streams). Received a run of "
            f"{record['recipe']}; leave it out."
        )
    if is_other:
        raise ValueError(
            "--dynamic needs the text of the training, which tells how large gradients are. "
            "Received other --data; leave one of them out."
        )


def dynamically(session: Session, learning_rate: float) -> Measure:
    """Returns what measures a language model whose weights follow the text of its streams."""
    from towers.models.dynamic_evaluation import DynamicEvaluation

    def measure(after_batch: Callable[[], object]) -> dict[str, float]:
        data, iterator_of = session.data, towers.engine.iterator_of
        trained_on = itertools.islice(iterator_of(data.train(0, 0)), MOST_BATCHES)
        evaluation = DynamicEvaluation(session.model, trained_on, learning_rate=learning_rate)
        found = evaluation.evaluate(iterator_of(data.test(0, 0)), after_batch)
        return dict(zip(("loss", "accuracy", "examples"), found, strict=True))

    return measure


def choose_checkpoint(
    directory: RunDirectory, record: dict[str, Any], which: str
) -> towers.checkpoints.Checkpoint:
    """Returns the best checkpoint of a run, its latest, or that of a step.

    Where nothing was held out to choose by, the latest is the best. If the run keeps averages of
    its weights, they are the checkpoint's variables.
    """
    folder = towers.checkpoints.CheckpointFolder(directory.checkpoints)
    checkpoint = None
    if which.isdigit():
        checkpoint = folder.of_step(int(which))
    elif which == "best" and record["chooses"]:
        try:
            checkpoint = folder.best()
        except towers.checkpoints.DamagedCheckpointError as error:
            raise ValueError(f"{error} Use --checkpoint latest for the one saved last.") from error
    checkpoint = checkpoint or folder.latest()
    if checkpoint is None:
        raise ValueError(
            f"{directory.path} has no checkpoint yet. Train longer, or save more often with "
            "--checkpoint-every."
        )
    keeps_averages = record["fields"].get("ema_momentum") and checkpoint.step
    return with_averages(checkpoint) if keeps_averages else checkpoint


def with_averages(checkpoint: towers.checkpoints.Checkpoint) -> towers.checkpoints.Checkpoint:
    """Returns a checkpoint whose variables are the averages that the optimizer kept of them.

    Keras calls the average of `conv1/kernel` `adam/conv1_kernel_average`, by its optimizer.
    """
    slots = {path.rpartition("/")[2]: array for path, array in checkpoint.groups["optimizer"]}
    variables = checkpoint.groups["variables"]
    averages = [slots.get(f"{path.replace('/', '_')}_average") for path, _ in variables]
    if all(average is None for average in averages):
        raise ValueError(f"{checkpoint.path} has no average of a weight, but run.json names one.")
    chosen = [
        saved if average is None else saved._replace(array=average)
        for saved, average in zip(variables, averages, strict=True)
    ]
    return dataclasses.replace(checkpoint, groups={**checkpoint.groups, "variables": chosen})


def restore_model(model: keras.Model, checkpoint: towers.checkpoints.Checkpoint) -> None:
    """Assigns the checkpoint's values to the model; the optimizer's are not needed."""
    variables = towers.engine.SharedVariables(model.variables, []).all
    model_only = {"variables": checkpoint.groups.get("variables", [])}
    towers.checkpoints.restore(
        dataclasses.replace(checkpoint, groups=model_only), {"variables": variables}
    )


def check_text(saved: Path, text: Any) -> None:
    """Raises ValueError unless the data becomes the ids that the run was trained with."""
    if text is None or not saved.exists():
        return
    if digest_of(type(text).load(saved)) != digest_of(text):
        raise ValueError(
            "The data has a different vocabulary from the run's, and a model knows only the ids "
            "that it was trained with. Keep the training data as it was, and replace only the "
            "test data."
        )


def load_text(directory: RunDirectory, record: dict[str, Any], recipe: Recipe) -> TextCodec:
    """Returns a run's codec; raises ValueError if it is gone, or the run recorded another one."""
    if not directory.text.exists():
        raise ValueError(
            f"{directory.text} is missing, in which the run keeps its vocabulary. Put that folder "
            "back, or train again."
        )
    codec = TextCodec if recipe.command == "chat" else LineCodec
    text, recorded = codec.load(directory.text), record.get("text_digest")
    if recorded is not None and digest_of(text) != recorded:
        raise ValueError(
            f"{directory.text} differs from what the run wrote, so words would get wrong ids. Put "
            "the original files back, or train again."
        )
    return text


def check_classes(trained: dict[str, Any] | None, found: dict[str, Any] | None) -> None:
    """Raises ValueError unless the data has the classes that the run was trained with."""
    before, now = ((about or {}).get("classes") for about in (trained, found))
    if before != now:
        differing = sorted(set(before or []) ^ set(now or [])) or "the same names in another order"
        raise ValueError(
            "The data has different classes from the run's, and a model knows only those that it "
            f"was trained with. Received {len(now or [])} classes, expected {len(before or [])}; "
            f"these differ: {differing}."
        )
