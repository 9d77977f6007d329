"""A chatbot: questions to answers, in Chinese or English; embedded dialogues or your own corpus.

Paper:    Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and
          Translate"; Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine
          Translation"; Vinyals and Le 2015, "A Neural Conversational Model"; Vaswani et al.
          2017, "Attention Is All You Need"
Command:  towers train chatbot --language zh --towers 2
          towers train chatbot --language zh --data my.conv --towers 2
          towers chat runs/chatbot
Expected: 97.7 % (zh) and 97.9 % (en) of the held-out embedded questions answered exactly
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from towers.ground.arguments import check_choice
from towers.ground.special_ids import END, PAD, SEPARATOR, START, UNKNOWN
from towers.scripts.shown import show
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import DATA_SETS
from towers.scripts.training.recipe import Data, Recipe, SpecialIds, perplexity

if TYPE_CHECKING:
    import keras

    from towers.data.prepared import DialogueCorpus
    from towers.data.text import TextCodec
    from towers.scripts.chatbot.chat_evaluator import ChatEvaluator

CACHE = DATA_SETS / "prepared"
PARTS = ("train", "held_out")
EMBEDDED_MIN_DIALOGUES = 3
SPECIAL_IDS = SpecialIds(
    padding=PAD,
    unknown=UNKNOWN,
    start=START,
    end=END,
    unspoken=(PAD, START, UNKNOWN, SEPARATOR),
)


@dataclasses.dataclass(frozen=True)
class Fields(common.Fields):
    """The common fields, and:

    Attributes:
        batch_size: at most so many pairs in one update, over all towers.
        batch_tokens: at most so many tokens in one update, padding included.
        language: zh or en.
        kind: kind of the files: conv, tsv, json_lines, cornell, speakers, csv, json_array, parquet
            or auto.
        encoding: encoding of the files.
        columns: names of the columns of question and answer in CSV, Parquet or JSON, such as
            text,reply; by default common names are recognised.
        fix_text: whether broken letters, decoded by another codec than theirs, are mended.
        simplify: whether traditional Chinese characters become simplified ones.
        pairing: alternate (turns 1-2, 3-4, ...) or sliding (1-2, 2-3, ...).
        context: number of earlier turns of the dialogue that belong to a question.
        held_out: share of a corpus's dialogues that is kept for evaluation.
        tokenizer: auto, jieba, words, characters, spaces or subwords.
        lowercase: whether capital letters become small letters.
        dictionary: a file in place of jieba's own dictionary.
        user_dictionary: a file of further words for jieba.
        subword_model: a SentencePiece model for the tokenizer subwords; by default one is learned
            from the corpus.
        new_words: whether jieba may guess words that are in no dictionary.
        vocabulary_size: most frequent words that get an id; without copies also characters.
        min_dialogues: words that are in fewer dialogues of the training part get no id; 0 for 1,
            and for 3 with the embedded dialogues, whose made-up names are there to be copied.
        copy_unknown: whether words without an id are copied from the question to the answer, such
            as names; otherwise they are spelled by characters.
        max_question_length: tokens of a question; only the last of a longer one are read.
        max_answer_length: tokens of an answer; training leaves out pairs with longer ones.
        max_answer_repeats: training leaves out pairs whose answer occurs more often, beyond this
            number, also with other punctuation or capital letters; 0 keeps all.
        fixed_shapes: whether training batches have at most 16 shapes, as --xla wants them, which
            compiles a step for each shape; they have more padding.
        direction: forward trains a chatbot. backward trains the questions from the answers, and
            answers the answers without a question, for models that rerank a chatbot's answers.
        network: recurrent or transformer.
        cell: lstm or gru, of the recurrent network.
        embedding_size: numbers for a token of the recurrent network.
        hidden_size: units of each recurrent layer; numbers for a token of the Transformer.
        heads: attention heads of the Transformer; hidden_size is an even multiple.
        feed_forward_size: units of the feed-forward layers of the Transformer.
        encoder_layers: layers that read the question, bidirectional or with self-attention.
        decoder_layers: layers that write the answer.
        attention: luong, luong_scaled or bahdanau, of the recurrent network.
        input_feeding: whether the recurrent decoder also reads its last attention output.
        tied_output: whether the output projection is the embedding table.
        residual: whether each recurrent layer adds its input to its output where the sizes agree.
        dropout_rate: share of numbers dropped between layers in training.
        label_smoothing: share of each target that is spread over the vocabulary.
        unigram_bias: whether the untrained network predicts each token as often as the training
            answers have it.
        exam_questions: at most so many held-out questions are asked by `towers evaluate`.
    """

    batch_tokens: int = 1536
    language: str = "en"
    kind: str = "auto"
    encoding: str = "utf-8"
    columns: tuple[str, ...] = ()
    fix_text: bool = False
    simplify: bool = False
    pairing: str = "alternate"
    context: int = 2
    held_out: float = 0.02
    tokenizer: str = "auto"
    lowercase: bool = True
    dictionary: str = ""
    user_dictionary: str = ""
    subword_model: str = ""
    new_words: bool = False
    vocabulary_size: int = 20000
    min_dialogues: int = 0
    copy_unknown: bool = True
    max_question_length: int = 40
    max_answer_length: int = 30
    max_answer_repeats: Annotated[int, common.NOT_NEGATIVE] = 0
    fixed_shapes: bool = False
    direction: str = "forward"
    network: str = "recurrent"
    cell: str = "lstm"
    embedding_size: int = 128
    hidden_size: int = 128
    heads: int = 4
    feed_forward_size: int = 512
    encoder_layers: int = 1
    decoder_layers: int = 1
    attention: str = "luong"
    input_feeding: bool = False
    tied_output: bool = True
    residual: bool = False
    dropout_rate: Annotated[float, common.FRACTION] = 0.3
    label_smoothing: Annotated[float, common.FRACTION] = 0.0
    unigram_bias: bool = True
    exam_questions: Annotated[int, common.POSITIVE] = 1000


def make_data(fields: Fields, paths: Sequence[Path] | None, seed: int) -> Data:
    """Returns the batches of a corpus, which is prepared if it was not before."""
    from towers.data.batches.pairs import pair_batches
    from towers.scripts.chatbot.introduction import about_data

    corpus = prepare(fields, paths)
    limits: dict[str, Any] = {
        "batch_tokens": fields.batch_tokens,
        "batch_size": fields.batch_size,
        "max_question_length": fields.max_question_length,
        "max_answer_length": fields.max_answer_length,
        "direction": fields.direction,
    }
    train = pair_batches(
        corpus,
        "train",
        seed=seed,
        max_answer_repeats=fields.max_answer_repeats,
        fixed_shapes=fields.fixed_shapes,
        **limits,
    )
    return Data(
        train,
        pair_batches(corpus, "held_out", shuffle=False, **limits),
        text=corpus.text,
        corpus=corpus,
        key=corpus.key,
        summary=train.source.summary,
        about=about_data(paths, fields.language, train.num_examples),
    )


def prepare(
    fields: Fields,
    paths: Sequence[Path] | None,
    *,
    processes: int | None = None,
    write: Callable[[str], None] = show,
) -> DialogueCorpus:
    """Returns the prepared corpus of files, or without paths the embedded one.

    Args:
        fields: of the recipe.
        paths: files and folders, such as a.conv, or a.conv:2 to read it twice in an epoch; or None.
        processes: how many tokenise files; by default one for each core.
        write: receives the lines about a corpus while it is prepared.
    """
    from towers.data.prepared import DialoguePreparation, prepare_dialogues, prepare_files
    from towers.data.samples.conversations import conversations
    from towers.data.text import TextSettings

    preparation = DialoguePreparation(
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
        pairing=fields.pairing,
        context=fields.context,
        held_out=fields.held_out,
        kind=fields.kind,
        encoding=fields.encoding,
        copy_unknown=fields.copy_unknown and fields.tokenizer != "subwords",
        min_dialogues=fields.min_dialogues or (EMBEDDED_MIN_DIALOGUES if paths is None else 1),
        columns=fields.columns,
        fix_text=fields.fix_text,
        simplify=fields.simplify,
    )
    if paths is not None:
        return prepare_files(paths, preparation, CACHE, processes=processes, write=write)
    train, held_out = (conversations(fields.language, part) for part in PARTS)
    return prepare_dialogues(train, held_out, preparation, CACHE, write=write)


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network, with as many output words as the vocabulary has."""
    check_choice("network", fields.network, NETWORKS)
    return NETWORKS[fields.network](fields, len(data.text.vocabulary))


def initialize(fields: Fields, model: Any, data: Data) -> None:
    """Lets the network begin with the shares of the training answers' tokens."""
    from towers.models.text_layers import predict_unigrams

    if fields.unigram_bias:
        predict_unigrams(model.projection.bias, data.corpus.target_counts)


def make_recurrent(fields: Fields, vocabulary_size: int) -> keras.Model:
    """Returns the recurrent network with attention."""
    from towers.models.seq2seq import Seq2Seq

    return Seq2Seq(
        vocabulary_size,
        cell=fields.cell,
        embedding_size=fields.embedding_size,
        hidden_size=fields.hidden_size,
        encoder_layers=fields.encoder_layers,
        decoder_layers=fields.decoder_layers,
        attention=fields.attention,
        input_feeding=fields.input_feeding,
        tied_output=fields.tied_output,
        residual=fields.residual,
        dropout_rate=fields.dropout_rate,
        padding_id=SPECIAL_IDS.padding,
    )


def make_transformer(fields: Fields, vocabulary_size: int) -> keras.Model:
    """Returns the Transformer."""
    from towers.models.transformer import Transformer

    return Transformer(
        vocabulary_size,
        size=fields.hidden_size,
        heads=fields.heads,
        feed_forward_size=fields.feed_forward_size,
        encoder_layers=fields.encoder_layers,
        decoder_layers=fields.decoder_layers,
        tied_output=fields.tied_output,
        dropout_rate=fields.dropout_rate,
        padding_id=SPECIAL_IDS.padding,
    )


NETWORKS = {"recurrent": make_recurrent, "transformer": make_transformer}


def make_tower_fn(fields: Fields, model: keras.Model, training: bool) -> Any:
    """Returns the tower function, whose weight is the number of answer tokens."""
    from towers.models import answering

    smoothing = fields.label_smoothing if training else 0.0
    return answering.answering(
        model,
        training=training,
        label_smoothing=smoothing,
        start_id=SPECIAL_IDS.start,
        unknown_id=SPECIAL_IDS.unknown,
    )


def derive_metrics(metrics: dict[str, float], data: Data) -> dict[str, float]:
    """Returns the perplexities; that per character compares vocabularies with each other.

    That of unigrams is of answers.
    """
    tokens_per_character = metrics["examples"] / data.test.source.num_characters
    perplexities = {
        "perplexity": perplexity(metrics["loss"]),
        "character_perplexity": perplexity(metrics["loss"] * tokens_per_character),
    }
    if data.test.source.direction != "backward":
        perplexities["unigram_perplexity"] = data.corpus.unigram_perplexity
    return perplexities


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
    ids: dict[str, Any] = {
        "special_ids": SPECIAL_IDS,
        "max_question_length": fields.max_question_length,
    }
    return ChatEvaluator(
        Answerer(model, data.text, decoding, **ids),
        AnswerRanker(model, data.text, **ids),
        data.corpus,
        fields.language,
        fields.exam_questions,
        unknown_id=UNKNOWN,
    )


def load_text(folder: Path) -> TextCodec:
    """Returns the vocabulary and the text settings that a run saved."""
    from towers.data.text import TextCodec

    return TextCodec.load(folder)


RECIPE = Recipe(
    name="chatbot",
    fields=Fields(
        batch_size=64,
        epochs=14,
        learning_rate=4e-3,
        schedule="cosine",
        warmup_steps=100,
        clip_norm=5.0,
    ),
    takes_files=True,
    best_metric="perplexity",
    maximize=False,
    unit="tokens",
    special_ids=SPECIAL_IDS,
    make_data=make_data,
    make_model=make_model,
    initialize=initialize,
    make_tower_fn=make_tower_fn,
    derive_metrics=derive_metrics,
    prepare=prepare,
    load_text=load_text,
    make_answer_evaluator=make_answer_evaluator,
)
