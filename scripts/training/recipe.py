"""A recipe: the data, the model, the loss and the fields of a training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

UNKNOWN_ALARM = 0.2  # Above this fraction of unknown tokens a perplexity says little.
LARGEST_LOSS = 700.0  # The exponential of a larger one is no float.


class Data(NamedTuple):
    """The data of a recipe.

    Attributes:
        train: the training data, `Epochs`; None for a model that is opened without its data.
        test: the same for the test data; its epoch 0 has every test example once.
        text: of a recipe with text, the codec between text and ids.
        corpus: of a recipe with a corpus of the user's, the source of the batches.
        key: a digest that changes with the content of the data; a run continues only with the same.
        summary: a line about the training data, or nothing.
        about: what the training data is about, in plain values that the run records, or nothing.
    """

    train: Any
    test: Any
    text: Any = None
    corpus: Any = None
    key: str | None = None
    summary: str = ""
    about: dict[str, Any] | None = None

    @property
    def evaluated(self) -> str:
        """The part that `test` holds: test, unless `about` names another as evaluated."""
        return (self.about or {}).get("evaluated", "test")

    @property
    def chooses(self) -> bool:
        """Whether a checkpoint, or the end, may be chosen by that part: never by test data."""
        return self.evaluated != "test"


class Trained(NamedTuple):
    """What a trained run knows of its data.

    Attributes:
        about: as in its `Data`.
        key: as in its `Data`.
        text: its codec, if other files are evaluated with it.
    """

    about: Any
    key: str | None
    text: Any


class AnswerEvaluator(Protocol):
    """Judges the answers of a model, where a loss alone does not tell."""

    def show_samples(self, write: Callable[[str], None]) -> None:
        """Writes a few samples, and warnings about what looks wrong."""

    def evaluate(self, write: Callable[[str], None]) -> dict[str, float]:
        """Returns further metrics over the whole test data, and writes some samples."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that defines a training; each module of `scripts/recipes` ends with one.

    Attributes:
        name: the module's name.
        fields: the `Fields` of a run.
        make_data: `make_data(fields, folder, seed) -> Data`; it gets a list of paths instead of a
            folder if the recipe takes files. It may take `write`, for what it says, and `trained`,
            the `Trained` run that is evaluated with the data, or None.
        make_model: `make_model(fields, data) -> keras.Model`; it uses only `data.text`.
        make_tower_fn: `make_tower_fn(fields, model, training) -> tower_fn`.
        initialize: `initialize(fields, model, data)` assigns initial values that the data tells;
            a checkpoint's values replace them.
        data_set: the name under which its data is downloaded, None if the recipe brings its data.
        takes_files: whether `--data` takes files and folders of the user's.
        best_metric: the metric that decides which checkpoint is the best, if data was held out to
            choose by.
        maximize: whether more of it is better.
        unit: the loss is a mean over these.
        command: the command that lets the model speak, chat or generate; empty without text.
        derive_metrics: `derive_metrics(metrics, data) -> dict` of further metrics, such as the
            perplexity, from the means over the test data.
        make_carried: `make_carried(fields, model) -> specs` of a state that the towers carry, or
            None; with a state the batches have `num_rows`.
        prepare: `prepare(fields, paths, processes=None, write=print)` makes the data's cache ahead.
        make_answer_evaluator: `make_answer_evaluator(fields, model, data) -> AnswerEvaluator`, or
            None for a model that answers nothing.
    """

    name: str
    fields: Any
    make_data: Callable[..., Data]
    make_model: Callable[..., Any]
    make_tower_fn: Callable[..., Callable[..., Any]]
    initialize: Callable[..., None] | None = None
    data_set: str | None = None
    takes_files: bool = False
    best_metric: str = "accuracy"
    maximize: bool = True
    unit: str = "examples"
    command: str = ""
    derive_metrics: Callable[[dict[str, float], Data], dict[str, float]] | None = None
    make_carried: Callable[..., Any] | None = None
    prepare: Callable[..., Any] | None = None
    make_answer_evaluator: Callable[..., AnswerEvaluator | None] | None = None


def perplexities(metrics: dict[str, float], num_characters: int) -> dict[str, float]:
    """Returns the perplexities; that per character compares vocabularies with each other."""
    tokens_per_character = metrics["examples"] / num_characters
    return {
        "perplexity": perplexity(metrics["loss"]),
        "character_perplexity": perplexity(metrics["loss"] * tokens_per_character),
    }


def describe_unknown(rate: float) -> str:
    """Returns how many tokens are unknown, and what to do about many."""
    many = (
        "; then a perplexity says little, and few questions are understood: check --language and "
        "--encoding, raise vocabulary_size, or choose another tokenizer"
    )
    return f"{rate:.2%} of the tokens are unknown{many if rate > UNKNOWN_ALARM else ''}"


def perplexity(loss: float) -> float:
    """Returns the exponential of a mean loss in nats, infinite where no float can hold it."""
    return math.exp(loss) if loss < LARGEST_LOSS else math.inf
