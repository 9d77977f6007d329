"""A run with averages of its weights is evaluated with them and trains on from the weights."""

import json

import numpy as np

from tests.curves import read_scalars
from tests.scripts.runs import train_shapes, weights_of
from towers.scripts.main import main


def evaluated(run_dir, capsys, *options):
    capsys.readouterr()
    assert main(["evaluate", str(run_dir), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])["loss"]


def test_a_run_is_evaluated_with_averages_and_goes_on_from_its_weights(tmp_path, capsys):
    averaged, plain = tmp_path / "averaged", tmp_path / "plain"
    for steps in (2, 3):
        options = ["--steps", steps, "--evaluate-every", 1, "--set", "ema_momentum=0.5"]
        assert main(train_shapes(averaged, *options)) == 0
    assert main(train_shapes(plain, *options[:4])) == 0
    for one, other in zip(weights_of(averaged), weights_of(plain), strict=True):
        np.testing.assert_array_equal(one, other)
    curves = [
        dict(read_scalars(one / "summaries", "evaluation")["loss"]) for one in (averaged, plain)
    ]
    assert curves[0][1] == curves[1][1], "the average of one update is its weights"
    for step in (2, 3):
        found = evaluated(averaged, capsys, "--checkpoint", str(step))
        np.testing.assert_allclose(found, curves[0][step], rtol=1e-6)
        assert abs(found - curves[1][step]) > 1e-4
    begun = tmp_path / "begun"
    start = ["--init-from", averaged, "--steps", 1, "--set", "learning_rate=1e-30"]
    assert main(train_shapes(begun, *start)) == 0
    np.testing.assert_allclose(evaluated(begun, capsys), curves[0][3], rtol=1e-6)


def test_averages_that_replace_the_weights_are_what_a_run_goes_on_from(tmp_path, capsys):
    options = ["--set", "ema_momentum=0.5", "--set", "ema_overwrite_frequency=2"]
    for steps in (1, 2):
        assert main(train_shapes(tmp_path / "run", "--steps", steps, *options)) == 0
        assert main(train_shapes(tmp_path / str(steps), "--steps", steps)) == 0
    first, second = weights_of(tmp_path / "1"), weights_of(tmp_path / "2")
    for found, one, other in zip(weights_of(tmp_path / "run"), first, second, strict=True):
        np.testing.assert_allclose(found, (one + other) / 2, rtol=1e-5, atol=1e-7)


def test_a_frequency_without_an_average_is_refused(tmp_path, capsys):
    assert main(train_shapes(tmp_path / "run", "--set", "ema_overwrite_frequency=5")) == 2
    assert "needs an average of the weights. Received ema_momentum=0" in capsys.readouterr().err
