"""The fully connected networks have the layers that they should have."""

import keras
import pytest

from tests.models.image_models import check_logits, check_one_step_lowers_the_loss, count
from towers.models.mlp import mlp, softmax_regression


def test_softmax_regression_has_one_weight_per_pixel_and_class():
    model = softmax_regression((28, 28, 1), 10)
    check_logits(model, 10)
    assert count(model.variables) == 784 * 10 + 10 == 7850


def test_mlp_has_the_parameters_of_784_256_10():
    model = mlp((28, 28, 1), 10, dropout_rate=0.5)
    check_logits(model, 10)
    assert count(model.trainable_variables) == 784 * 256 + 256 + 256 * 10 + 10 == 203_530


def test_layer_names_are_stable():
    for _ in range(2):
        assert [layer.name for layer in mlp((4, 4, 1), 3, dropout_rate=0.1).layers] == [
            "images",
            "flatten",
            "hidden",
            "dropout",
            "logits",
        ]


@pytest.mark.parametrize("make_model", [softmax_regression, mlp])
def test_one_step_lowers_the_loss(make_model):
    check_one_step_lowers_the_loss(make_model, (5, 4, 2))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_logits_have_the_dtype_of_the_policy(policy):
    keras.config.set_dtype_policy(policy)
    check_logits(mlp((4, 4, 1), 3), 3, dtype=policy.removeprefix("mixed_"))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((28, 28), 10), {}, r"input_shape must be \(height, width, channels\).*\(28, 28\)"),
        (((None, 28, 1), 10), {}, "each a whole number of at least 1"),
        (((28, 28, 1), 1), {}, "num_classes must be a whole number of at least 2. Received 1"),
        (((28, 28, 1), 10), {"hidden_size": 0}, "hidden_size must be .* at least 1. Received 0"),
        (((28, 28, 1), 10), {"dropout_rate": 1.0}, r"dropout_rate must be in \[0, 1\)"),
    ],
)
def test_wrong_arguments_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        mlp(*arguments, **options)
