"""`--gpus-per-tower`: which layers share a tower, what is refused, and runs that go on."""

import numpy as np
import pytest

import towers
from tests.scripts.runs import train_shapes, weights_of
from towers.models import mlp
from towers.models.seq2seq import Seq2Seq
from towers.scripts.main import main
from towers.scripts.training.engine import describe_stages

TWO = [["/CPU:1", "/CPU:2"]]


def test_the_encoder_and_the_decoder_of_a_chatbot_share_a_tower():
    model = Seq2Seq(30, embedding_size=4, hidden_size=8, tied_output=True)
    placement = towers.Placement(TWO, "cpu")
    stages = placement.place(model)
    found = {layer.name: stages.of(layer) for layer in model.layers}
    assert {found["encoder_forward_0"], found["encoder_backward_0"]} == {0}
    others = ("decoder_0", "attention", "combine", "projection", "embedding")
    assert {found[name] for name in others} == {1}
    first, second = describe_stages(model, placement)
    assert first.startswith("stage 0 on CPU:1: encoder_forward_0") and "decoder_0" in second


def test_a_model_of_fewer_parts_is_refused_with_the_option():
    model = mlp.softmax_regression((28, 28, 1), 10)
    with pytest.raises(ValueError, match=r"consists of 1 block.* 2 devices.*--gpus-per-tower"):
        towers.Placement(TWO, "cpu").place(model)


@pytest.mark.parametrize("option", ["--updates async", "--xla", "--exchange nccl"])
def test_what_towers_of_several_devices_cannot_do_is_refused(option, tmp_path, capsys):
    assert main([*train_shapes(tmp_path), "--gpus-per-tower", "2", *option.split()]) == 2
    error = capsys.readouterr().err
    assert "--gpus-per-tower 2" in error and option in error and "Leave that out" in error


@pytest.mark.slow
def test_a_run_goes_on_with_other_devices_and_is_evaluated(tmp_path, capsys):
    half, rest = ["--steps", 10], ["--steps", 20]
    shared = ["--towers", 2, "--gpus-per-tower", 2, "--parameters", "replicated"]
    assert main(train_shapes(tmp_path / "run", *half, *shared)) == 0
    output = capsys.readouterr().out
    assert "2 towers on 2 virtual CPUs each (no GPU found), parameters on each of them" in output
    assert "stage 1 on CPU:2, CPU:4: " in output
    assert main(train_shapes(tmp_path / "run", *rest, "--towers", 2)) == 0
    assert main(train_shapes(tmp_path / "straight", *rest, "--towers", 2)) == 0
    for one, other in zip(
        weights_of(tmp_path / "run"), weights_of(tmp_path / "straight"), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), *map(str, shared)]) == 0
    assert "accuracy" in capsys.readouterr().out
