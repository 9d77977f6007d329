"""Batches of question-answer pairs: similar lengths, a token budget, balanced for any towers."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from towers.data.batches.buckets import balanced_order, fitted_layout, fixed_layout, num_tokens
from towers.data.prepared.dialogue_corpus import DialogueCorpus
from towers.data.text import Vocabulary
from towers.ground.arguments import check_at_least, check_choice
from towers.ground.epochs import Batch, Epochs, Layout, assembled
from towers.ground.random_numbers import REPEATS_STREAM, permutation
from towers.ground.special_ids import END, PAD, UNKNOWN

DIRECTIONS = ("forward", "backward", "answers")
_BLOCK_PAIRS = 1 << 20


def pair_batches(
    corpus: DialogueCorpus,
    part: str,
    *,
    batch_tokens: int,
    batch_size: int,
    max_question_length: int,
    max_answer_length: int,
    max_answer_repeats: int = 0,
    direction: str = "forward",
    seed: int = 0,
    shuffle: bool = True,
    fixed_shapes: bool = False,
) -> Epochs:
    """Returns the batches over the pairs of a part; their source is `Pairs`.

    A batch is (question: int32 [rows, question_length], answer: int32 [rows, answer_length]),
    padded with 0 at the end; answers end with END. With a vocabulary that copies, the unknown words
    of each pair are numbered by `number_unknown`.

    Args:
        corpus: the prepared corpus.
        part: `train` or `held_out`.
        batch_tokens: maximum number of ids in a batch, of questions and answers, padding
            included; a pair that is longer by itself is a batch of its own.
        batch_size: maximum number of pairs in a batch.
        max_question_length: longer questions lose their first ids.
        max_answer_length: pairs whose answer, with its END, is longer are left out.
        max_answer_repeats: training pairs whose answer occurs more often are left out beyond this
            number, the same ones for every seed; 0 keeps all. The held-out part keeps all.
        direction: forward, backward or answers, as in `slices_of`; what is written takes the place
            of the answer.
        seed: of the order.
        shuffle: whether each epoch has its own order; otherwise it goes from short to long.
        fixed_shapes: whether batches have a few shapes only (at most 16), as compiled towers
            need; there is more padding then, and a batch may lack a row: it is a repeated
            question whose answer is all padding.

    Raises:
        ValueError: a limit is below 1, a number is negative, or no pair is left.
    """
    import tensorflow as tf  # Not at the top: a corpus is prepared without TensorFlow.

    check_at_least(
        1,
        batch_tokens=batch_tokens,
        batch_size=batch_size,
        max_question_length=max_question_length,
        max_answer_length=max_answer_length,
    )
    check_at_least(0, max_answer_repeats=max_answer_repeats)
    check_choice("direction", direction, DIRECTIONS)
    pairs = np.asarray(corpus.pairs(part))
    read, written = _lengths_of(corpus, pairs, direction)
    kept = written <= max_answer_length
    if not kept.any():
        raise ValueError(
            f"No pair of the {part} part has an answer of at most {max_answer_length} tokens. "
            "Raise max_answer_length."
        )
    pairs, read, written, left_out = *_chosen(kept, pairs, read, written), int(np.sum(~kept))
    num_repeated = 0
    if part == "train" and max_answer_repeats:
        kept = _within_repeats(corpus, _written_turns(pairs, direction), max_answer_repeats)
        pairs, read, written = _chosen(kept, pairs, read, written)
        num_repeated = int(np.sum(~kept))
    read = np.minimum(read, max_question_length)
    make_layout = fixed_layout if fixed_shapes else fitted_layout
    layout = make_layout(read, written, batch_tokens=batch_tokens, batch_size=batch_size)
    source = Pairs(corpus, pairs, direction, read, written, layout, left_out, num_repeated)
    load = assembled(source.assemble, (tf.TensorSpec([None, None], tf.int32),) * 2)
    return Epochs(load, layout, len(pairs), seed, shuffle, source)


def _chosen(kept: np.ndarray, *arrays: np.ndarray) -> Iterator[np.ndarray]:
    return (array if kept.all() else array[kept] for array in arrays)


@dataclasses.dataclass(frozen=True, eq=False)
class Pairs:
    """The pairs of `pair_batches`, and how a batch of them is made.

    Attributes:
        corpus: the prepared corpus.
        pairs: int32 [n, 2], the pairs in use.
        direction: as given.
        read, written: int32 [n], the numbers of their ids that are read and written.
        layout: which pairs share a batch.
        left_out: number of pairs whose answer is too long.
        num_repeated: number of pairs left out because their answer occurs too often.
    """

    corpus: DialogueCorpus
    pairs: np.ndarray
    direction: str
    read: np.ndarray
    written: np.ndarray
    layout: Layout
    left_out: int
    num_repeated: int = 0

    @functools.cached_property
    def num_characters(self) -> int:
        """The number of characters that are written, the end of each text counted as one."""
        turns = _written_turns(self.pairs, self.direction)
        return int(self.corpus.characters[turns].sum()) + len(turns)

    @property
    def padding_fraction(self) -> float:
        """The fraction of padding among the ids of an epoch."""
        used = int(self.read.sum() + self.written.sum())
        return 1 - used / num_tokens(self.layout.shapes)

    @property
    def summary(self) -> str:
        """One line about an epoch."""
        reasons = {
            "longer answers (max_answer_length)": self.left_out,
            "answers repeated too often (max_answer_repeats)": self.num_repeated,
        }
        left_out = ", ".join(f"{count:,} with {why}" for why, count in reasons.items() if count)
        return (
            f"{len(self.pairs):,} pairs in {self.layout.num_batches:,} batches, "
            f"{self.padding_fraction:.1%} of the tokens are padding"
            f"{f'; left out: {left_out}' if left_out else ''}"
        )

    def assemble(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Returns the questions and the answers of a batch, its rows balanced for any towers."""
        num_rows, question_length, answer_length = self.layout.shapes[batch.number]
        pairs = batch.rows
        pairs = pairs[np.argsort(self.read[pairs] + self.written[pairs], kind="stable")]
        num_missing = num_rows - len(pairs)
        rows = np.concatenate([pairs[:1].repeat(num_missing), pairs])
        order = balanced_order(int(num_rows))[batch.chosen]
        rows, counts = rows[order], order >= num_missing

        (_, ends), (starts, stops) = slices_of(self.corpus, self.pairs[rows], self.direction)
        question = self._slices(ends - self.read[rows], ends, question_length)
        answer = self._slices(starts, stops, answer_length)
        answer[np.arange(len(rows)), self.written[rows] - 1] = END
        if self.direction == "answers":
            question[:] = UNKNOWN
        answer[~counts] = PAD
        vocabulary = self.corpus.text.vocabulary
        if vocabulary.copies:
            question, answer = number_unknown(question, answer, vocabulary)
        return question, answer

    def _slices(self, starts: np.ndarray, ends: np.ndarray, length: int) -> np.ndarray:
        """Returns slices of the tokens as int32 [n, length], padded."""
        indices = starts[:, None] + np.arange(length)
        inside = indices < ends[:, None]
        tokens = self.corpus.tokens[np.where(inside, indices, starts[:, None])]
        return np.where(inside, tokens, PAD).astype(np.int32)


def number_unknown(
    questions: np.ndarray, answers: np.ndarray, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Returns questions and answers in which no id is outside of the vocabulary.

    In each row the first unknown word of the question becomes the first copy, the second the second
    one, and so on, wherever it occurs in the question or in the answer. Unknown words of an answer
    that are not in its question become UNKNOWN, and so does what exceeds the number of copies.

    Args:
        questions: int32 [rows, question_length], with an id of its own for each unknown word.
        answers: int32 [rows, answer_length], with the same ids.
        vocabulary: with copies.
    """
    size = len(vocabulary)
    is_unknown = questions >= size
    if not is_unknown.any():
        return questions, np.where(answers < size, answers, UNKNOWN)
    firsts = np.argmax(questions[:, :, None] == questions[:, None, :], axis=2)
    is_first = is_unknown & (firsts == np.arange(questions.shape[1]))
    numbers = np.take_along_axis(np.cumsum(is_first, axis=1) - 1, firsts, axis=1)
    copies = vocabulary.copies.start + numbers
    copies = np.where(numbers < len(vocabulary.copies), copies, UNKNOWN).astype(questions.dtype)
    same = answers[:, :, None] == questions[:, None, :]
    copied = np.take_along_axis(copies, np.argmax(same, axis=2), axis=1)
    copied = np.where(same.any(axis=2), copied, UNKNOWN)
    return np.where(is_unknown, copies, questions), np.where(answers < size, answers, copied)


def slices_of(
    corpus: DialogueCorpus, pairs: np.ndarray, direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the starts and ends, in the corpus's tokens, of what is read and written of pairs.

    - forward: the question with its earlier turns is read, the answer is written.
    - backward: the answer is read, the last turn of the question is written.
    - answers: one UNKNOWN is read, whose position in the slices is that of the answer's SEPARATOR,
      and the answer is written: a language model of answers.

    The second direction and the third are for models that rerank answers by their mutual
    information with the question (Li et al. 2016, "A Diversity-Promoting Objective Function for
    Neural Conversation Models").

    Pairs are int [n, 2], as in `DialogueCorpus.pairs`; read and written are int64 [2, n], the
    latter with the place of END.
    """
    offsets, (firsts, answers) = corpus.offsets, pairs.T
    # A SEPARATOR follows every turn. It is not read, and END takes its place in what is written.
    read = {
        "forward": (offsets[firsts], offsets[answers] - 1),
        "backward": (offsets[answers], offsets[answers + 1] - 1),
        "answers": (offsets[answers + 1] - 1, offsets[answers + 1]),
    }
    turns = _written_turns(pairs, direction)
    return np.stack(read[direction]), np.stack([offsets[turns], offsets[turns + 1]])


def _lengths_of(corpus: DialogueCorpus, pairs: np.ndarray, direction: str) -> np.ndarray:
    """Returns the numbers of ids that are read and written of each pair, int32 [2, n].

    Few slices are in memory at a time.
    """
    lengths = np.empty([2, len(pairs)], np.int32)
    for start in range(0, len(pairs), _BLOCK_PAIRS):
        block = slice(start, start + _BLOCK_PAIRS)
        slices = slices_of(corpus, pairs[block], direction)
        lengths[:, block] = [stops - starts for starts, stops in slices]
    return lengths


def _written_turns(pairs: np.ndarray, direction: str) -> np.ndarray:
    """Returns the turn of each pair that is written, int [n]."""
    return pairs[:, 1] - (direction == "backward")


def _within_repeats(corpus: DialogueCorpus, answers: np.ndarray, most: int) -> np.ndarray:
    """Returns bool [n]: which pairs stay so that no answer, given by its turn, occurs more often.

    Answers are the same if they differ in punctuation, in capital letters, or in how often a word
    is said in a row. Which of them stay is a function of the answers alone: the first in a fixed
    random order, so that they come from everywhere in the corpus, and are the same ones for every
    seed of a run.
    """
    stays = np.zeros(len(answers), bool)
    seen: collections.Counter[bytes] = collections.Counter()
    tokens, offsets = np.asarray(corpus.tokens), np.asarray(corpus.offsets)
    same = _same_ids(corpus)
    for index in permutation(len(answers), seed=0, epoch=0, stream=REPEATS_STREAM):
        turn = answers[index]
        answer = _essence(tokens[offsets[turn] : offsets[turn + 1]], same)
        stays[index] = seen[answer] < most
        seen[answer] += 1
    return stays


def _same_ids(corpus: DialogueCorpus) -> np.ndarray:
    """Returns for each id of a corpus the first one of the same letters, -1 for one without."""
    vocabulary = corpus.text.vocabulary
    texts = ("".join(vocabulary.tokens([number])) for number in range(len(vocabulary)))
    words = [*texts, *corpus.unknown_words]  # Special ids have no text.
    first: dict[str, int] = {}
    folded = ("".join(filter(str.isalnum, word.casefold())) for word in words)
    return np.array(
        [first.setdefault(word, number) if word else -1 for number, word in enumerate(folded)],
        np.int64,
    )


def _essence(answer: np.ndarray, same: np.ndarray) -> bytes:
    """Returns what is compared of an answer; all of its ids if no word is among them."""
    ids = same[answer]
    ids = ids[ids >= 0]
    if not len(ids):
        return answer.tobytes()
    return ids[np.concatenate([[True], ids[1:] != ids[:-1]])].tobytes()
