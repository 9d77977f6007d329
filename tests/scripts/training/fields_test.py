"""Fields: their bounds stand on them, and texts become values of their types."""

import dataclasses
from typing import Annotated

import pytest

import towers
from towers.scripts.main import main
from towers.scripts.options.setting import settings_of
from towers.scripts.training.fields import (
    EPOCHS,
    FRACTION,
    POSITIVE,
    Fields,
    describe_fields,
    parse_overrides,
    replace_fields,
)


@dataclasses.dataclass(frozen=True)
class Own(Fields):
    """The common fields, and:

    Attributes:
        share: a part.
        sizes: of something.
        switch: on or off.
    """

    share: Annotated[float, FRACTION] = 0.5
    sizes: Annotated[tuple[int, ...], POSITIVE] = (1,)
    switch: bool = True


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 1.0}, r"share must be in \[0, 1\). Received 1.0"),
        ({"share": float("nan")}, r"share must be in \[0, 1\)"),
        ({"sizes": (2, 0)}, r"sizes must be above 0. Received \(2, 0\)"),
        ({"learning_rate": float("inf")}, "learning_rate must be above 0"),
        ({"decay_epochs": 1e300}, EPOCHS.text),
        ({"boundaries": (1.0, -1.0)}, "boundaries must be from 0 to"),
        ({"warmup_steps": -1}, "warmup_steps must be at least 0"),
    ],
)
def test_a_value_outside_of_its_bounds_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        replace_fields(Own(), values)


@pytest.mark.parametrize("wrong", ["optimizer=adm", "schedule=cosin"])
def test_a_wrong_name_is_told_before_a_directory_that_is_taken(wrong, tmp_path, capsys):
    (tmp_path / "of_others").touch()
    command = ["train", "shapes", "--run-dir", str(tmp_path), "--set"]
    assert main([*command, wrong]) == 2
    assert "Did you mean" in capsys.readouterr().err
    assert main([*command, "optimizer=adam"]) == 2
    assert str(tmp_path) in capsys.readouterr().err


@pytest.mark.parametrize("name", settings_of(Fields)["optimizer"].choices)
def test_every_optimizer_of_the_fields_is_one_of_the_engine(name):
    assert towers.optimizers.build_optimizer(name, 0.1)


@pytest.mark.parametrize("name", settings_of(Fields)["schedule"].choices)
def test_every_schedule_of_the_fields_is_one_of_the_engine(name):
    options = {"total_steps": 2, "decay_steps": 1, "boundaries": (1,)}
    assert towers.optimizers.build_schedule(name, 0.1, **options)


def test_no_line_about_a_field_is_long(capsys):
    assert main(["recipes", "ptb_large"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100 and "  num_steps=35  tokens of a stream in a batch." in lines


def test_values_at_their_bounds_are_taken():
    replaced = replace_fields(Own(), {"share": 0.0, "sizes": (), "clip_norm": 0.0})
    assert (replaced.share, replaced.sizes, replaced.clip_norm) == (0.0, (), 0.0)


def test_texts_become_values_of_their_fields_types():
    texts = ["sizes=2,3", "switch=false", "batch-size = 7", "share=0.25", "optimizer=sgd"]
    assert parse_overrides(Own, texts) == {
        "sizes": (2, 3),
        "switch": False,
        "batch_size": 7,
        "share": 0.25,
        "optimizer": "sgd",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizes=a", "takes values such as 1,2. Received 'a'"),
        ("switch=maybe", "takes true or false. Received 'maybe'"),
        ("size=1", "Did you mean 'sizes'?"),
    ],
)
def test_a_text_of_another_type_is_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        parse_overrides(Own, [text])


def test_fields_are_described_with_value_meaning_and_bounds():
    lines = describe_fields(Own(sizes=(3, 4)))
    assert "sizes=3,4  of something. (above 0)" in lines
    assert "switch=True  on or off." in lines
