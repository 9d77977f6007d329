"""A language model of your own text, of any size: three networks, in Chinese or English.

Paper:    Zaremba et al. 2014, "Recurrent Neural Network Regularization" (lstm); Merity et al. 2018,
          "Regularizing and Optimizing LSTM Language Models" (awd_lstm); Vaswani et al. 2017,
          "Attention Is All You Need", Su et al. 2021 and Ainslie et al. 2023 (transformer)
Data:     yours with --data: files and folders of text, JSON Lines or Parquet
Command:  towers train language_model --data my_texts --language en --towers 2
          towers train language_model --data my_texts --set network=awd_lstm --run-dir runs/awd
          towers generate runs/language_model --prompt "once upon a time"
Expected: it depends on the text; on the Penn Treebank test perplexity 90.6 (awd_lstm) and 94.0
          (transformer) within an hour on two CPU cores, by the commands in docs/results.md
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from towers.ground.arguments import check_choice
from towers.ground.special_ids import END, PAD, SEPARATOR, START, UNKNOWN
from towers.scripts.recipes.ptb_small import (
    EVALUATION_STEPS,
    load_text,
    make_carried,
    make_tower_fn,
)
from towers.scripts.shown import show
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import DATA_SETS
from towers.scripts.training.recipe import Data, Recipe, SpecialIds, perplexity

if TYPE_CHECKING:
    import keras

    from towers.data.prepared import TextCorpus

CACHE = DATA_SETS / "prepared"
FORMS = ("streams", "pieces")


@dataclasses.dataclass(frozen=True)
class Fields(common.Fields):
    """The common fields, and:

    Attributes:
        batch_size: streams, or pieces, in one update, over all towers.
        language: zh or en.
        tokenizer: auto, jieba, words, characters, spaces or subwords.
        lowercase: whether capital letters become small letters.
        dictionary: a file in place of jieba's own dictionary.
        user_dictionary: a file of further words for jieba.
        subword_model: a SentencePiece model for the tokenizer subwords; by default one is learned
            from a sample of the text.
        new_words: whether jieba may guess words that are in no dictionary.
        vocabulary_size: most frequent words that get an id, and characters, which spell the others.
        encoding: encoding of the files of text.
        text_field: the name of the text in JSON Lines, or the column in Parquet.
        held_out: share of the text for the part valid, and again for test, where the names of the
            files do not tell the parts.
        form: streams, which carry their state from batch to batch, or pieces, which are shuffled
            and read each by itself.
        num_steps: tokens of a stream in a batch, or of a piece.
        network: lstm, awd_lstm or transformer.
        embedding_size: numbers for a token of awd_lstm, and units of its last layer.
        hidden_size: units of each LSTM layer; numbers for a token of lstm and transformer.
        num_layers: layers of the network.
        heads: attention heads of the Transformer; hidden_size is an even multiple.
        key_value_heads: heads of its keys and values; heads is a multiple.
        feed_forward: gelu or swiglu, of the Transformer.
        feed_forward_size: units of its feed-forward layers.
        window: number of earlier tokens to which each of its layers attends.
        dropout_rate: share of numbers dropped between layers in training.
        input_dropout_rate: for awd_lstm, share of the numbers of tokens that is dropped.
        output_dropout_rate: for awd_lstm, share of the last layer's numbers that is dropped.
        weight_dropout_rate: for awd_lstm, share of the recurrent weights that is dropped.
        word_dropout_rate: for awd_lstm, share of the words that is dropped.
        unigram_bias: whether the untrained network predicts each token as often as the training
            text has it.
        part: which part of the text is evaluated: valid or test.
        evaluation_rows: streams into which that part is cut; 1 carries the state from its start
            to its end, more are faster and lose the state where each of them begins.
    """

    language: str = "en"
    tokenizer: str = "auto"
    lowercase: bool = False
    dictionary: str = ""
    user_dictionary: str = ""
    subword_model: str = ""
    new_words: bool = False
    vocabulary_size: Annotated[int, common.POSITIVE] = 20000
    encoding: str = "utf-8"
    text_field: str = "text"
    held_out: float = 0.02
    form: str = "streams"
    num_steps: int = 64
    network: str = "transformer"
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
    unigram_bias: bool = True
    part: str = "valid"
    evaluation_rows: int = 16


def make_data(fields: Fields, paths: Sequence[Path] | None, seed: int) -> Data:
    """Returns the batches of a text, which is prepared if it was not before."""
    from towers.data.batches.texts import piece_batches, stream_batches

    check_choice("Field form", fields.form, FORMS)
    check_choice("Field network", fields.network, NETWORKS)
    corpus = prepare(fields, paths)
    tokens, evaluated = corpus.part("train"), corpus.part(fields.part)
    ids: dict[str, Any] = {"first": END, "padding": PAD}
    if fields.form == "streams":
        train = stream_batches(tokens, fields.batch_size, fields.num_steps, **ids)
        test = stream_batches(
            evaluated, fields.evaluation_rows, EVALUATION_STEPS, drop_tail=False, **ids
        )
    else:
        size = (fields.batch_size, fields.num_steps)
        train = piece_batches(tokens, *size, seed=seed, **ids)
        test = piece_batches(evaluated, *size, shuffle=False, **ids)
    left = len(tokens) - train.num_examples
    summary = f"{train.num_examples:,} tokens to train on in {train.steps_per_epoch:,} batches" + (
        f"; the last {left:,} fill no batch of {fields.batch_size} streams" if left else ""
    )
    return Data(
        train,
        test,
        text=corpus.text,
        corpus=corpus,
        key=corpus.key,
        summary=summary,
        about={"evaluated": fields.part},
    )


def prepare(
    fields: Fields,
    paths: Sequence[Path] | None,
    *,
    processes: int | None = None,
    write: Callable[[str], None] = show,
) -> TextCorpus:
    """Returns the prepared text of files.

    Args:
        fields: of the recipe.
        paths: files and folders.
        processes: how many tokenise; by default one for each core.
        write: receives the lines about a text while it is prepared.

    Raises:
        ValueError: there is no path, or something is wrong with the fields or the files.
    """
    from towers.data.prepared import TextPreparation, prepare_texts
    from towers.data.text import TextSettings

    if paths is None:
        raise ValueError(
            "Recipe language_model trains on your own text: name files or folders with --data. "
            "(The recipe stories brings a small text.)"
        )
    settings = TextPreparation(
        TextSettings(
            language=fields.language,
            tokenizer=fields.tokenizer,
            lowercase=fields.lowercase,
            dictionary=fields.dictionary or None,
            user_dictionary=fields.user_dictionary or None,
            subword_model=fields.subword_model or None,
            new_words=fields.new_words,
        ),
        vocabulary_size=fields.vocabulary_size,
        held_out=fields.held_out,
        encoding=fields.encoding,
        field=fields.text_field,
    )
    return prepare_texts(paths, settings, CACHE, processes=processes, write=write)


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network, with as many output words as the vocabulary has."""
    return NETWORKS[fields.network](fields, len(data.text))


def initialize(fields: Fields, model: Any, data: Data) -> None:
    """Lets the network begin with the shares of the training text's tokens."""
    from towers.models.text_layers import predict_unigrams

    if fields.unigram_bias:
        predict_unigrams(model.output_bias, data.corpus.unigram_counts)


def make_lstm(fields: Fields, vocabulary_size: int) -> keras.Model:
    """Returns the network of Zaremba et al. 2014."""
    from towers.models import rnn_lm

    return rnn_lm.RNNLanguageModel(
        vocabulary_size,
        hidden_size=fields.hidden_size,
        num_layers=fields.num_layers,
        dropout_rate=fields.dropout_rate,
        padding_id=PAD,
    )


def make_awd_lstm(fields: Fields, vocabulary_size: int) -> keras.Model:
    """Returns the network of Merity et al. 2018."""
    from towers.models import awd_lstm

    return awd_lstm.AWDLanguageModel(
        vocabulary_size,
        embedding_size=fields.embedding_size,
        hidden_size=fields.hidden_size,
        num_layers=fields.num_layers,
        dropout_rate=fields.dropout_rate,
        input_dropout_rate=fields.input_dropout_rate,
        output_dropout_rate=fields.output_dropout_rate,
        weight_dropout_rate=fields.weight_dropout_rate,
        word_dropout_rate=fields.word_dropout_rate,
        padding_id=PAD,
    )


def make_transformer(fields: Fields, vocabulary_size: int) -> keras.Model:
    """Returns the Transformer."""
    from towers.models import transformer_lm

    return transformer_lm.TransformerLanguageModel(
        vocabulary_size,
        size=fields.hidden_size,
        heads=fields.heads,
        key_value_heads=fields.key_value_heads,
        feed_forward_size=fields.feed_forward_size,
        feed_forward=fields.feed_forward,
        num_layers=fields.num_layers,
        window=fields.window,
        dropout_rate=fields.dropout_rate,
        padding_id=PAD,
    )


NETWORKS = {"lstm": make_lstm, "awd_lstm": make_awd_lstm, "transformer": make_transformer}


def derive_metrics(metrics: dict[str, float], data: Data) -> dict[str, float]:
    """Returns the perplexities; that per character compares vocabularies with each other."""
    about = data.about or {}
    num_characters = data.corpus.num_characters[about["evaluated"]]
    tokens_per_character = metrics["examples"] / num_characters
    return {
        "perplexity": perplexity(metrics["loss"]),
        "character_perplexity": perplexity(metrics["loss"] * tokens_per_character),
    }


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
    special_ids=SpecialIds(
        padding=PAD,
        unknown=UNKNOWN,
        start=END,
        end=END,
        unspoken=(PAD, START, UNKNOWN, SEPARATOR),
    ),
    make_data=make_data,
    make_model=make_model,
    initialize=initialize,
    make_tower_fn=make_tower_fn,
    make_carried=make_carried,
    derive_metrics=derive_metrics,
    prepare=prepare,
    load_text=load_text,
)
