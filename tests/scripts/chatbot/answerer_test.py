"""An answer repeats the unknown words of its own question, and no other."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from towers.data.text import TextCodec, TextSettings, Vocabulary
from towers.data.text.vocabulary import Unit
from towers.ground.special_ids import START
from towers.models.decoding import Decoding
from towers.models.seq2seq import Seq2Seq
from towers.scripts.chatbot.answerer import Answerer, copying, decode_questions

TEXT = TextCodec(TextSettings("en"), Vocabulary(map(Unit, ["say", "and", "."]), 4))
QUESTIONS = [["say Zorvik and Mimba."], ["say Tuk."], ["say."], ["Tuk", "Tuk", "say Una."]]
WAYS = {
    "greedy": Decoding(max_length=8),
    "beam": Decoding(max_length=8, beam_size=6, n_best=6),
    "samples": Decoding(max_length=8, n_best=12, temperature=9.0),
}


@pytest.fixture
def model():
    return make_model()


def make_model():
    """Returns a model that says whatever it may, above all copies."""
    keras.utils.set_random_seed(5)
    model = Seq2Seq(len(TEXT.vocabulary), embedding_size=6, hidden_size=8)
    copies = TEXT.vocabulary.copies
    bias = np.where(np.isin(np.arange(len(TEXT.vocabulary)), copies), 3.0, 0.0)
    model.projection.bias.assign(bias)
    return model


@pytest.mark.parametrize("way", WAYS)
def test_only_words_of_the_question_are_copied(model, way):
    answerer = Answerer(model, TEXT, WAYS[way], 20)
    for question, answers in zip(QUESTIONS, answerer.answer(QUESTIONS), strict=True):
        said = {token for answer in answers for token in answer.tokens}
        unknown = set(TEXT.encode_question(question).copied)
        assert said <= {"say", "and", "."} | unknown
        assert said & unknown or not unknown
        for answer in answers:
            assert all(word in answer.text for word in unknown & set(answer.tokens))


@pytest.mark.parametrize("policy", ["float64", "mixed_float16", "mixed_bfloat16"])
def test_words_are_copied_in_every_precision(policy):
    keras.config.set_dtype_policy(policy)
    (answer,) = Answerer(make_model(), TEXT, WAYS["greedy"], 20).answer(QUESTIONS[1:2])
    assert {*answer[0].tokens} <= {"say", "and", ".", "Tuk"}


def test_the_other_logits_are_those_of_the_model(model):
    questions = tf.constant([TEXT.encode_question(QUESTIONS[1]).ids])
    step, state = copying(model, questions, TEXT.vocabulary.copies)
    tokens = tf.constant([START])
    logits, _ = step(tokens, state)
    expected, _ = model.step(tokens, model.start(questions))
    first, *missing = TEXT.vocabulary.copies
    assert np.all(np.isneginf(logits.numpy()[0, missing]))
    kept = [one for one in range(len(TEXT.vocabulary)) if one not in missing]
    assert first in kept
    np.testing.assert_array_equal(logits.numpy()[0, kept], expected.numpy()[0, kept])


def test_a_vocabulary_without_copies_leaves_the_model_as_it_is(model):
    step, state = copying(model, tf.constant([[11]]), range(0))
    assert step == model.step and state.memory.mask.shape == (1, 1)


@pytest.mark.parametrize("way", WAYS)
def test_no_loop_reads_a_variable_for_every_token(model, way):
    """Where variables are on another device than the loop, each read is a copy."""
    answer = decode_questions(model, WAYS[way], TEXT.vocabulary)
    functions = answer.get_concrete_function().graph.as_graph_def().library.function
    bodies = [function for function in functions if "while_body" in function.signature.name]
    assert bodies
    types = [node.attr["dtype"].type for body in bodies for node in body.node_def
             if node.op in ("ReadVariableOp", "ResourceGather")]  # fmt: skip
    assert types == []


def test_a_graph_that_is_no_longer_needed_is_forgotten(model):
    def num_graphs():
        gc.collect()
        return sum(isinstance(one, FuncGraph) for one in gc.get_objects())

    numbers = []
    for number in range(3):
        decoding = Decoding(max_length=2, temperature=1.0 + number)
        answerer = Answerer(model, TEXT, decoding, 20)
        answerer.answer(QUESTIONS[:1])
        numbers.append(num_graphs())
    assert len(set(numbers[1:])) == 1, numbers
