"""Broken letters and traditional characters are mended as they are read, and counted."""

import pytest

from tests.data.reading.helpers import SHARED, read_bytes
from tests.paths import missing
from towers.data.reading.mending import mendings
from towers.ground import extras

DGK = SHARED / "zh" / "dgk_100k.conv"


def test_letters_of_another_codec_are_mended(tmp_path):
    pytest.importorskip("ftfy")
    wrong = "E\nM déjà vu ?\nM 你好吗朋友\n".encode().decode("latin-1").encode()
    found, report = read_bytes(tmp_path, wrong, mendings=mendings(fix_text=True))
    assert found == [["déjà vu ?", "你好吗朋友"]]
    assert report.repaired == {"turns with broken letters, mended": 2}
    assert ":2" in str(report.places)


def test_what_is_right_stays_as_it_is(tmp_path):
    pytest.importorskip("ftfy")
    right = "E\nM “Yes”, he said, \uff21\uff22 &amp; more\nM 你好\uff0ccafé\n".encode()
    found, report = read_bytes(tmp_path, right, mendings=mendings(fix_text=True))
    assert found == [["“Yes”, he said, \uff21\uff22 &amp; more", "你好\uff0ccafé"]]
    assert not report.repaired


def test_traditional_characters_become_simplified(tmp_path):
    pytest.importorskip("opencc")
    content = "E\nM 這裡沒有問題\nM 好的\n".encode()
    found, report = read_bytes(tmp_path, content, mendings=mendings(simplify=True))
    assert found == [["这里没有问题", "好的"]]
    assert list(report.repaired.values()) == [1]


def test_half_of_a_character_does_not_stop_a_mending(tmp_path):
    pytest.importorskip("opencc")
    content = b'{"question": "\\ud83d hello", "answer": "world"}\n'
    found, report = read_bytes(tmp_path, content, mendings=mendings(fix_text=True, simplify=True))
    assert found == [["hello", "world"]]
    assert report.repaired == {"turns with bytes that do not decode": 1}


@pytest.mark.parametrize("name, library", [("fix_text", "ftfy"), ("simplify", "opencc")])
def test_a_missing_library_is_named_with_how_to_install_it(monkeypatch, name, library):
    def refuse(module):
        raise ImportError(module)

    monkeypatch.setattr(extras.importlib, "import_module", refuse)
    with pytest.raises(ValueError, match=rf"{library}.*pip install -e '\.\[mending\]'"):
        mendings(**{name: True})


@pytest.mark.skipif(not DGK.exists(), reason=missing("zh/dgk_100k.conv"))
@pytest.mark.parametrize("codec", ["iso-8859-2", "latin-1"])
def test_subtitles_of_films_are_mended(codec):
    """UTF-8 that was decoded by another codec, as other files of this corpus hold it."""
    pytest.importorskip("ftfy")
    (mending,) = mendings(fix_text=True)
    lines = DGK.read_text(encoding="utf-8", errors="ignore").split("\n")[:1000]
    texts = [line[2:].strip() for line in lines if len(line) > 6]
    texts = [text for text in texts if mending.mend(text) == text]
    mended = [mending.mend(text.encode().decode(codec)) for text in texts]
    right = sum(one == other for one, other in zip(mended, texts, strict=True))
    assert len(texts) > 500 and right > 0.95 * len(texts)
