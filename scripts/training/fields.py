"""The fields of a recipe: the numbers that can be set by name, their meanings and bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from towers.ground.arguments import check_choice
from towers.scripts.options.setting import (
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Bound,
    all_settings,
    parse,
    settings_of,
    shown,
)
from towers.scripts.options.setting import arguments_for as arguments_for  # For recipes.
from towers.scripts.training.options import TrainOptions
from towers.scripts.wrong_input import nearest

if TYPE_CHECKING:
    from towers.data.text import TextSettings

MOST_EPOCHS = 10**9
EPOCHS = Bound(f"from 0 to {MOST_EPOCHS:,}", lambda value: 0 <= value < MOST_EPOCHS)
AnyFields = TypeVar("AnyFields", bound="Fields")
# By what other programs call it, the field.
OTHER_NAMES = {
    "lr": "learning_rate", "optim": "optimizer", "wd": "optimizer_weight_decay",
    "weight_decay": "optimizer_weight_decay", "dropout": "dropout_rate", "model": "network",
    "arch": "network", "clip": "clip_norm", "grad_clip": "clip_norm", "max_grad_norm": "clip_norm",
    "warmup": "warmup_steps", "lr_schedule": "schedule", "scheduler": "schedule",
    "hidden": "hidden_size", "layers": "num_layers", "vocab_size": "vocabulary_size",
    "val_split": "validation_share",
}  # fmt: skip
Optimizer = Literal["sgd", "momentum", "nesterov", "adagrad", "adam", "adamw", "lazy_adam"]
Schedule = Literal["constant", "exponential", "piecewise", "cosine", "linear", "inverse_sqrt"]
Flip = Literal["random", "alternating"]
Views = Literal["none", "flips", "shifts"]


@dataclasses.dataclass(frozen=True)
class Fields:
    """The fields that every recipe has; a recipe adds its own.

    Attributes:
        batch_size: examples in one update, over all towers.
        epochs: passes over the training data.
        optimizer: sgd, momentum, nesterov, adagrad, adam, adamw or lazy_adam.
        learning_rate: the highest learning rate of the schedule.
        momentum: momentum, for the optimizers momentum and nesterov.
        optimizer_weight_decay: decoupled weight decay, for adamw.
        schedule: constant, exponential, piecewise, cosine, linear or inverse_sqrt.
        warmup_steps: steps in which the learning rate rises to its peak.
        warmup_power: shape of the rise: 1 is linear, 2 slower at first.
        decay_epochs: epochs between two steps of the exponential schedule.
        decay_rate: factor of each of these steps.
        boundaries: epochs (also fractions) after which the piecewise schedule multiplies by
            decay_rate.
        base_batch_size: if not 0, the learning rate is scaled by batch_size / base_batch_size.
        clip_norm: norm to which the averaged gradient is clipped; 0 for none.
        ema_momentum: momentum of a moving average of the weights, such as 0.999, with which
            evaluations and answers are made; 0 for none.
        ema_overwrite_frequency: updates after which the average replaces the weights, so that the
            training goes on from it; 0 for never.
    """

    batch_size: Annotated[int, POSITIVE] = 128
    epochs: Annotated[int, POSITIVE] = 10
    optimizer: Optimizer = "adam"
    learning_rate: Annotated[float, POSITIVE] = 1e-3
    momentum: Annotated[float, FRACTION] = 0.9
    optimizer_weight_decay: Annotated[float, NOT_NEGATIVE] = 4e-3
    schedule: Schedule = "constant"
    warmup_steps: Annotated[int, NOT_NEGATIVE] = 0
    warmup_power: Annotated[float, POSITIVE] = 1.0
    decay_epochs: Annotated[float, POSITIVE, EPOCHS] = 10.0
    decay_rate: Annotated[float, POSITIVE] = 0.1
    boundaries: Annotated[tuple[float, ...], EPOCHS] = ()
    base_batch_size: Annotated[int, NOT_NEGATIVE] = 0
    clip_norm: Annotated[float, NOT_NEGATIVE] = 0.0
    ema_momentum: Annotated[float, FRACTION] = 0.0
    ema_overwrite_frequency: Annotated[int, NOT_NEGATIVE] = 0


@dataclasses.dataclass(frozen=True)
class TextFields(Fields):
    """The fields of every recipe of the user's own text.

    Attributes:
        language: zh or en.
        tokenizer: auto, jieba, words, characters, spaces, subwords or bytes.
        normalise: all writes quotes, dashes and blanks in one way each; none changes nothing; auto
            means none for the tokenizer bytes (in a language model also for spaces), otherwise all.
        lowercase: whether to lowercase the text, if it is normalised.
        dictionary: a file to use instead of jieba's own dictionary.
        user_dictionary: a file of additional words for jieba.
        subword_model: a SentencePiece model for the tokenizer subwords; by default, one is learned
            from the text.
        new_words: whether jieba may guess words that are in no dictionary.
        split_counts: whether a number and its measure word are two tokens of jieba's.
        marks: whether combining marks are kept, such as the vowel signs of Hindi.
    """

    language: str = "en"
    tokenizer: str = "auto"
    normalise: Literal["auto", "all", "none"] = "auto"
    lowercase: bool = False
    dictionary: str = ""
    user_dictionary: str = ""
    subword_model: str = ""
    new_words: bool = False
    split_counts: bool = True
    marks: bool = True

    exact_tokenizers: ClassVar[tuple[str, ...]] = ("bytes",)  # Nothing is normalised for them.

    def settings(self) -> TextSettings:
        """Returns how the text is normalised and tokenised."""
        from towers.data.text import TextSettings

        files = ("dictionary", "user_dictionary", "subword_model")
        given: dict[str, Any] = {name: getattr(self, name) or None for name in files}
        as_written = self.normalise == "none" or (
            self.normalise == "auto" and self.tokenizer in self.exact_tokenizers
        )
        given |= {"as_written": as_written, "spelled": as_written}
        return TextSettings(**arguments_for(TextSettings, self, **given))


def replace_fields(fields: AnyFields, values: dict[str, Any]) -> AnyFields:
    """Returns fields with other values; ValueError for one of another type or out of bounds."""
    replaced = dataclasses.replace(fields, **in_words_of_today(values))
    for name, setting in settings_of(type(fields)).items():
        value = getattr(replaced, name)
        if setting.choices:
            check_choice(f"Field {name}", value, setting.choices)
        elif not setting.holds(value):
            raise ValueError(f"Field {name} takes {setting.takes}. Received {value!r}.")
        for bound in setting.broken(value):
            raise ValueError(f"Field {name} must be {bound.text}. Received {value}.")
    return replaced


def in_words_of_today(values: dict[str, Any], name: str = "part") -> dict[str, Any]:
    """Returns values, one of which names a part: `validation` was `valid` in version 0.2.0."""
    return {**values, name: "validation"} if values.get(name) == "valid" else values


def parse_overrides(kind: type[Fields], overrides: Sequence[str]) -> dict[str, Any]:
    """Returns the values of `field=value` texts, each of its field's type."""
    settings, values = settings_of(kind), {}
    for override in overrides:
        name, _, text = override.partition("=")
        name, text = name.strip().replace("-", "_"), text.strip()
        if name not in settings:
            raise ValueError(f"The recipe has no field {name!r}.{advice_for(name, settings)}")
        try:  # A choice is checked with all fields.
            values[name] = text if settings[name].choices else parse(settings[name].kind, text)
        except ValueError as error:
            expected = settings[name].takes
            raise ValueError(f"Field {name} takes {expected}. Received {text!r}.") from error
    return values


def advice_for(name: str, known: Collection[str]) -> str:
    """Returns a sentence on what an unknown field may stand for."""
    other = OTHER_NAMES.get(name)
    if other in known:
        return f" Use {other}=."
    if name in all_settings(TrainOptions):
        return f" Use --{name.replace('_', '-')}."
    return nearest(name, known)


def describe_fields(fields: Fields) -> list[str]:
    """Returns a line for each field: its value, its meaning and its bounds."""
    lines = []
    for name, setting in settings_of(type(fields)).items():
        bounds = " and ".join(bound.text for bound in setting.bounds)
        line = f"{name}={shown(getattr(fields, name))}  {setting.meaning}"
        lines.append(f"{line} ({bounds})" if bounds else line)
    return lines
