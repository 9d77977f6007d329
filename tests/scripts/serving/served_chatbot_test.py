"""Which requests are decoded how and with whom, with answerers that only remember."""

import types

import pytest

from towers.scripts.chatbot.answerer import Answer
from towers.scripts.serving import served_chatbot
from towers.scripts.serving.chat_request import ChatRequest
from towers.scripts.serving.served_chatbot import MOST_ANSWERERS, ServedChatbot, beginning
from towers.scripts.training.options import DecodingOptions

TOKENS = ["it", "'s", "a", "dog", "."]


@pytest.fixture
def made(monkeypatch):
    """The decodings for which an answerer was made, and what was asked, in their order."""
    made = types.SimpleNamespace(decodings=[], calls=[])

    def open_answerer(opened, options):
        made.decodings.append(options)

        def answer(questions, *, seed):
            made.calls.append((len(questions), seed))
            answers = [
                Answer("it's a dog.", TOKENS, -float(place)) for place in range(options.nbest)
            ]
            return [answers for _ in questions]

        return types.SimpleNamespace(answer=answer)

    monkeypatch.setattr(served_chatbot, "open_answerer", open_answerer)
    return made


def read_question(turns, longest=0):
    words = " | ".join(turns).split()  # With a separator between two turns.
    return types.SimpleNamespace(ids=words[-longest:])


def open_chatbot(**options):
    fields = types.SimpleNamespace(
        context=2, language="en", max_answer_length=9, max_question_length=4
    )
    text = types.SimpleNamespace(read_question=read_question)
    recipe = types.SimpleNamespace(fields=fields)
    opened = types.SimpleNamespace(recipe=recipe, text=text, about={})
    chatbot = ServedChatbot(opened, DecodingOptions(**options), max_choices=5)
    chatbot.compile()
    return chatbot


def request(*turns, **options):
    return ChatRequest(turns or ("hi",), **options)


def test_the_server_s_decoding_is_compiled_before_the_first_request(made):
    chatbot = open_chatbot(beam=3, no_repeat_ngram=2)
    chatbot.answer([request(), request()])
    assert made.decodings == [DecodingOptions(beam=3, no_repeat_ngram=2)]


@pytest.mark.parametrize(
    ("options", "asked", "decoding"),
    [
        ({}, {"temperature": 0}, {}),
        ({}, {"top_p": 1.0}, {}),
        ({}, {"n": 3}, {"beam": 5, "nbest": 5}),
        ({}, {"temperature": 0.5}, {"temperature": 0.5}),
        ({}, {"temperature": 0.5, "top_p": 1.0, "n": 3}, {"temperature": 0.5}),
        ({}, {"top_p": 0.9}, {"temperature": 1.0, "top_p": 0.9}),
        ({"beam": 9}, {"n": 2}, {"beam": 9, "nbest": 9}),
        ({"beam": 2}, {"n": 2}, {"beam": 2, "nbest": 2}),
        ({"beam": 2}, {"n": 3}, {"beam": 5, "nbest": 5}),
        (
            {"temperature": 0.9, "mmi": "run"},
            {"n": 3},
            {"temperature": 0.9, "mmi": "run", "nbest": 3},
        ),
        (
            {"temperature": 0.9, "mmi": "run", "candidates": 2},
            {"n": 3},
            {"temperature": 0.9, "mmi": "run", "nbest": 3, "candidates": 3},
        ),
        ({"beam": 9}, {"temperature": 1}, {"temperature": 1}),
        ({"beam": 9, "mmi": "run"}, {}, {"beam": 9, "mmi": "run"}),
        ({"beam": 9, "mmi": "run"}, {"temperature": 1}, {"temperature": 1}),
        ({"beam": 9, "mmi": "run", "mmi_weight": 0.2}, {"temperature": 1}, {"temperature": 1}),
        ({"temperature": 0.9, "mmi": "run", "candidates": 7}, {"temperature": 0}, {}),
        ({"beam": 9}, {"temperature": 0}, {"beam": 9}),
        ({"temperature": 0.8, "top_k": 4}, {"temperature": 0}, {}),
        ({"temperature": 0.8, "top_k": 4}, {"n": 2}, {"temperature": 0.8, "top_k": 4}),
        ({"temperature": 0.8, "seed": 3}, {}, {"temperature": 0.8}),
    ],
    ids=str,
)
def test_a_request_is_decoded_as_it_asks_and_otherwise_as_the_server_was_started(
    made, options, asked, decoding
):
    chatbot = open_chatbot(repetition_penalty=1.2, **options)
    choices = asked.pop("n", 1)
    (replies,) = chatbot.answer([request(choices=choices, **asked)])
    assert made.decodings[-1] == DecodingOptions(repetition_penalty=1.2, **decoding)
    assert len(replies.replies) == choices


def test_samples_are_rows_and_a_seed_is_decoded_alone(made):
    chatbot = open_chatbot(seed=40)
    plain, several = request(temperature=1.0), request(temperature=1.0, choices=3)
    seeded = [request(temperature=1.0, choices=2, seed=7) for _ in range(2)]
    assert chatbot.group(plain) == chatbot.group(several) != chatbot.group(seeded[0])
    assert chatbot.group(seeded[0]) != chatbot.group(seeded[1])
    assert [chatbot.rows(one) for one in (plain, several, request(choices=3))] == [1, 3, 1]
    assert chatbot.group(request(seed=1)) == chatbot.group(request())
    chatbot.answer([plain, several])
    chatbot.answer(seeded[:1])
    assert made.calls[1:] == [(4, 42), (2, 7)]


def test_only_the_last_answerers_are_kept(made):
    chatbot = open_chatbot()
    temperatures = [place / 100 for place in range(1, MOST_ANSWERERS + 1)]
    for temperature in (*temperatures, 0, temperatures[-1], 0.01):
        chatbot.answer([request(temperature=temperature)])
    numbers = [decoding.temperature for decoding in made.decodings]
    assert numbers == [None, *temperatures, None, 0.01]


def test_tokens_are_counted_and_answers_cut(made):
    chatbot = open_chatbot()
    (replies,) = chatbot.answer([request("never read", "a b", "c", "d", max_tokens=3)])
    (reply,) = replies.replies
    assert (reply.text, reply.num_tokens, reply.is_cut) == ("it's a", 3, True)
    assert (replies.num_question_tokens, replies.num_unread_tokens) == (4, 0)
    (replies,) = chatbot.answer([request("earlier", "a b c d e f g")])
    assert (replies.num_question_tokens, replies.num_unread_tokens) == (4, 3)
    (replies,) = chatbot.answer([request(max_tokens=5)])
    assert (replies.replies[0].text, replies.replies[0].is_cut) == ("it's a dog.", False)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("it's a dog.", TOKENS[:2], "it's"),
        ("我 是狗", ["我"], "我"),
        ("a dog", ["\u2581a", "\u2581d"], "a d"),
        ("a b", [], ""),
        ("a b", ["a", "b"], "a b"),
    ],
)
def test_the_beginning_of_a_text_is_what_its_first_tokens_say(text, tokens, expected):
    assert beginning(text, tokens) == expected
