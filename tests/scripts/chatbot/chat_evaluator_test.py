"""The evaluation of a chatbot's answers: with few held-out answers, and with enough."""

import pytest

from towers.data.prepared import DialoguePreparation, prepare_dialogues
from towers.data.text import TextSettings
from towers.scripts.chatbot.answerer import Answer
from towers.scripts.recipes.chatbot import RECIPE, make_answer_evaluator, make_model
from towers.scripts.training.catalogue import with_fields
from towers.scripts.training.recipe import Data


def make_evaluator(folder, num_answers, **values):
    """Returns the evaluator of an untrained chatbot with so many held-out pairs."""
    dialogues = [[f"say w{number}", f"w{number} ."] for number in range(num_answers)]
    settings = DialoguePreparation(TextSettings("en", tokenizer="spaces"))
    corpus = prepare_dialogues(dialogues, dialogues, settings, folder, write=lambda line: None)
    fields = with_fields(RECIPE, {"embedding_size": 4, "hidden_size": 4, **values}).fields
    data = Data(None, None, corpus.text, corpus)
    return make_answer_evaluator(fields, make_model(fields, data), data)


@pytest.mark.parametrize(("num_answers", "limit"), [(10, 4), (7, 7), (3, 1)])
def test_questions_to_tune_with_are_not_asked(tmp_path, num_answers, limit):
    evaluator = make_evaluator(tmp_path, num_answers, exam_questions=limit)
    evaluator.answerer = Silent()
    others = evaluator.exchanges_to_tune()
    asked = evaluator._exchanges(evaluator.num_questions)
    said = [one.reference for one in (*asked, *others)]
    assert len(set(said)) == len(said)
    assert 0 < len(asked) <= limit and 0 < len(others) <= limit


@pytest.mark.parametrize(("limit", "asked"), [(1000, 5), (10, 5), (3, 3)])
def test_half_of_the_questions_are_left_to_tune_with(tmp_path, limit, asked):
    evaluator = make_evaluator(tmp_path, 10, exam_questions=limit)
    evaluator.answerer = Silent()
    others = evaluator.exchanges_to_tune()
    assert evaluator.evaluate([].append)["asked"] == asked
    assert len(others) >= min(asked, 3)


class Silent:
    """A chatbot without a model."""

    def answer(self, questions, *, seed=0):
        return [[Answer("", [], 0.0)] for _ in questions]


@pytest.mark.parametrize("num_answers", [9, 10])
def test_hits_are_reported_or_the_reason_why_not(tmp_path, num_answers):
    written = []
    evaluator = make_evaluator(tmp_path, num_answers)
    metrics = evaluator.evaluate(written.append)
    assert metrics["asked"] == num_answers
    if num_answers == 10:
        assert 0 <= metrics["hits_1_10"] <= 1
    else:
        assert "hits_1_10" not in metrics
        assert "needs 10 different held-out answers, and there are 9. Hold out" in written[-1]
