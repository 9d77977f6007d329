"""A chatbot: questions to answers, in Chinese or English; embedded dialogues or your own corpus.

Paper:    Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and
          Translate"; Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine
          Translation"; Vinyals and Le 2015, "A Neural Conversational Model"; Vaswani et al.
          2017, "Attention Is All You Need"
Command:  towers train chatbot --language zh --towers 2
          towers train chatbot --language zh --data my.conv --towers 2
          towers chat runs/chatbot
Expected: 99 % of the held-out embedded questions answered exactly
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from towers.scripts.shown import show
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import CACHE
from towers.scripts.training.recipe import Data, Recipe, Trained, describe_unknown, perplexities

if TYPE_CHECKING:
    import keras
    import numpy as np

    from towers.data.prepared import DialogueCorpus
    from towers.scripts.chatbot.chat_evaluator import ChatEvaluator

PARTS = ("train", "held_out")
EMBEDDED_MIN_DIALOGUES = 3


@dataclasses.dataclass(frozen=True)
class Fields(common.TextFields):
    """The common fields, those of a text, and:

    Attributes:
        batch_size: maximum number of pairs in one update, over all towers.
        batch_tokens: maximum number of tokens in one update, padding included.
        kind: kind of the files, such as conv, tsv or json_lines; auto recognises it.
        encoding: encoding of the files.
        columns: names of the columns of question and answer in CSV, Parquet or JSON, such as
            text,reply; by default common names are recognised.
        sender: name of the column of senders, in files with a message in each record.
        text: name of the column of their texts.
        time: name of the column of their times.
        me: the sender whose messages are the answers; by default, one with a known role.
        answers: a file with an answer on each line, beside the file of questions.
        fix_text: whether letters that were decoded with the wrong codec are repaired.
        simplify: whether traditional Chinese characters are simplified.
        pairing: alternate (turns 1-2, 3-4, ...) or sliding (1-2, 2-3, ...).
        context: number of earlier turns of the dialogue that belong to a question.
        held_out: fraction of a corpus's dialogues that is held out for the test.
        vocabulary_size: number of the most frequent words that get an id; without copy_unknown,
            also of characters.
        min_dialogues: words in fewer training dialogues than this get no id; 0 means 1, or 3 for
            the embedded dialogues, whose made-up names should be copied.
        copy_unknown: whether words without an id, such as names, are copied from the question to
            the answer; otherwise they are spelled in characters.
        max_question_length: maximum tokens of a question; of a longer one, only the last are read.
        max_answer_length: maximum tokens of an answer; training leaves out pairs with longer
            answers.
        max_answer_repeats: maximum number of training pairs with the same answer, ignoring
            punctuation and capital letters; 0 for all.
        fixed_shapes: whether training batches have at most 16 shapes, with more padding; --xla sets
            it, since it compiles a step for each shape.
        direction: forward trains a chatbot. For models that rerank a chatbot's answers, backward
            predicts the questions from the answers, and answers predicts the answers without a
            question.
        network: recurrent or transformer.
        cell: lstm or gru, of the recurrent network.
        embedding_size: size of a token's vector in the recurrent network.
        hidden_size: units of each recurrent layer; size of a token's vector in the Transformer.
        heads: attention heads of the Transformer; hidden_size must be an even multiple.
        feed_forward_size: units of the feed-forward layers of the Transformer.
        encoder_layers: layers that read the question, bidirectional or with self-attention.
        decoder_layers: layers that write the answer.
        attention: luong, luong_scaled or bahdanau, of the recurrent network.
        input_feeding: whether the recurrent decoder also reads its last attention output.
        tied_output: whether the output projection is the embedding table.
        residual: whether each recurrent layer adds its input to its output, where their sizes
            match.
        dropout_rate: fraction of activations dropped between layers in training.
        label_smoothing: fraction of each target that is spread over the vocabulary.
        unigram_bias: whether the untrained network predicts each token as often as it occurs in the
            training answers.
        exam_questions: maximum number of test questions that `towers evaluate` asks.
    """

    batch_tokens: int = 1536
    kind: str = "auto"
    encoding: str = "utf-8"
    columns: tuple[str, ...] = ()
    sender: str = ""
    text: str = ""
    time: str = ""
    me: str = ""
    answers: str = ""
    fix_text: bool = False
    simplify: bool = False
    pairing: Literal["alternate", "sliding"] = "alternate"
    context: int = 6
    held_out: float = 0.02
    lowercase: bool = True
    vocabulary_size: int = 20000
    min_dialogues: int = 0
    copy_unknown: bool = True
    max_question_length: int = 64
    max_answer_length: int = 30
    max_answer_repeats: Annotated[int, common.NOT_NEGATIVE] = 0
    fixed_shapes: bool = False
    direction: Literal["forward", "backward", "answers"] = "forward"
    network: Literal["recurrent", "transformer"] = "recurrent"
    cell: Literal["lstm", "gru"] = "lstm"
    embedding_size: int = 192
    hidden_size: int = 192
    heads: int = 4
    feed_forward_size: int = 512
    encoder_layers: int = 1
    decoder_layers: int = 1
    attention: Literal["luong", "luong_scaled", "bahdanau"] = "luong"
    input_feeding: bool = False
    tied_output: bool = True
    residual: bool = False
    dropout_rate: Annotated[float, common.FRACTION] = 0.3
    label_smoothing: Annotated[float, common.FRACTION] = 0.0
    unigram_bias: bool = True
    exam_questions: Annotated[int, common.POSITIVE] = 1000


def make_data(
    fields: Fields,
    paths: Sequence[Path] | None,
    seed: int,
    write: Callable[[str], None] = show,
    trained: Trained | None = None,
) -> Data:
    """Returns the batches of a corpus, which is prepared if it was not before.

    Of other files than a trained run's all pairs are evaluated, with its vocabulary.
    """
    from towers.data.batches.pairs import pair_batches
    from towers.scripts.chatbot.introduction import about_data

    corpus = prepare(fields, paths, write=write, trained=trained)
    own: dict[str, Any] = {"text": corpus.text, "corpus": corpus, "key": corpus.key}
    limits = common.arguments_for(pair_batches, fields)
    test = pair_batches(corpus, "held_out", shuffle=False, **{**limits, "fixed_shapes": False})
    if trained is not None and trained.text is not None:
        return Data(test, test, **own, about=trained.about if corpus.key == trained.key else None)
    train = pair_batches(corpus, "train", seed=seed, **limits)
    summary = f"{train.source.summary}; {describe_unknown(corpus.unknown_rate)}"
    limited = limited_fraction(train.source.layout.shapes, fields)
    if limited > 0.5:
        summary += (
            f"\nbatch_tokens={fields.batch_tokens} limits {limited:.0%} of the batches to fewer "
            f"than batch_size={fields.batch_size} pairs"
        )
    about = about_data(paths, fields.language, train.num_examples, corpus.context)
    return Data(train, test, **own, summary=summary, about=about)


def limited_fraction(shapes: np.ndarray, fields: Fields) -> float:
    """Returns the fraction of batches that a further pair would bring above `batch_tokens`.

    Args:
        shapes: int [batches, 3], rows and both lengths of each batch.
        fields: with the limits; batches of `batch_size` pairs are full by that one.
    """
    rows, lengths = shapes[:, 0], shapes[:, 1:].sum(axis=1)
    limited = (rows < fields.batch_size) & ((rows + 1) * lengths > fields.batch_tokens)
    return float(limited.mean()) if len(limited) else 0.0


def prepare(
    fields: Fields,
    paths: Sequence[Path] | None,
    *,
    processes: int | None = None,
    write: Callable[[str], None] = show,
    trained: Trained | None = None,
) -> DialogueCorpus:
    """Returns the prepared corpus of files, or without paths the embedded one.

    Paths are files and folders, such as a.conv, or a.conv:2 to read it twice in an epoch.
    """
    from towers.data.prepared import DialoguePreparation, prepare_dialogues, prepare_files
    from towers.data.reading.layout import Layout
    from towers.data.samples.conversations import conversations

    settings = common.arguments_for(
        DialoguePreparation,
        fields,
        text=fields.settings(),
        layout=Layout(**common.arguments_for(Layout, fields)),
        copy_unknown=fields.copy_unknown and fields.tokenizer not in ("subwords", "bytes"),
        min_dialogues=fields.min_dialogues or (EMBEDDED_MIN_DIALOGUES if paths is None else 1),
    )
    preparation = DialoguePreparation(**settings)
    if paths is not None:
        how = {} if trained is None else {"codec": trained.text, "trained": trained.key}
        return prepare_files(paths, preparation, CACHE, processes=processes, write=write, **how)
    train, held_out = (conversations(fields.language, part) for part in PARTS)
    return prepare_dialogues(train, held_out, preparation, CACHE, write=write)


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network, with as many output words as the vocabulary has."""
    from towers.models.seq2seq import Seq2Seq
    from towers.models.transformer import Transformer

    networks = {"recurrent": Seq2Seq, "transformer": Transformer}
    network = networks[fields.network]
    sizes = {"vocabulary_size": len(data.text.vocabulary), "size": fields.hidden_size}
    return network(**common.arguments_for(network, fields, **sizes))


def initialize(fields: Fields, model: Any, data: Data) -> None:
    """Lets the network begin with the frequencies of the training answers' tokens."""
    from towers.models.text_layers import predict_unigrams

    if fields.unigram_bias:
        predict_unigrams(model.projection.bias, data.corpus.target_counts)


def make_tower_fn(fields: Fields, model: keras.Model, training: bool) -> Any:
    """Returns the tower function, whose weight is the number of answer tokens."""
    from towers.models import answering

    smoothing = fields.label_smoothing if training else 0.0
    return answering.answering(model, training=training, label_smoothing=smoothing)


def derive_metrics(metrics: dict[str, float], data: Data) -> dict[str, float]:
    """Returns the perplexities, also that of unigrams, which is of answers."""
    found = perplexities(metrics, data.test.source.num_characters)
    found["unknown_rate"] = data.corpus.unknown_rate
    if data.test.source.direction != "backward" and len(data.corpus.train_pairs):
        found["unigram_perplexity"] = data.corpus.unigram_perplexity
    return found


def make_answer_evaluator(fields: Fields, model: keras.Model, data: Data) -> ChatEvaluator | None:
    """Returns the evaluator that asks the held-out questions; it decodes greedily.

    Only a model that answers questions has one.
    """
    from towers.models.decoding import Decoding
    from towers.scripts.chatbot.answerer import Answerer
    from towers.scripts.chatbot.chat_evaluator import ChatEvaluator
    from towers.scripts.chatbot.ranking import AnswerRanker

    if fields.direction != "forward":
        return None
    decoding = Decoding(max_length=fields.max_answer_length)
    return ChatEvaluator(
        Answerer(model, data.text, decoding, fields.max_question_length),
        AnswerRanker(model, data.text, fields.max_question_length),
        data.corpus,
        fields.language,
        fields.exam_questions,
    )


RECIPE = Recipe(
    name="chatbot",
    fields=Fields(
        batch_size=64,
        epochs=9,
        optimizer="adamw",
        optimizer_weight_decay=0.03,
        learning_rate=4e-3,
        schedule="cosine",
        warmup_steps=100,
        clip_norm=5.0,
    ),
    takes_files=True,
    best_metric="perplexity",
    maximize=False,
    unit="tokens",
    command="chat",
    make_data=make_data,
    make_model=make_model,
    initialize=initialize,
    make_tower_fn=make_tower_fn,
    derive_metrics=derive_metrics,
    prepare=prepare,
    make_answer_evaluator=make_answer_evaluator,
)
