"""Batches of a user's own data: each example once, in an order of (seed, epoch), resumable."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers


def test_resuming_skips_what_was_consumed():
    batches = towers.batches_from(tf.data.Dataset.range(6).batch(2))
    assert [batch.numpy().tolist() for batch in batches(3, 1)] == [[2, 3], [4, 5]]
    assert len(list(batches(4, 0))) == 3


def test_an_order_for_each_epoch_is_resumed_where_it_stopped():
    """Every example once, though the epoch was begun by one process and ended by another."""
    numbers = tf.data.Dataset.range(20)

    def of_epoch(epoch):
        return numbers.shuffle(20, seed=epoch).batch(3)

    def rows(dataset):
        return [row for batch in dataset for row in batch.numpy().tolist()]

    batches, resumed = towers.batches_from(of_epoch), towers.batches_from(of_epoch)
    for epoch in (0, 1):
        whole = rows(batches(epoch, 0))
        assert sorted(whole) == list(range(20)) != whole
        assert rows(batches(epoch, 0).take(4)) + rows(resumed(epoch, 4)) == whole
    assert rows(batches(0, 0)) != rows(batches(1, 0))


def test_a_shuffle_that_cannot_be_resumed_is_named():
    numbers = tf.data.Dataset.range(8)
    shuffled = tf.data.Dataset.zip(numbers.shuffle(8, seed=1), numbers).batch(2).prefetch(1)
    with pytest.warns(UserWarning, match=r"has shuffle\(8\), .*batches_from\(lambda epoch:"):
        towers.batches_from(shuffled)
    towers.batches_from(numbers.shuffle(8, seed=1, reshuffle_each_iteration=False).batch(2))


@pytest.mark.parametrize("wrong", [3, None, {1, 2}])
def test_what_is_no_data_is_refused(wrong):
    with pytest.raises(ValueError, match=r"takes a tf\.data\.Dataset .*__getitem__.*Received"):
        towers.batches_from(wrong)


def test_a_function_of_the_epoch_has_to_return_data_sets_of_one_structure():
    rows = tf.data.Dataset.range(4).batch(2)
    with pytest.raises(ValueError, match=r"must return a tf\.data\.Dataset .*Received NoneType"):
        towers.engine.shard_specs(towers.batches_from(lambda epoch: None), 2)
    with pytest.raises(ValueError, match=r"must return a tf\.data\.Dataset .*Received list"):
        towers.engine.shard_specs(lambda epoch, first_step: [rows], 2)
    others = [tf.data.Dataset.zip((rows, rows)), rows.map(lambda row: tf.cast(row, tf.float32))]
    for other in others:
        batches = towers.batches_from([rows, rows, other].__getitem__)
        assert batches(1, 0).element_spec == rows.element_spec
        with pytest.raises(ValueError, match=r"one structure and the same types.* in epoch 2, and"):
            batches(2, 1)
    longer = towers.batches_from([rows, tf.data.Dataset.range(4).batch(2, True)].__getitem__)
    assert [batch.shape[0] for batch in (*longer(0), *longer(1))] == [2] * 4


def test_data_sets_within_a_data_set_are_refused():
    with pytest.raises(ValueError, match=r"Received a data set .*`window`.*`dataset\.batch"):
        towers.engine.shard_specs(tf.data.Dataset.range(8).window(4), 2)


def test_options_that_do_not_fit_the_data_are_refused():
    with pytest.raises(ValueError, match=r"needs a batch_size.*Received ndarray"):
        towers.batches_from(np.ones(3))
    with pytest.raises(ValueError, match="call its `shuffle` and `batch` instead"):
        towers.batches_from(tf.data.Dataset.range(4).batch(2), shuffle=True)
    with pytest.raises(ValueError, match=r"at least 1\. Received 0"):
        towers.batches_from(np.ones(3), 0)


class Counting:
    """Examples by number, which notes what is read, as data sets of other libraries have them."""

    def __init__(self, count):
        self.count, self.read = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        picture = np.full([2, 2], index, np.uint8)
        return {"picture": picture, "label": index % 3, "share": 0.5, "name": f"no. {index}"}


class CountingSeveral(Counting):
    """The same, several at once."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.parametrize("kind", [Counting, CountingSeveral])
def test_numbered_examples_come_once_and_resume_without_reading_others(kind):
    source = kind(11)
    batches = towers.batches_from(source, 4, shuffle=True, seed=3)
    whole = [batch["label"].numpy().tolist() for batch in batches(2)]
    names = [name for batch in batches(2) for name in batch["name"].numpy()]
    assert sorted(names) == sorted(f"no. {index}".encode() for index in range(11))
    assert [len(labels) for labels in whole] == [4, 4, 3] and batches.steps_per_epoch == 3
    source.read.clear()
    rest = list(batches(2, 2))
    assert [batch["label"].numpy().tolist() for batch in rest] == whole[2:]
    assert len(source.read) == 3
    assert rest[0]["picture"].dtype == tf.uint8 and rest[0]["share"].dtype == tf.float32
    assert batches(0).element_spec["picture"].shape == [None, 2, 2]
    orders = [tuple(map(tuple, (b["name"].numpy() for b in batches(epoch)))) for epoch in (0, 1)]
    assert orders[0] != orders[1]


def test_arrays_are_read_by_rows_where_they_lie(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(20, dtype=np.float32).reshape(10, 2))
    features = np.load(tmp_path / "x.npy", mmap_mode="r")
    batches = towers.batches_from((features, {"label": np.arange(10)}), 4)
    read = list(batches(5, 1))
    np.testing.assert_array_equal(np.concatenate([x for x, _ in read]), features[4:])
    assert [y["label"].numpy().tolist() for _, y in read] == [[4, 5, 6, 7], [8, 9]]
    with pytest.raises(ValueError, match=r"shapes \(3,\), \(2,\)"):
        towers.batches_from((np.ones(3), np.ones(2)), 1)


def test_examples_of_another_shape_are_named():
    batches = towers.batches_from([np.ones(2), np.ones(2), np.ones(3)], 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Example 2 has .*pad or resize"):
        list(batches(0))
    with pytest.raises(ValueError, match="numbers, texts or arrays"):
        towers.batches_from([{"x": None}], 1)
    with pytest.raises(ValueError, match="empty"):
        towers.batches_from([], 1)


def test_towers_train_on_numbered_examples_as_on_the_same_data_set():
    (batch,) = helpers.dense_batches([12])
    rows = list(zip(*(np.asarray(part) for part in batch), strict=True))
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(np.asarray, batch))).batch(5)
    weights = []
    for batches in (towers.batches_from(rows, 5), towers.batches_from(dataset)):
        keras.utils.set_random_seed(1)
        placement = towers.Placement(helpers.tower_devices(2))
        with placement.scope():
            model = keras.Sequential([keras.Input(rows[0][0].shape), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(0.1)

        def tower_fn(shard, model=model):
            features, labels = shard
            errors = tf.reshape(model(features), [-1]) - tf.cast(
                tf.reshape(labels, [-1]), "float32"
            )
            return tf.reduce_sum(errors**2), tf.reduce_sum(tf.ones_like(errors)), {}

        step = towers.build_train_step(tower_fn, model, optimizer, placement, batches)
        updates = towers.steps.SynchronousUpdates(step, batches)
        towers.Trainer.making(updates).train(epochs=2)
        weights.append([variable.numpy() for variable in model.variables])
    for left, right in zip(*weights, strict=True):
        np.testing.assert_array_equal(left, right)


def test_lists_in_a_tuple_of_arrays_are_tuples_of_arrays():
    first, second, labels = np.zeros([4, 2]), np.ones([4, 3]), np.arange(4)
    batches = towers.batches_from(([first, second], labels), 3)
    (one, other), rows = next(iter(batches(0, 1)))
    assert (one.shape, other.shape, rows.numpy().tolist()) == ((1, 2), (1, 3), [3])


@pytest.mark.parametrize(
    "source, size, message",
    [
        ("data.csv", 4, "Received the text 'data.csv'"),
        (np.zeros([4, 2]), 2.0, "batch_size must be a whole number"),
    ],
)
def test_what_are_no_examples_is_refused(source, size, message):
    with pytest.raises(ValueError, match=message):
        towers.batches_from(source, size)
