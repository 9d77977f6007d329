"""The evaluation of a chatbot's answers: with few held-out answers, and with enough."""

import pytest

from towers.data.corpus import CorpusSettings, prepare_dialogues
from towers.data.text import TextSettings
from towers.scripts.recipes.chatbot import RECIPE, make_answer_evaluator, make_model
from towers.scripts.training.catalogue import with_fields
from towers.scripts.training.recipe import Data


@pytest.mark.parametrize("num_answers", [9, 10])
def test_hits_are_reported_or_the_reason_why_not(tmp_path, num_answers):
    dialogues = [[f"say w{number}", f"w{number} ."] for number in range(num_answers)]
    settings = CorpusSettings(TextSettings("en", tokenizer="spaces"))
    corpus = prepare_dialogues(dialogues, dialogues, settings, tmp_path, write=lambda line: None)
    fields = with_fields(RECIPE, {"embedding_size": 4, "hidden_size": 4}).fields
    data = Data(None, None, corpus.text, corpus)
    written = []
    evaluator = make_answer_evaluator(fields, make_model(fields, data), data)
    metrics = evaluator.evaluate(written.append)
    assert metrics["asked"] == num_answers
    if num_answers == 10:
        assert 0 <= metrics["hits_1_10"] <= 1
    else:
        assert "hits_1_10" not in metrics
        assert "needs 10 different held-out answers, and there are 9. Hold out" in written[-1]
