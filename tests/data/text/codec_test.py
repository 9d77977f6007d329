"""The codec gives back what was said, hides what is special and travels as a folder."""
# ruff: noqa: RUF001 - full-width punctuation is part of Chinese.

import functools
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import towers.data.text
from tests.paths import CORPORA, missing
from towers.data.text import (
    NUM_COPIES,
    LineCodec,
    TextCodec,
    TextSettings,
    build_vocabulary,
    learn_vocabulary,
    make_tokenizer,
    train_subwords,
)
from towers.ground.special_ids import END, PAD, SEPARATOR, START, UNKNOWN

SENTENCES = ["今天天气真好，我们去公园吧！", "你在看什么书？", "我买了一件T恤。", "好的，再见"]
SETTINGS = [
    TextSettings("zh"),
    TextSettings("en"),
    TextSettings("en", lowercase=True),
    TextSettings("zh", "characters"),
    TextSettings("zh", "spaces"),
]

CHARACTERS = "abcxyzABCXYZ 天气真好我们T恤，。？！…—：,.?!:'\"-03:5é"
TEXTS = st.text(CHARACTERS) | st.sampled_from(SENTENCES)


def count_tokens(settings, texts):
    tokenizer = make_tokenizer(settings)
    return Counter(
        token for text in texts for token in tokenizer.tokenize(settings.normalise(text))
    )


@functools.cache
def codec_of(settings):
    """Returns a codec that knows the words of the sentences and all the characters."""
    counts = count_tokens(settings, SENTENCES) + Counter(CHARACTERS)
    return TextCodec(settings, build_vocabulary(counts, 1000))


@given(st.sampled_from(SETTINGS), TEXTS)
def test_decode_inverts_encode(settings, text):
    codec, tokenizer = codec_of(settings), make_tokenizer(settings)
    tokens = tokenizer.tokenize(codec.settings.normalise(text))
    assert codec.decode(codec.encode(text)) == tokenizer.detokenise(tokens)


@pytest.fixture(scope="module", params=["bytes", "subwords"])
def exact_codec(request, tmp_path_factory):
    """A codec that changes nothing, saved and loaded."""
    folder = tmp_path_factory.mktemp("exact")
    settings = {"as_written": True, "spelled": True}
    if request.param == "subwords":
        pytest.importorskip("sentencepiece")
        settings["subword_model"] = str(folder / "m.model")
        code = Path(__file__).read_text("utf-8").split("\n")
        train_subwords(code, 600, settings["subword_model"], exact=True)
    text = TextSettings("en", request.param, **settings)
    LineCodec(text, learn_vocabulary(text, {}, 1000)).save(folder / "text")
    return LineCodec.load(folder / "text")


@given(text=st.text() | st.text("\t\r\n  ab<0x41>\u2581\0é你\u3000“-"))
@example(text='\tif (a --> 0)\r\n\n\t\tputs("é  “B”");\r')
def test_a_mode_that_changes_nothing_gives_every_text_back(exact_codec, text):
    ids = exact_codec.encode(text)
    assert exact_codec.decode(ids) == text
    assert exact_codec.vocabulary.unknown not in ids


def test_case_is_kept_unless_it_is_not_wanted():
    codec = codec_of(TextSettings("en", "characters"))
    assert codec.decode(codec.encode("ABc")) == "ABc"


@pytest.mark.parametrize("token", ["@-@", "戦場のヴァルキュリア3", "U.S.", "<unk>", "“"])
def test_tokens_between_blanks_are_kept_one_to_one_also_where_they_are_spelled(token):
    text = TextSettings("en", "spaces", as_written=True, spelled=True)
    codec = LineCodec(text, learn_vocabulary(text, Counter([*"a.", *token, token[::-1]]), 1000))
    line = f"a {token} . . . {token} a"
    assert codec.decode(codec.encode(line)) == line


@given(st.sampled_from(SETTINGS), st.text() | st.text(st.characters(categories=None)))
def test_any_text_is_encoded_without_specials_but_unknown(settings, text):
    codec = codec_of(settings)
    ids = codec.encode(text)
    assert not {PAD, START, END, SEPARATOR} & set(ids)
    assert "<" not in codec.decode([unit_id for unit_id in ids if unit_id == UNKNOWN])


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.chosen_tokenizer)
def test_sentences_come_back(settings):
    codec = codec_of(settings)
    for sentence in SENTENCES:
        assert codec.encode(sentence) == codec.encode(codec.decode(codec.encode(sentence)))
        assert UNKNOWN not in codec.encode(sentence)


def test_chinese_sentences_are_answered_as_written():
    for sentence in SENTENCES:
        assert codec_of(SETTINGS[0]).decode(codec_of(SETTINGS[0]).encode(sentence)) == sentence


def test_decode_stops_at_end_and_hides_specials():
    codec = codec_of(SETTINGS[0])
    ids = [START, *codec.encode("好的"), UNKNOWN, PAD, SEPARATOR, *codec.encode("再见")]
    assert codec.decode([*ids, END, *codec.encode("天气")]) == "好的再见"
    assert codec.decode([END]) == codec.decode([]) == codec.decode([UNKNOWN]) == ""


def test_array_of_ids_is_decoded():
    codec = codec_of(SETTINGS[0])
    assert codec.decode(np.array([*codec.encode("好的"), END, PAD], np.int32)) == "好的"


def test_id_that_is_none_is_refused():
    with pytest.raises(ValueError, match="ids must be in 0"):
        codec_of(SETTINGS[0]).decode([1 << 20])


def test_turns_of_a_question_are_parted():
    codec = codec_of(SETTINGS[0])
    turns = ["你在看什么书？", " \u200b", "好的"]
    expected = [*codec.encode(turns[0]), SEPARATOR, *codec.encode(turns[2])]
    assert codec.encode_question(turns) == (expected, [])
    assert codec.encode_question(turns, 3) == (expected[-3:], [])
    assert codec.encode_question([" ", "好的"]).ids == codec.encode("好的")
    assert codec.encode_question([]) == ([], [])


COPIER = TextCodec(
    TextSettings("en", lowercase=True),
    build_vocabulary(Counter(["my", "name", "is", ".", "and", "i", "like"]), 100, copies=True),
)


def test_unknown_words_of_a_question_are_numbered():
    first, second, third, *_ = COPIER.vocabulary.copies
    question = COPIER.encode_question(["My name is Zorvik.", "I like Mimba and Zorvik and Tuk."])
    known = COPIER.vocabulary.id_of
    assert question.ids == [
        *map(known, ["my", "name", "is"]), first, known("."), SEPARATOR,
        *map(known, ["i", "like"]), second, known("and"), first, known("and"), third, known("."),
    ]  # fmt: skip
    assert question.copied == ["zorvik", "mimba", "tuk"]
    answer = [known("i"), known("like"), second, known(".")]
    assert COPIER.decode(answer, question.copied) == "i like mimba."
    assert COPIER.encode_answer("I like Mimba.", question.copied) == answer
    assert COPIER.encode_answer("I like Una.", question.copied) == [
        *answer[:2], UNKNOWN, answer[-1]
    ]  # fmt: skip


def test_unknown_words_of_a_cut_question_are_numbered_after_the_cut():
    question = COPIER.encode_question(["Zorvik and Mimba."], 2)
    assert question == ([COPIER.vocabulary.copies[0], COPIER.vocabulary.id_of(".")], ["mimba"])


def test_more_unknown_words_than_copies_are_unknown():
    words = [f"word{number}" for number in range(NUM_COPIES + 2)]
    question = COPIER.encode_question([" ".join([*words, "word0"])])
    copies = list(COPIER.vocabulary.copies)
    assert question.ids == [*copies, UNKNOWN, UNKNOWN, copies[0]]
    assert question.copied == words[:NUM_COPIES]


def test_codec_comes_back_from_its_folder(tmp_path):
    for codec in map(codec_of, SETTINGS):
        codec.save(tmp_path)
        loaded = TextCodec.load(tmp_path)
        assert (loaded.settings, loaded.vocabulary) == (codec.settings, codec.vocabulary)


def test_folder_holds_the_files_that_settings_name(tmp_path):
    words, model = tmp_path / "words.txt", tmp_path / "a.model"
    words.write_text("好天气呀 20000 n\n", encoding="utf-8")
    train_subwords(SENTENCES * 20, 50, model)
    for settings in [
        TextSettings(user_dictionary=str(words)),
        TextSettings(tokenizer="subwords", subword_model=str(model)),
    ]:
        codec = codec_of(settings)
        codec.save(tmp_path / "saved" / settings.tokenizer)
    words.unlink()
    model.unlink()
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = TextCodec.load(tmp_path / "moved" / "auto")
    assert len(loaded.encode("天气真好")) > len(loaded.encode("天天"))
    subwords = TextCodec.load(tmp_path / "moved" / "subwords")
    assert subwords.encode(SENTENCES[0]) == codec.encode(SENTENCES[0])
    subwords.save(tmp_path / "moved" / "subwords")  # Onto its own files.
    assert TextCodec.load(tmp_path / "moved" / "subwords").settings == subwords.settings


@pytest.mark.parametrize("content", ["{", "[]", '{"language": "xx"}', '{"colour": "red"}'])
def test_damaged_settings_are_refused(tmp_path, content):
    codec_of(SETTINGS[0]).save(tmp_path)
    (tmp_path / "text.json").write_text(content)
    with pytest.raises(ValueError, match=r"text.json: expected the settings of a text codec"):
        TextCodec.load(tmp_path)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"text.json"):
        TextCodec.load(tmp_path)


def test_copied_folder_works_without_the_project(tmp_path):
    shutil.copytree(Path(towers.data.text.__file__).parent, tmp_path / "answering")
    codec_of(SETTINGS[0]).save(tmp_path / "saved")
    code = (
        "import sys; from answering import TextCodec;"
        f"codec = TextCodec.load('saved'); print(len(codec.encode('{SENTENCES[3]}')));"
        "print(sorted({'numpy', 'tensorflow', 'data', 'sentencepiece'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (
        f"{len(codec_of(SETTINGS[0]).encode(SENTENCES[3]))}\n[]\n",
        "",
    )


@pytest.mark.parametrize(
    ("settings", "corpus"),
    [
        (TextSettings("zh"), "zh/dgk_100k.conv"),
        (TextSettings("en"), "en/swda_50k_derived.conv"),
    ],
    ids=["zh", "en"],
)
def test_few_characters_of_unseen_dialogues_are_unknown(settings, corpus):
    if not (CORPORA / corpus).exists():
        pytest.skip(missing(corpus))
    lines = (CORPORA / corpus).read_text(encoding="utf-8", errors="replace").split("\n")
    turns = [line[2:] for line in lines if line.startswith("M ")][:20000]
    known = len(turns) * 9 // 10
    codec = TextCodec(settings, build_vocabulary(count_tokens(settings, turns[:known]), 20000))
    ids = [unit_id for turn in turns[known:] for unit_id in codec.encode(turn)]
    assert len(ids) > 1000
    assert ids.count(UNKNOWN) < 0.01 * len(ids)
