"""Runs that rerank: which fit a chatbot, and which options need one."""

import contextlib
import functools
import io
import json

import keras
import pytest

from towers.scripts.chatbot import tuning
from towers.scripts.chatbot.answerer import make_decoding
from towers.scripts.chatbot.opening import check_reranking, check_tuning, open_second
from towers.scripts.main import main
from towers.scripts.training.options import DecodingOptions

SMALL = ["embedding_size=8", "hidden_size=8", "held_out=0.2", "max_answer_length=5"]
RUNS = {
    "forward": [],
    "answers": ["--set", "direction=answers", "--precision", "bfloat16"],
    "backward": ["--set", "direction=backward", "--set", "network=transformer"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trains a chatbot, or one that reranks it, for one step; returns its run directory."""
    folder = tmp_path_factory.mktemp("runs")
    corpus = folder / "corpus.tsv"
    corpus.write_text("".join(f"say w{number}\tw{number} .\n" for number in range(60)))

    @functools.cache
    def train(name):
        command = ["train", "chatbot", "--language", "en", "--data", str(corpus), "--steps", "1"]
        command += [word for size in SMALL for word in ("--set", size)]
        assert main([*command, *RUNS[name], "--run-dir", str(folder / name)]) == 0
        return folder / name

    return train


def evaluate(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(output.getvalue().splitlines()[-1]), output.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("second", ["answers", "backward"])
def test_an_evaluation_reranks_and_its_loss_stays(runs, second):
    (plain, _), (reranked, _) = (
        evaluate(runs("forward"), *options)
        for options in ([], ["--beam", "3", "--mmi", runs(second)])
    )
    assert plain["loss"] == reranked["loss"]
    assert plain["hits_1_10"] == reranked["hits_1_10"]


@pytest.mark.parametrize(
    ("options", "number"),
    [
        pytest.param({"temperature": 1.0}, 20, id="samples"),
        pytest.param({"top_p": 0.9, "candidates": 7}, 7, id="as many as asked for"),
        pytest.param({"temperature": 1.0, "nbest": 30}, 30, id="at least those that are shown"),
        pytest.param({"beam": 5}, 5, id="beams"),
    ],
)
def test_a_second_run_chooses_among_several(options, number):
    chosen = DecodingOptions(mmi="run", **options)
    check_reranking(chosen)
    assert make_decoding(chosen, 30).n_best == number


@pytest.mark.slow
def test_a_search_refuses_too_few_questions_and_evaluates_with_what_it_found(runs, capsys):
    options = [str(runs("forward")), "--beam", "3", "--mmi", str(runs("answers")), "--tune"]
    assert main(["evaluate", *options]) == 2
    assert "--tune needs 50 test questions besides" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEWEST", 4)
        found, output = evaluate(*options, "--set", "exam_questions=5")
    chosen = f"--mmi-weight {found['mmi_weight']:g} --length-reward {found['length_reward']:g}"
    assert f"chosen: {chosen} (" in output
    given = ["--mmi-weight", found["mmi_weight"], "--length-reward", found["length_reward"]]
    again, _ = evaluate(*options[:-1], "--set", "exam_questions=5", *given)
    assert again == {name: found[name] for name in again}


@pytest.mark.slow
def test_the_seed_of_samples_counts(runs):
    said = [evaluate(runs("forward"), "--temperature", 3, "--seed", seed)[1] for seed in (0, 0, 1)]
    assert said[0] == said[1] != said[2]


def test_the_precision_of_the_second_run_stays_its_own(runs):
    trained = str(runs("answers"))
    keras.config.set_dtype_policy("float32")  # The training set its own.
    open_second(trained, "en")
    assert keras.config.dtype_policy().name == "float32"


REFUSED = {
    "another language": (
        lambda runs: open_second(str(runs("answers")), "zh"),
        "trained on language en",
    ),
    "a chatbot": (lambda runs: open_second(str(runs("forward")), "en"), "trained to answer"),
    "one answer": (lambda runs: check_reranking(DecodingOptions(mmi="run")), "--beam 10"),
    "a weight alone": (
        lambda runs: check_reranking(DecodingOptions(mmi_weight=0.3)),
        "--mmi-weight belongs to reranking. Received it without --mmi",
    ),
    "a reward alone": (
        lambda runs: check_reranking(DecodingOptions(length_reward=0.3)),
        "--length-reward belongs to reranking",
    ),
    "candidates alone": (
        lambda runs: check_reranking(DecodingOptions(candidates=5)),
        "--candidates belongs to reranking",
    ),
    "candidates of a beam": (
        lambda runs: check_reranking(DecodingOptions(mmi="run", beam=4, candidates=5)),
        "--candidates 5 is the number of sampled answers, but --beam 4 searches",
    ),
    "a search without a second run": (
        lambda runs: check_tuning(DecodingOptions(beam=5)),
        "--tune searches for the weight of the --mmi run. Received it without --mmi",
    ),
    "a search for what is given": (
        lambda runs: check_tuning(DecodingOptions(mmi="run", beam=5, length_reward=0.3)),
        "--tune finds --length-reward itself. Received 0.3",
    ),
}


@pytest.mark.parametrize(
    "name",  # One more run is trained for `a chatbot`.
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "a chatbot")) for name in REFUSED],
)
def test_what_cannot_rerank_is_refused(runs, name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call(runs)


def test_a_search_without_a_second_run_is_refused_before_the_run_is_read(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "nowhere"), "--tune"]) == 2
    assert "--tune searches for the weight of the --mmi run" in capsys.readouterr().err


def test_a_model_that_reranks_does_not_chat(runs, capsys):
    assert main(["chat", str(runs("answers")), "--ask", "hello"]) == 2
    assert "trained with direction=answers" in capsys.readouterr().err
