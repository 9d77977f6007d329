"""A language model of your own text, of any size: three networks, in Chinese or English.

Paper:    Zaremba et al. 2014, "Recurrent Neural Network Regularization" (lstm); Merity et al. 2018,
          "Regularizing and Optimizing LSTM Language Models" (awd_lstm); Vaswani et al. 2017,
          "Attention Is All You Need", Su et al. 2021 and Ainslie et al. 2023 (transformer)
Data:     yours with --data: files and folders of text, JSON Lines or Parquet
Command:  towers train language_model --data my_texts --language en --towers 2
          towers train language_model --data my_texts --set network=awd_lstm --run-dir runs/awd
          towers generate runs/language_model --prompt "once upon a time"
Expected: it depends on the text; on the Penn Treebank test perplexity 90.6 (awd_lstm) and 94.0
          (transformer) within an hour on two CPU cores, 80.4 (awd_lstm) in two, by the commands in
          docs/results.md
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from towers.scripts.recipes.ptb_small import make_carried, make_tower_fn
from towers.scripts.shown import show
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import CACHE
from towers.scripts.training.recipe import Data, Recipe, Trained, describe_unknown, perplexities

if TYPE_CHECKING:
    import keras

    from towers.data.prepared import TextCorpus
    from towers.ground.epochs import Epochs


@dataclasses.dataclass(frozen=True)
class Fields(common.TextFields):
    """The common fields, those of a text, and:

    Attributes:
        batch_size: streams, or pieces, in one update, over all towers.
        vocabulary_size: number of the most frequent words and characters that get an id; characters
            spell the other words.
        min_count: words that occur less often in the training text are spelled too, so that the
            network learns to spell the words that only other texts have.
        encoding: encoding of the files of text.
        text_field: the name of the text in JSON Lines, or the column in Parquet.
        documents: whether a special token ends each record and each file of lines.
        code: whether source code files in folders count as text.
        held_out: fraction of the text for validation, and the same again for the test, unless the
            files are named after the parts.
        form: streams, which carry their state from batch to batch, or pieces, which are shuffled
            and read separately.
        num_steps: tokens of a stream in a batch, or of a piece.
        network: lstm, awd_lstm or transformer.
        embedding_size: size of a token's vector in awd_lstm, and units of its last layer.
        hidden_size: units of each LSTM layer; size of a token's vector in lstm and transformer.
        num_layers: layers of the network.
        heads: attention heads of the Transformer; hidden_size must be an even multiple.
        key_value_heads: heads of its keys and values; heads must be a multiple.
        feed_forward: gelu or swiglu, of the Transformer.
        feed_forward_size: units of its feed-forward layers.
        window: number of earlier tokens to which each of its layers attends.
        dropout_rate: fraction of activations dropped between layers in training.
        input_dropout_rate: for awd_lstm, fraction of the token vectors' numbers that is dropped.
        output_dropout_rate: for awd_lstm, fraction of the last layer's outputs that is dropped.
        weight_dropout_rate: for awd_lstm, fraction of the recurrent weights that is dropped.
        word_dropout_rate: for awd_lstm, fraction of the words that is dropped.
        activation_penalty: for awd_lstm, factor of the squared outputs in the training loss.
        temporal_penalty: for awd_lstm, factor of their squared change from token to token.
        unigram_bias: whether the output's bias begins as the frequencies of the training text's
            tokens, which an untrained LSTM then predicts.
        part: which part of the text is evaluated: validation or test.
        evaluation_rows: number of streams into which that part is cut; 1 carries the state from
            start to end, more are faster but lose the state where each begins.
        evaluation_steps: tokens of a stream in a batch of the evaluation; more are faster, and
            change nothing unless the evaluation is dynamic.
    """

    vocabulary_size: Annotated[int, common.POSITIVE] = 20000
    min_count: Annotated[int, common.POSITIVE] = 2
    encoding: str = "utf-8"
    text_field: str = "text"
    documents: bool = True
    code: bool = True
    held_out: float = 0.02
    form: Literal["streams", "pieces"] = "streams"
    num_steps: int = 64
    network: Literal["lstm", "awd_lstm", "transformer"] = "transformer"
    embedding_size: int = 200
    hidden_size: int = 256
    num_layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: str = "swiglu"
    feed_forward_size: int = 512
    window: int = 64
    dropout_rate: Annotated[float, common.FRACTION] = 0.2
    input_dropout_rate: Annotated[float, common.FRACTION] = 0.2
    output_dropout_rate: Annotated[float, common.FRACTION] = 0.2
    weight_dropout_rate: Annotated[float, common.FRACTION] = 0.2
    word_dropout_rate: Annotated[float, common.FRACTION] = 0.0
    activation_penalty: Annotated[float, common.NOT_NEGATIVE] = 0.0
    temporal_penalty: Annotated[float, common.NOT_NEGATIVE] = 0.0
    unigram_bias: bool = True
    part: str = "validation"
    evaluation_rows: int = 16
    evaluation_steps: int = 100

    exact_tokenizers = ("bytes", "spaces")


def make_data(
    fields: Fields,
    paths: Sequence[Path] | None,
    seed: int,
    write: Callable[[str], None] = show,
    trained: Trained | None = None,
) -> Data:
    """Returns the batches of a text, which is prepared if it was not before.

    Other files than a trained run's are evaluated whole, with its vocabulary.
    """
    from towers.data.batches.texts import piece_batches, stream_batches

    corpus = prepare(fields, paths, write=write, trained=trained)
    own: dict[str, Any] = {"text": corpus.text, "corpus": corpus, "key": corpus.key}
    own["about"] = {"evaluated": fields.part}
    test = evaluation_batches(fields, corpus)
    if trained is not None and trained.text is not None:
        return Data(test, test, **own)
    tokens, size = corpus.part("train"), (fields.batch_size, fields.num_steps)
    if fields.form == "streams":
        train = stream_batches(tokens, *size, first=corpus.text.begin)
    else:
        train = piece_batches(tokens, *size, first=corpus.text.begin, seed=seed)
    left = len(tokens) - train.num_examples
    summary = f"{train.num_examples:,} training tokens in {train.steps_per_epoch:,} batches" + (
        f"; the last {left:,} do not fill a batch of {fields.batch_size} streams" if left else ""
    )
    summary += f"; {describe_unknown(corpus.unknown_rate('train'))}"
    return Data(train, test, **own, summary=summary)


def evaluation_batches(fields: Fields, corpus: TextCorpus) -> Epochs:
    """Returns the batches of the part that is evaluated."""
    from towers.data.batches.texts import piece_batches, stream_batches

    tokens, first = corpus.part(fields.part), corpus.text.begin
    if fields.form == "streams":
        rows, steps = fields.evaluation_rows, fields.evaluation_steps
        return stream_batches(tokens, rows, steps, drop_tail=False, first=first)
    return piece_batches(tokens, fields.batch_size, fields.num_steps, first=first, shuffle=False)


def prepare(
    fields: Fields,
    paths: Sequence[Path] | None,
    *,
    processes: int | None = None,
    write: Callable[[str], None] = show,
    trained: Trained | None = None,
) -> TextCorpus:
    """Returns the prepared text of files and folders; raises ValueError if there are none."""
    from towers.data.prepared import TextPreparation, prepare_texts

    if paths is None:
        raise ValueError(
            "Recipe language_model trains on your own text: give files or folders with --data. "
            "(The recipe stories includes a small text.)"
        )
    own = {"text": fields.settings(), "field": fields.text_field}
    settings = TextPreparation(**common.arguments_for(TextPreparation, fields, **own))
    how = {} if trained is None else {"codec": trained.text, "trained": trained.key}
    how |= {"processes": processes, "part": fields.part}
    return prepare_texts(paths, settings, CACHE, write=write, **how)


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network, with as many output words as the vocabulary has."""
    from towers.models.awd_lstm import AWDLanguageModel
    from towers.models.rnn_lm import RNNLanguageModel
    from towers.models.transformer_lm import TransformerLanguageModel

    networks: dict[str, Any] = {
        "lstm": RNNLanguageModel,
        "awd_lstm": AWDLanguageModel,
        "transformer": TransformerLanguageModel,
    }
    network = networks[fields.network]
    sizes = {"vocabulary_size": len(data.text.vocabulary), "size": fields.hidden_size}
    return network(**common.arguments_for(network, fields, **sizes))


def initialize(fields: Fields, model: Any, data: Data) -> None:
    """Lets the network begin with the frequencies of the training text's tokens."""
    from towers.models.text_layers import predict_unigrams

    if fields.unigram_bias and data.corpus.num_characters["train"]:
        predict_unigrams(model.output_bias, data.corpus.unigram_counts)


def derive_metrics(metrics: dict[str, float], data: Data) -> dict[str, float]:
    """Returns the perplexities of the part that is evaluated, and its share of unknown tokens."""
    found = perplexities(metrics, data.corpus.num_characters[data.evaluated])
    return {**found, "unknown_rate": data.corpus.unknown_rate(data.evaluated)}


RECIPE = Recipe(
    name="language_model",
    fields=Fields(
        batch_size=32,
        epochs=10,
        learning_rate=2e-3,
        schedule="cosine",
        warmup_steps=50,
        clip_norm=1.0,
    ),
    takes_files=True,
    best_metric="perplexity",
    maximize=False,
    unit="tokens",
    command="generate",
    make_data=make_data,
    make_model=make_model,
    initialize=initialize,
    make_tower_fn=make_tower_fn,
    make_carried=make_carried,
    derive_metrics=derive_metrics,
    prepare=prepare,
)
