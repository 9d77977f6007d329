"""What was saved is put back bit for bit, into the variables that it belongs to, or refused."""

import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.towers.saving.saved_groups import group_of, values_of, write_checkpoint
from towers.saving.checkpoint_files import read_checkpoint, value_of
from towers.saving.checkpoints import automatic_names, restore, restore_matching


def saved(tmp_path, groups):
    """Writes the groups and reads them back."""
    write_checkpoint(tmp_path / "saved", 1, groups, {})
    return read_checkpoint(tmp_path / "saved")


def dense(units=3, inputs=2, *, name="logits", dtype="float32"):
    """The variables of a dense layer."""
    layer = keras.layers.Dense(units, name=name, dtype=dtype)
    layer.build((None, inputs))
    return layer.variables


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32", "int64", "bool"])
def test_values_are_restored_bit_for_bit(tmp_path, dtype):
    values = [np.array(1), np.arange(6).reshape(2, 3), np.zeros((0, 2))]
    before = [tf.Variable(tf.cast(value, dtype)) for value in values]
    after = [tf.Variable(tf.zeros(value.shape, dtype)) for value in values]
    restore(saved(tmp_path, {"group": before}), {"group": after})
    for one, other in zip(after, before, strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


def test_model_optimizer_and_seeds_are_restored(tmp_path):
    def build(seed):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        optimizer = keras.optimizers.Adam()
        optimizer.apply([value + seed for value in model.weights], model.trainable_variables)
        seeds = keras.random.SeedGenerator(seed)
        return {
            "variables": model.variables,
            "optimizer": optimizer.variables,
            "seeds": [seeds.state],
        }

    before, after = build(1), build(2)
    assert before["variables"][0].path != after["variables"][0].path  # dense and dense_1.
    restore(saved(tmp_path, before), after)
    for name, variables in before.items():
        for one, other in zip(after[name], variables, strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_restoring_keeps_every_variable_on_its_device(tmp_path):
    def place():
        devices = [f"/CPU:{index}" for index in (0, 1, 3)]
        variables = []
        for device in devices:
            with tf.device(device):
                variables += [tf.Variable([1.0, 2.0]), keras.Variable([3.0], name="scale")]
        return {"group": variables}

    groups = place()
    placed = [tf.convert_to_tensor(variable).device for variable in groups["group"]]
    restore(saved(tmp_path, place()), groups)
    assert [tf.convert_to_tensor(variable).device for variable in groups["group"]] == placed
    assert [device[-5:] for device in placed[::2]] == ["CPU:0", "CPU:1", "CPU:3"]


def test_training_on_does_not_write_into_the_checkpoint(tmp_path):
    groups = group_of(3, size=64)
    checkpoint = saved(tmp_path, groups)
    restore(checkpoint, groups)
    for variable in groups["variables"]:
        variable.assign_add(tf.ones([64]))
        variable.scatter_nd_update([[0]], [9.0])
    assert values_of(checkpoint) == {3.0}
    restore(checkpoint, groups)
    assert groups["variables"][0].numpy().tolist() == [3.0] * 64


def assert_refused(checkpoint, groups, *, match):
    """Nothing is assigned, and the message says why."""
    before = [value_of(variable) for group in groups.values() for variable in group]
    with pytest.raises(ValueError, match=match) as error:
        restore(checkpoint, groups)
    assert str(checkpoint.path) in str(error.value)
    assert "nothing was restored" in str(error.value)
    after = [value_of(variable) for group in groups.values() for variable in group]
    for one, other in zip(after, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_missing_and_an_unknown_group_are_listed(tmp_path):
    checkpoint = saved(tmp_path, {"variables": dense(), "optimizer": []})
    assert_refused(
        checkpoint,
        {"variables": dense(), "loss_scale": []},
        match=r"Checkpoint lacks: group 'loss_scale'\. Unused in checkpoint: group 'optimizer'\.",
    )


def test_missing_and_unused_variables_are_listed(tmp_path):
    checkpoint = saved(tmp_path, {"variables": dense() + dense(name="luong")})
    assert_refused(
        checkpoint,
        {"variables": dense(name="encoder") + dense()},
        match=r"lacks: encoder/kernel; encoder/bias\. Unused in .*: luong/kernel; luong/bias\.",
    )


def test_an_additional_layer_of_the_same_kind_is_listed(tmp_path):
    checkpoint = saved(tmp_path, {"variables": dense(name="dense")})
    groups = {"variables": dense(name="dense") + dense(name="dense_1")}
    assert_refused(checkpoint, groups, match=r"Checkpoint lacks: dense_1/kernel; dense_1/bias\.")


def test_shapes_and_dtypes_that_differ_are_listed(tmp_path):
    checkpoint = saved(tmp_path, {"first": dense(), "second": dense(dtype="float64")})
    groups = {"first": dense(inputs=5), "second": dense()}
    assert_refused(
        checkpoint,
        groups,
        match=r"Shape differs: logits/kernel, checkpoint \[2, 3\], model \[5, 3\]\. "
        r"Dtype differs: logits/kernel, checkpoint float64, model float32; logits/bias, ",
    )


def layers_and_slots(*names):
    """Dense layers made in this order, and their slots, all filled with their names' digits."""
    variables = [variable for name in names for variable in dense(name=name)]
    optimizer = keras.optimizers.Adam()
    optimizer.build(variables)
    groups = {"variables": variables, "optimizer": optimizer.variables[2:]}
    for variable in itertools.chain(*groups.values()):
        digit = re.findall(r"\d", variable.path)[-1]
        variable.assign(tf.fill(variable.shape, float(digit)))
    return groups


def test_layers_of_given_names_are_restored_by_name_whatever_the_order(tmp_path):
    checkpoint = saved(tmp_path, layers_and_slots("expert_1", "expert_2", "query_3"))
    groups = layers_and_slots("query_3", "expert_2", "expert_1")
    expected = [value_of(variable) for variable in itertools.chain(*groups.values())]
    for variable in itertools.chain(*groups.values()):
        variable.assign(tf.zeros(variable.shape))
    restore(checkpoint, groups)
    restored = [value_of(variable) for variable in itertools.chain(*groups.values())]
    for one, other in zip(restored, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_number_in_a_given_name_counts(tmp_path):
    checkpoint = saved(tmp_path, {"variables": dense(name="expert_1")})
    groups = {"variables": dense(name="expert_2")}
    assert_refused(checkpoint, groups, match=r"lacks: expert_2/kernel.*Unused .*: expert_1/kernel")


def test_numbers_that_keras_adds_may_be_others(tmp_path):
    checkpoint = saved(tmp_path, layers_and_slots("dense_8", "dense_9", "gate_1"))
    groups = layers_and_slots("dense_2", "dense_3", "gate_1")
    restore(checkpoint, groups)
    assert [value_of(variable).max() for variable in groups["variables"][::2]] == [8, 9, 1]
    assert [value_of(variable).max() for variable in groups["optimizer"][::4]] == [8, 9, 1]


def test_layers_that_only_automatic_numbers_tell_apart_are_never_swapped(tmp_path):
    checkpoint = saved(tmp_path, {"variables": dense(name="dense") + dense(name="dense_1")})
    groups = {"variables": dense(name="dense_1") + dense(name="dense")}
    assert_refused(
        checkpoint,
        groups,
        match="name them yourself: dense/kernel and dense_1/kernel in the checkpoint, "
        "dense_1/kernel and dense/kernel in the model; dense/bias and",
    )


def test_variables_of_equal_paths_are_counted(tmp_path):
    checkpoint = saved(tmp_path, group_of(1))
    assert_refused(checkpoint, {"variables": group_of(2)["variables"][1:]}, match="Unused .*: Var")


def test_automatic_names_are_those_that_keras_gives():
    class MyOwnLSTMBlock2D(keras.layers.Layer):
        pass

    made = [
        MyOwnLSTMBlock2D(), keras.layers.LSTMCell(2), keras.layers.Conv2DTranspose(2, 2),
        keras.layers.ReLU(), keras.layers.BatchNormalization(), keras.Sequential(),
        keras.random.SeedGenerator(1), keras.Variable(0), keras.metrics.Mean(),
    ]  # fmt: skip
    names = {re.sub(r"_\d+$", "", one.name) for one in made}
    assert len(names) == len(made) and names <= automatic_names()


def test_another_optimizer_is_refused(tmp_path):
    def variables_of(optimizer):
        optimizer.build(dense())
        return {"optimizer": optimizer.variables}

    checkpoint = saved(tmp_path, variables_of(keras.optimizers.Adam()))
    groups = variables_of(keras.optimizers.Lamb())
    assert_refused(checkpoint, groups, match=r"lacks: lamb/iteration;.*Unused .*: adam/iteration;")


def test_a_long_list_is_cut(tmp_path):
    checkpoint = saved(tmp_path, {"variables": []})
    groups = {"variables": [tf.Variable(0, name=f"layer{index}") for index in range(40)]}
    assert_refused(checkpoint, groups, match=r"layer0; layer1; and 38 more\.")


def test_what_matches_another_model_is_restored_and_the_rest_is_named(tmp_path):
    before = [*dense(3, name="body"), *dense(4, name="head"), *dense(2, name="gone")]
    after = [*dense(3, name="body"), *dense(5, name="head"), *dense(2, name="new")]
    for number, variable in enumerate(before):
        variable.assign(np.full(variable.shape, number + 1.0))
    result = restore_matching(saved(tmp_path, {"variables": before}), after)
    assert result.restored == ["body/kernel", "body/bias"]
    assert sorted(result.unmatched) == [
        "head/bias (shape [4], here [5])",
        "head/kernel (shape [2, 4], here [2, 5])",
        "new/bias",
        "new/kernel",
    ]
    assert [np.unique(value_of(variable)).tolist() for variable in after[:2]] == [[1.0], [2.0]]
    assert not np.any(value_of(after[3])) and not np.any(value_of(after[5]))


def test_each_variable_is_restored_or_named_as_one_that_is_not(tmp_path):
    """Of layers that Keras named, nothing tells which is the new one."""

    def layers(*units):
        model = keras.Sequential([keras.Input((2,)), *map(keras.layers.Dense, units)])
        return model.variables

    checkpoint = saved(tmp_path, {"variables": layers(3, 3)})
    for after in (layers(3, 3, 4), layers(3)):
        result = restore_matching(checkpoint, after)
        number = len(after) // 2
        reason = f" (2 of this name in the checkpoint, {number} here)"
        assert result == ([], [variable.path + reason for variable in after])


def test_values_of_another_precision_are_converted(tmp_path):
    before, after = dense(dtype="float64"), dense(dtype="float32")
    assert not restore_matching(saved(tmp_path, {"variables": before}), after).unmatched
    np.testing.assert_allclose(value_of(after[0]), value_of(before[0]), rtol=1e-7)
