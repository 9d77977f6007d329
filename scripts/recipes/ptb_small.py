"""The Penn Treebank with a language model of two LSTM layers of 200 units, without dropout.

Paper:    Zaremba et al. 2014, "Recurrent Neural Network Regularization", section 4.1
Data:     towers download ptb
Command:  towers train ptb_small --towers 2
          towers train ptb_small --towers 2 --set dropout_rate=0.2
          towers evaluate runs/ptb_small --set part=test
Expected: test perplexity of 114.5 by the first command, as the paper's non-regularised network has,
          and of 97.4 by the second; each takes 51 minutes of CPU time
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from towers.scripts.shown import show
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import CACHE
from towers.scripts.training.recipe import Data, Recipe, describe_unknown, perplexity

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True)
class Fields(common.Fields):
    """The common fields, and:

    Attributes:
        batch_size: streams, or sentences, in one update, over all towers.
        form: streams, which carry their state from batch to batch, or separate sentences.
        num_steps: tokens of a stream in a batch.
        vocabulary_size: number of the most frequent words that get an id.
        hidden_size: units of each LSTM layer, and size of a token's vector.
        num_layers: stacked LSTM layers.
        dropout_rate: fraction of activations dropped before, between and after the layers in
            training.
        initial_scale: the parameters start uniform in [-initial_scale, initial_scale).
        part: which part of the text is evaluated: validation or test.
        evaluation_rows: number of streams into which that part is cut; 1 carries the state from
            start to end, more are faster but lose the state where each begins.
        evaluation_steps: tokens of a stream in a batch of the evaluation; more are faster, and
            change nothing unless the evaluation is dynamic.
    """

    form: Literal["streams", "sentences"] = "streams"
    num_steps: int = 20
    vocabulary_size: int = 10000
    hidden_size: int = 200
    num_layers: int = 2
    dropout_rate: Annotated[float, common.FRACTION] = 0.0
    initial_scale: float = 0.1
    part: str = "validation"
    evaluation_rows: int = 1
    evaluation_steps: int = 100


def make_data(fields: Fields, folder: Path, seed: int, write: Callable[[str], None] = show) -> Data:
    """Returns the batches of a folder's files."""
    from towers.data.reading.word_files import read_words

    return make_batches(fields, read_words(folder), seed, write)


def make_batches(
    fields: Fields, texts: Mapping[str, str], seed: int, write: Callable[[str], None] = show
) -> Data:
    """Returns the batches of a text's parts; the evaluation has every token of its part once."""
    from towers.data.batches.texts import sentence_batches, stream_batches
    from towers.data.prepared import prepare_words

    corpus = prepare_words(texts, fields.vocabulary_size, CACHE, write=write)
    training, evaluated = corpus.part("train"), corpus.part(fields.part)
    if fields.form == "streams":
        train = stream_batches(training, fields.batch_size, fields.num_steps)
        rows, steps = fields.evaluation_rows, fields.evaluation_steps
        test = stream_batches(evaluated, rows, steps, drop_tail=False)
    else:
        train = sentence_batches(training, fields.batch_size, seed=seed)
        test = sentence_batches(evaluated, fields.batch_size, shuffle=False)
    about = {"evaluated": fields.part}
    summary = describe_unknown(corpus.unknown_rate("train"))
    return Data(train, test, corpus.text, corpus, corpus.key, summary, about)


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network, with as many output words as the vocabulary has."""
    from towers.models import rnn_lm

    network, num_ids = rnn_lm.RNNLanguageModel, len(data.text.vocabulary)
    return network(**common.arguments_for(network, fields, vocabulary_size=num_ids))


def make_tower_fn(fields: Any, model: keras.Model, training: bool) -> Any:
    """Returns the tower function of streams or sentences; its weight is the number of tokens."""
    from towers.models import language_model

    make = language_model.streams if fields.form == "streams" else language_model.sentences
    return make(model, training=training)


def make_carried(fields: Any, model: Any) -> Any:
    """Returns the specs of a stream's state; separate sentences or pieces have none."""
    return model.state_specs() if fields.form == "streams" else None


def derive_metrics(metrics: dict[str, float], data: Data) -> dict[str, float]:
    """Returns the perplexity, and the share of unknown tokens."""
    unknown = data.corpus.unknown_rate(data.evaluated)
    return {"perplexity": perplexity(metrics["loss"]), "unknown_rate": unknown}


RECIPE = Recipe(
    name="ptb_small",
    fields=Fields(
        batch_size=20,
        epochs=13,
        optimizer="sgd",
        # The paper's rate of 1 and norm of 5 belong to the loss summed over the 20 steps of a
        # stream, ours to the mean over tokens: 20 times the rate and 1/20 of the norm is the same.
        learning_rate=20.0,
        clip_norm=0.25,
        # The paper has no warm-up. Without one the first updates overshoot, and differences in the
        # last digit, as between numbers of towers, grow to the first digit within 50 updates.
        warmup_steps=600,
        warmup_power=2.0,
        schedule="piecewise",
        boundaries=tuple(range(4, 13)),
        decay_rate=0.5,
    ),
    data_set="ptb",
    best_metric="perplexity",
    maximize=False,
    unit="tokens",
    command="generate",
    make_data=make_data,
    make_model=make_model,
    make_tower_fn=make_tower_fn,
    make_carried=make_carried,
    derive_metrics=derive_metrics,
)
