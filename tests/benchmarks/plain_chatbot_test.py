"""A plain Keras seq2seq model trains on the pairs of the recipe chatbot, and is judged as a run."""

import json

import keras
import numpy as np
import pytest

from benchmarks.plain_chatbot import PlainSeq2Seq
from tests.benchmarks.commands import refuse, write_output
from tests.programs import exit_code
from towers.models.answering import decoder_inputs


def test_token_by_token_it_has_the_logits_of_the_whole_answer():
    keras.utils.set_random_seed(0)
    model = PlainSeq2Seq(30, 8)
    question = np.array([[5, 6, 7, 0], [8, 9, 10, 11]], np.int32)
    inputs = decoder_inputs(np.array([[12, 13, 14], [15, 16, 17]], np.int32))
    logits = model((question, inputs))
    state = model.start(question)
    for index in range(3):
        found, state = model.step(inputs[:, index], state)
        np.testing.assert_allclose(found, logits[:, index], atol=1e-6)


@pytest.mark.slow
def test_it_trains_within_its_time_and_is_judged(tmp_path):
    file = tmp_path / "results.jsonl"
    command = ["plain", "chatbot", "--language", "en", "--minutes", "0.2", "--results", str(file)]
    command += ["--set", "hidden_size=32", "--set", "exam_questions=20"]
    assert exit_code(write_output, tmp_path / "output.txt", command) == 0
    found = json.loads(file.read_text())["results"]
    assert found["asked"] <= 20
    assert 1 < found["perplexity"] < 200
    assert 0 <= found["hits_1_10"] <= 1


def test_another_recipe_is_refused(capsys):
    assert "Received mnist" in refuse(["plain", "mnist"], capsys)
