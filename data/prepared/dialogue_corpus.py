"""Prepared dialogues: turns as ids, the pairs of question and answer in them, and their counts."""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from towers.data.prepared.corpus import Corpus
from towers.data.text import TextCodec
from towers.ground.arguments import check_choice
from towers.ground.special_ids import END, UNKNOWN

PARTS = ("train", "held_out")
SAMPLED, NUM_COMMON, LEAST_SHARE = 100_000, 3, 0.02  # Answers that are named are so common.
CONTEXT_SHARE = 0.01  # A network learns nothing of fewer questions.
UNKNOWN_WORDS = "unknown_words.json"


class DialogueCorpus(Corpus[TextCodec]):
    """Prepared dialogues; the other attributes are those of `Corpus`.

    Attributes:
        unknown_rate: the fraction of unknown ids in the held-out turns.
        tokens: unsigned integers, all turns one after the other, a SEPARATOR after each that is
            not empty, so that a question of several turns is a slice. With a vocabulary that
            copies, the ids after its own are those of `unknown_words`.
        offsets: int64 [num_turns + 1], where each turn begins in `tokens`.
        characters: uint32 [num_turns], without blanks.
        train_pairs, held_out_pairs: int32 [n, 2], the first turn of the question and the turn of
            the answer; the question is all turns between.
        unigram_counts: int64 [vocabulary], of the tokens of the training answers with their END.
    """

    codec_class = TextCodec

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.unknown_rate: float = self.facts["unknown_rate"]
        self.tokens, self.offsets, self.characters, self.unigram_counts = map(
            self.array, ("tokens", "offsets", "characters", "unigram_counts")
        )
        self.train_pairs, self.held_out_pairs = (self.array(f"{part}_pairs") for part in PARTS)

    @functools.cached_property
    def unknown_words(self) -> list[str]:
        """The words that a vocabulary with copies does not have, in the order of their ids."""
        return json.loads((self.folder / UNKNOWN_WORDS).read_text(encoding="utf-8"))

    def pairs(self, part: str) -> np.ndarray:
        """Returns the pairs of `train` or `held_out`."""
        check_choice("part", part, PARTS)
        return self.train_pairs if part == "train" else self.held_out_pairs

    @functools.cached_property
    def context(self) -> int:
        """How many earlier turns one in a hundred training questions has, or more of them."""
        earlier = np.diff(self.train_pairs)[:, 0] - 1
        return int(np.quantile(earlier, 1 - CONTEXT_SHARE, method="higher"))

    def examples(self, number: int) -> list[dict[str, Any]]:
        """Returns the first training pairs as a model sees them: `question` and `answer`."""
        found = map(self.texts, self.train_pairs[:number])
        return [{"question": question, "answer": answer} for question, answer in found]

    def remarks(self, fields: Any) -> list[str]:
        """Returns what a training should know: how many answers are too long, and very common ones.

        Args:
            fields: of the recipe; `max_answer_length` counts.
        """
        pairs = self.train_pairs[:: max(1, len(self.train_pairs) // SAMPLED)]
        starts, stops = self.offsets[pairs[:, 1]], self.offsets[pairs[:, 1] + 1]
        is_long = stops - starts > fields.max_answer_length  # A separator counts as the end.
        found = []
        if is_long.any():
            found.append(
                f"{is_long.mean():.0%} of the answers are longer than "
                f"max_answer_length={fields.max_answer_length}: a training leaves them out"
            )
        answers = (
            self.tokens[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)
        )
        common, size = Counter(answers).most_common(NUM_COMMON), len(self.text.vocabulary)
        shares = {content: number / len(pairs) for content, number in common if number > 1}
        shown = [
            f"{self.text.decode(np.frombuffer(content, self.tokens.dtype).tolist())!r} {share:.0%}"
            for content, share in shares.items()
            if share >= LEAST_SHARE and np.frombuffer(content, self.tokens.dtype).max() < size
        ]
        return [*found, *([f"the commonest answers: {', '.join(shown)}"] if shown else [])]

    def texts(self, pair: Sequence[int]) -> tuple[list[str], str]:
        """Returns the turns of a pair's question, and its answer, as the vocabulary spells them."""
        first, answer = (int(number) for number in pair)
        question = [text for turn in range(first, answer) if (text := self._turn(turn))]
        return question, self._turn(answer)

    def _turn(self, turn: int) -> str:
        start, stop = self.offsets[turn], self.offsets[turn + 1]
        ids = self.tokens[start : max(start, stop - 1)].tolist()
        size = len(self.text.vocabulary)
        if not any(one >= size for one in ids):
            return self.text.decode(ids)
        tokens = [
            [self.unknown_words[one - size]] if one >= size else self.text.vocabulary.tokens([one])
            for one in ids
        ]
        return self.text.detokenise([token for part in tokens for token in part])

    @functools.cached_property
    def target_counts(self) -> np.ndarray:
        """How often each id is a target in the training answers, float64 [vocabulary].

        UNKNOWN never is. Only a batch tells which unknown words its answers copy: here the copies
        share all of them.
        """
        counts = np.array(self.unigram_counts, np.float64)
        copies = self.text.vocabulary.copies
        counts[copies.start : copies.stop] = counts[UNKNOWN] / max(len(copies), 1)
        counts[UNKNOWN] = 0
        return counts

    @functools.cached_property
    def unigram_perplexity(self) -> float:
        """The perplexity of a unigram model on the held-out answers.

        Its probabilities are the frequencies in the training answers with one added to each count.
        UNKNOWN is left out, as in the perplexity of a trained model, and so are copied words.
        """
        counts = np.asarray(self.unigram_counts, np.float64) + 1
        counts[UNKNOWN] = 0
        with np.errstate(divide="ignore"):
            log_probabilities = np.log(counts / counts.sum())
        turns = np.asarray(self.held_out_pairs[:, 1])
        answers = [self.tokens[self.offsets[turn] : self.offsets[turn + 1] - 1] for turn in turns]
        tokens = np.concatenate(answers).astype(np.int64)
        tokens = tokens[(tokens != UNKNOWN) & (tokens < len(counts))]
        total = log_probabilities[tokens].sum() + len(turns) * log_probabilities[END]
        return math.exp(-total / (len(tokens) + len(turns)))
