"""`towers serve` as users start it: a process with a trained model, asked by OpenAI's client."""

import concurrent.futures
import json
import re
import signal
import sys

import httpx
import openai
import pytest

from tests.programs import PATIENCE, TOWERS, finish, started
from tests.scripts.serving.served_runs import served, train
from tests.scripts.serving.servers import PATH
from towers.scripts.commands import serve
from towers.scripts.main import main
from towers.scripts.serving import server

QUESTIONS = ["please say wai", "repeat wbj twice", "hello", "你好 😀", "!", "wai " * 50]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run of two steps with a tiny model."""
    folder = tmp_path_factory.mktemp("serve")
    return train(folder / "tiny", "embedding_size=8", "hidden_size=8")


@pytest.fixture(scope="module")
def address(run_dir):
    """The address of the service that all tests share."""
    with served(run_dir, "--allow-host", "a.example,b.example", "--allow-origin", "*") as service:
        yield service.address


@pytest.fixture(scope="module")
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        yield client


def ask(client, question, **options):
    return client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": question}], **options
    )


def texts(completion):
    return [choice.message.content for choice in completion.choices]


def test_the_client_of_openai_finds_the_model_and_asks_it(client):
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "towers"
    answer = ask(client, "please say wai")
    assert answer.usage.prompt_tokens >= 3
    assert answer.usage.completion_tokens > 0
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert texts(ask(client, "please say wai", temperature=0)) == texts(answer)


def test_a_stream_is_the_same_answer_in_pieces(client):
    (whole,) = texts(ask(client, "please say wai"))
    pieces = list(
        ask(client, "please say wai", stream=True, stream_options={"include_usage": True})
    )
    assert "".join(p.choices[0].delta.content or "" for p in pieces[:-1]) == whole
    assert pieces[-1].usage.total_tokens > 3
    assert pieces[-2].choices[0].finish_reason


def test_fewer_tokens_are_the_beginning_of_the_answer(client):
    (whole,) = texts(ask(client, "please say wai"))
    short = ask(client, "please say wai", max_tokens=1)
    assert whole.startswith(texts(short)[0])
    assert (short.choices[0].finish_reason, short.usage.completion_tokens) == ("length", 1)


def test_several_answers_are_the_best_of_a_search(client):
    answers = ask(client, "please say wai", n=3)
    scores = [choice.score for choice in answers.choices]
    assert len(set(texts(answers))) == 3 and scores == sorted(scores, reverse=True)
    assert texts(ask(client, "please say wai", n=2)) == texts(answers)[:2]


def test_samples_repeat_with_their_seed(client):
    first, again, other = (
        texts(ask(client, "please say wai", n=2, temperature=1, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert first[0] != first[1]


def test_questions_asked_together_get_the_answers_that_they_get_alone(client):
    alone = [texts(ask(client, question)) for question in QUESTIONS]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda question: texts(ask(client, question)), QUESTIONS * 6))
    assert together == alone * 6


def test_an_earlier_turn_belongs_to_the_question_and_only_the_last_ones(client):
    def answer(*contents):
        roles = ("user", "assistant")
        messages = [
            {"role": roles[(len(contents) - index) % 2 == 0], "content": content}
            for index, content in enumerate(contents)
        ]
        found = client.chat.completions.create(model="tiny", messages=messages)
        return found.usage.prompt_tokens, texts(found)

    assert answer("w", "x", "wai", "wbj", "hello") == answer("wai", "wbj", "hello")
    assert answer("wai", "wbj", "hello")[0] > answer("hello")[0]


def test_permitted_hosts_and_origins_are_answered(address):
    for host, status in (("a.example", 200), ("B.example:80", 200), ("c.example", 421)):
        headers = {"Host": host, "Origin": "https://page.example"}
        response = httpx.get(f"{address}/v1/models", headers=headers)
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (
            status,
            "*",
        )


@pytest.mark.parametrize(
    ("origins", "token", "is_warned"),
    [((), None, False), (("*",), None, True), (("*",), "t", False)],
)
def test_a_local_server_that_pages_may_use_without_a_token_warns(capsys, origins, token, is_warned):
    with server.bind("127.0.0.1", 0) as bound:
        serve.print_start("bot", bound, token, origins)
    *warnings, _ = capsys.readouterr().out.splitlines()
    assert len(warnings) == is_warned and all("pages of any site" in one for one in warnings)


def test_errors_are_those_of_openai(client):
    with pytest.raises(openai.NotFoundError, match="'tiny'"):
        client.chat.completions.create(model="gpt", messages=[])
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        ask(client, "hi", temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="--ignore-system"):
        client.chat.completions.create(
            model="tiny", messages=[{"role": "system", "content": "be brief"}]
        )


@pytest.mark.parametrize(
    "text", ["\x00", "\ufeff\u200b!", "a" * 2000, "字" * 2000, "\n\t\r x", "e\u0301" * 99,
             "😀" * 99, "<script>", "/new", "\u202e\u2066!", "<unk> </s> ##a <copy_0>"],
    ids=ascii,
)  # fmt: skip
def test_any_text_gets_an_answer(client, text):
    assert len(texts(ask(client, text))) == 1


def test_a_port_that_is_taken_is_wrong_input(address, run_dir, capsys):
    port = address.rpartition(":")[2]
    assert main(["serve", str(run_dir), "--port", port]) == 2
    assert f"cannot listen at 127.0.0.1, port {port}" in capsys.readouterr().err


def test_what_cannot_be_served_is_wrong_input(run_dir, tmp_path, capsys, monkeypatch):
    empty = tmp_path / "token"
    empty.write_text(" \n")
    for options, words in (
        ([str(tmp_path / "none"), "--port", "0"], "none"),
        ([str(run_dir), "--host", "192.0.2.1"], "--host"),
        ([str(run_dir), "--token-file", str(empty)], "must hold a token"),
        ([str(run_dir), "--token-file", str(tmp_path / "missing")], "missing"),
        ([str(run_dir), "--port", "0", "--nbest", "6"], "--max-choices"),
        ([str(run_dir), "--port", "0", "--beam", "2", "--top-k", "2"], "--beam"),
    ):
        assert main(["serve", *options]) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", str(run_dir), "--allow-origin", "https://a.example/"])
    assert "such as https://example.org, not" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(["serve", str(run_dir)]) == 2
    assert "pip install -e '.[serve]'" in capsys.readouterr().err


def test_the_token_is_that_of_the_file_or_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("TOWERS_TOKEN", raising=False)
    assert serve.read_token(None) is None
    monkeypatch.setenv("TOWERS_TOKEN", "of the environment")
    assert serve.read_token(None) == "of the environment"
    (tmp_path / "token").write_text("of-the-file\n")
    assert serve.read_token(str(tmp_path / "token")) == "of-the-file"
    for useless in ("", " ", "schlüssel", "two\nlines"):
        monkeypatch.setenv("TOWERS_TOKEN", useless)
        with pytest.raises(ValueError, match="TOWERS_TOKEN must hold a token"):
            serve.read_token(None)


@pytest.mark.slow
def test_ctrl_c_stops_a_server_that_others_may_reach_and_that_prints_messages(run_dir):
    command = [*TOWERS, "serve", run_dir, "--port", "0", "--host", "0.0.0.0", "--log-messages"]
    with started(command) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert "warning: anyone who can reach this machine" in lines[1]
        port = re.search(r":(\d+)", lines[2]).group(1)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
        answer = httpx.post(f"http://127.0.0.1:{port}{PATH}", json=body, timeout=PATIENCE).json()
        said = {"turns": ["hello"], "answers": [answer["choices"][0]["message"]["content"]]}
        process.send_signal(signal.SIGINT)
        assert finish(process) == f"{json.dumps(said, ensure_ascii=False)}\nstopped\n"
