"""Decoding against plain loops and exhaustive search over a toy vocabulary, in NumPy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from towers.models.decoding import Decoding, decode
from towers.models.decoding.rules import completes_ngram
from towers.models.decoding.sampling import truncate

VOCABULARY, START, END, FORBIDDEN = 6, 1, 2, (0, 1)
WORDS = [3, 4, 5]


class Toy:
    """A model whose logits depend on all that was generated: a random recurrent net of 4 units."""

    def __init__(self, seed=0, sharpness=2.0):
        random = np.random.default_rng(seed)
        self.table = random.normal(size=(VOCABULARY, 4)).astype(np.float32)
        self.recurrent = random.normal(size=(4, 4)).astype(np.float32)
        self.output = sharpness * random.normal(size=(4, VOCABULARY)).astype(np.float32)

    def begin(self, batch):
        return np.linspace(-1, 1, batch * 4, dtype=np.float32).reshape(batch, 4)

    def step(self, tokens, state):
        state = tf.tanh(tf.gather(self.table, tokens) + tf.matmul(state, self.recurrent))
        return tf.matmul(state, self.output), state

    def logits(self, row, sequence):
        """Returns the logits after `sequence` for one row of `begin(3)`, in NumPy."""
        state = self.begin(3)[row]
        for token in (START, *sequence):
            state = np.tanh(self.table[token] + state @ self.recurrent)
        return state @ self.output


def log_probabilities(logits, barred):
    logits = np.where(np.isin(np.arange(VOCABULARY), list(barred)), -np.inf, logits)
    return logits - np.logaddexp.reduce(logits)


def repeats_ngram(sequence, size):
    grams = [tuple(sequence[i : i + size]) for i in range(len(sequence) - size + 1)]
    return len(set(grams)) < len(grams)


def every_sequence(toy, row, options):
    """Returns {sequence: penalised log probability} of all that decoding may return."""
    found = {}
    for length in range(options.max_length + 1):
        for words in itertools.product(WORDS, repeat=length):
            for sequence in {(*words, END), words}:
                if len(sequence) > options.max_length:
                    continue
                if sequence[-1:] != (END,) and len(sequence) < options.max_length:
                    continue  # Only what is cut at the end does without the end token.
                score = score_of(toy, row, sequence, options)
                if score is not None:
                    penalty = ((5 + len(sequence)) / 6) ** options.length_penalty
                    found[sequence] = score / penalty
    return found


def score_of(toy, row, sequence, options):
    """Returns the log probability of a sequence, or None if it breaks a rule."""
    total = 0.0
    for place, token in enumerate(sequence):
        said = list(sequence[:place])
        barred = set(FORBIDDEN)
        size = options.no_repeat_ngram
        if size is not None:
            again = {w for w in [*WORDS, END] if repeats_ngram([*said, w], size)}
            if len(again | barred) < VOCABULARY:
                barred |= again
        if token in barred:
            return None
        logits = toy.logits(row, said)
        if options.repetition_penalty != 1:
            factor = options.repetition_penalty
            hit = np.isin(np.arange(VOCABULARY), said)
            logits = np.where(hit, np.where(logits > 0, logits / factor, logits * factor), logits)
        total += log_probabilities(logits, barred)[token]
    return total


def run(toy, options, batch=3, seed=(0, 0), **ids):
    @tf.function
    def graph(state):
        return decode(
            toy.step, state, options, start=START, end=END, forbidden=FORBIDDEN,
            batch_size=tf.shape(state)[0], seed=tf.constant(seed, tf.int64), **ids,
        )  # fmt: skip

    return graph(tf.constant(toy.begin(3)[:batch]))


def sequences(decoded, row):
    ids, lengths = decoded.ids[row].numpy(), decoded.lengths[row].numpy()
    return [tuple(one[:length].tolist()) for one, length in zip(ids, lengths, strict=True)]


RULES = [
    {},
    {"length_penalty": 0.0},
    {"length_penalty": 2.0},
    {"no_repeat_ngram": 1},
    {"no_repeat_ngram": 2},
    {"repetition_penalty": 1.5},
    {"max_length": 1},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_a_wide_beam_finds_the_best_of_all_sequences(rules, seed):
    options = Decoding(**{"max_length": 4, "beam_size": 200, "n_best": 3, **rules})
    toy = Toy(seed)
    decoded = run(toy, options)
    for row in range(3):
        expected = every_sequence(toy, row, options)
        best = sorted(expected, key=expected.get, reverse=True)[:3]
        assert sequences(decoded, row)[: len(best)] == best
        scores = [expected[one] for one in best]
        np.testing.assert_allclose(decoded.scores[row][: len(best)], scores, rtol=1e-5)
        assert np.all(np.isneginf(decoded.scores[row][len(best) :]))


@pytest.mark.parametrize("rules", RULES[3:], ids=str)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_greedy_takes_the_likeliest_token_each_time(rules, seed):
    toy, options = Toy(seed), Decoding(**{"max_length": 6, **rules})
    decoded = run(toy, options)
    for row in range(3):
        said = []
        while len(said) < options.max_length and said[-1:] != [END]:
            scores = {w: score_of(toy, row, [*said, w], options) for w in [*WORDS, END]}
            said.append(max((w for w in scores if scores[w] is not None), key=scores.get))
        assert sequences(decoded, row) == [tuple(said)]
        expected = score_of(toy, row, said, options)
        np.testing.assert_allclose(decoded.scores[row], [expected], rtol=1e-5)


@pytest.mark.parametrize(
    "seed", [*(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4)), 4]
)
def test_a_beam_follows_the_likeliest_beginnings(seed):
    """A narrow beam against the same search in plain Python."""
    toy, options = Toy(seed), Decoding(beam_size=2, n_best=2, max_length=5, length_penalty=1.0)
    decoded = run(toy, options)
    for row in range(3):
        opened, finished = [()], {}
        for _ in range(options.max_length):
            grown = {}
            for one in opened:
                for word in [*WORDS, END]:
                    grown[(*one, word)] = score_of(toy, row, (*one, word), options)
            for one in [one for one in grown if one[-1] == END]:
                finished[one] = grown.pop(one) / ((5 + len(one)) / 6)
            opened = sorted(grown, key=grown.get, reverse=True)[:2]
        for one in opened:
            finished[one] = grown[one] / ((5 + len(one)) / 6)
        best = sorted(finished, key=finished.get, reverse=True)[:2]
        assert sequences(decoded, row) == best


def test_a_batch_is_decoded_as_its_rows_are():
    toy = Toy(3)
    for options in (Decoding(max_length=6), Decoding(max_length=6, beam_size=3, n_best=2)):
        together, alone = run(toy, options), run(toy, options, batch=1)
        assert sequences(together, 0) == sequences(alone, 0)


def test_a_row_that_has_ended_says_no_more():
    decoded = run(Toy(1), Decoding(max_length=8))
    for row in decoded.ids[:, 0].numpy().tolist():
        if END in row:
            assert not any(row[row.index(END) + 1 :])


def test_samples_follow_the_probabilities():
    """Chi square of the first token over 4000 samples; 13.8 is exceeded once in a thousand."""
    toy = Toy(0, sharpness=0.7)
    drawn = run(toy, Decoding(temperature=1.0, n_best=4000, max_length=2), batch=1)
    counts = np.bincount(drawn.ids[0, :, 0].numpy(), minlength=VOCABULARY)
    expected = 4000 * np.exp(log_probabilities(toy.logits(0, []), FORBIDDEN))
    assert counts[0] == counts[1] == 0
    assert np.sum((counts[2:] - expected[2:]) ** 2 / expected[2:]) < 16.3


def test_the_same_seed_gives_the_same_samples():
    toy, options = Toy(0, sharpness=0.5), Decoding(top_p=0.9, max_length=10)
    first, again, other = (run(toy, options, seed=seed) for seed in [(1, 2), (1, 2), (1, 3)])
    assert sequences(first, 0) == sequences(again, 0)
    assert any(sequences(first, row) != sequences(other, row) for row in range(3))


def test_truncation_keeps_the_likeliest():
    logits = np.log(np.array([[0.5, 0.1, 0.25, 0.15]], np.float32))
    kept = lambda **limits: np.isfinite(truncate(tf.constant(logits), **limits)).tolist()  # noqa: E731
    assert kept(top_k=2, top_p=None) == [[True, False, True, False]]
    assert kept(top_k=9, top_p=None) == [[True] * 4]
    assert kept(top_k=None, top_p=0.5) == [[True, False, False, False]]
    assert kept(top_k=None, top_p=0.51) == [[True, False, True, False]]
    assert kept(top_k=None, top_p=1.0) == [[True] * 4]
    assert kept(top_k=3, top_p=0.8) == [[True, False, True, False]]


def test_repeated_n_grams_are_found():
    said = tf.constant([[3, 4, 3, 4, 0], [3, 3, 4, 5, 0]])
    assert np.flatnonzero(completes_ngram(said, tf.constant(4), 2, 6)[0]).tolist() == [3]
    assert np.flatnonzero(completes_ngram(said, tf.constant(4), 2, 6)[1]).tolist() == []
    assert np.flatnonzero(completes_ngram(said, tf.constant(3), 2, 6)[0]).tolist() == [4]
    assert np.flatnonzero(completes_ngram(said, tf.constant(2), 1, 6)[1]).tolist() == [3]


def test_decoding_works_in_a_saved_model(tmp_path):
    toy, module = Toy(2), tf.Module()
    options = Decoding(beam_size=3, max_length=5)
    module.answer = tf.function(
        lambda state: decode(
            toy.step, state, options, start=START, end=END, forbidden=FORBIDDEN,
            batch_size=tf.shape(state)[0], seed=tf.zeros([2], tf.int64),
        ),
        input_signature=[tf.TensorSpec([None, 4], tf.float32)],
    )  # fmt: skip
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path)).answer(tf.constant(toy.begin(3)))
    np.testing.assert_array_equal(loaded.ids, run(toy, options).ids)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam_size": 0}, "beam_size must be a whole number of at least 1"),
        ({"n_best": 2}, "n_best must be at most beam_size"),
        ({"beam_size": 2, "top_k": 5}, "cannot be combined"),
        ({"temperature": 0.0}, "temperature must be from"),
        ({"temperature": "hot"}, r"temperature must be from 1e-30 to 1e\+30\. Received 'hot'"),
        ({"top_p": "0.9"}, r"top_p must be above 0 and at most 1\. Received '0\.9'"),
        ({"temperature": 1e-38}, "from 1e-30"),
        ({"top_p": 1.5}, "top_p must be above 0 and at most 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0"),
        ({"length_penalty": -1.0}, "length_penalty must not be negative"),
    ],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Decoding(**wrong)
