"""`--gpus-per-tower`: which layers share a tower, what is refused, and runs that go on."""

import keras
import numpy as np
import pytest

import towers
from tests.scripts.runs import train_shapes, weights_of
from towers.models import cnn, mlp
from towers.models.seq2seq import Seq2Seq
from towers.scripts.main import main
from towers.scripts.training.catalogue import load_recipe
from towers.scripts.training.stages import blocks_of, describe_stages, share_layers

TWO = [["/CPU:1", "/CPU:2"]]


def test_the_encoder_and_the_decoder_of_a_chatbot_share_a_tower():
    model = Seq2Seq(30, embedding_size=4, hidden_size=8, tied_output=True)
    placement = towers.Placement(TWO, "cpu")
    stages = share_layers(load_recipe("chatbot"), model, placement).stages(model)
    found = {layer.name: stages.of_layer(layer) for layer in model.layers}
    assert {found["encoder_forward_0"], found["encoder_backward_0"]} == {0}
    others = ("decoder_0", "attention", "combine", "projection", "embedding")
    assert {found[name] for name in others} == {1}
    first, second = describe_stages(model, share_layers(load_recipe("chatbot"), model, placement))
    assert first.startswith("stage 0 on CPU:1: encoder_forward_0") and "decoder_0" in second


def test_a_network_in_a_network_is_taken_apart():
    body = cnn.lenet((28, 28, 1), 10)
    images = keras.Input((28, 28, 1))
    model = keras.Model(images, body(keras.layers.Rescaling(2.0, name="scaled")(images)))
    names = [layer.name for block in blocks_of(model) for layer in block]
    assert "scaled" in names and names[-1] == "logits" and body.name not in names


def test_a_model_of_fewer_parts_is_refused_with_the_recipe():
    model = mlp.softmax_regression((28, 28, 1), 10)
    with pytest.raises(ValueError, match=r"cannot share the layers of mnist.*consists of 1 block"):
        share_layers(load_recipe("mnist"), model, towers.Placement(TWO, "cpu"))


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
