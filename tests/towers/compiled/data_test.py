"""Data as Keras takes it: every kind in the same batches, in an order that can be resumed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from towers.compiled.data import read_data
from towers.compiled.epoch_batches import epochs_of
from towers.compiled.input_errors import in_one_sentence

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10.0)[:, None] * 0.1


def rows_of(dataset):
    """The first column of each batch's inputs, halved: the numbers of its rows."""
    return [(batch[0].numpy()[:, 0] / 2).astype(int).tolist() for batch in dataset]


def batches_of_epoch(data, epoch, first_step=0, steps=None):
    return rows_of(epochs_of(data, steps)(epoch, first_step))


class Numbered(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.epochs = []

    @property
    def num_batches(self):
        return 3

    def __getitem__(self, index):
        return X[4 * index : 4 * index + 4], Y[4 * index : 4 * index + 4]

    def on_epoch_begin(self):
        self.epochs.append("begin")

    def on_epoch_end(self):
        self.epochs.append("end")


def generate():
    while True:
        for start in (0, 4, 8):
            yield X[start : start + 4], Y[start : start + 4]


def test_arrays_are_cut_in_their_order():
    data = read_data(X, Y, batch_size=4)
    assert batches_of_epoch(data, 3) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches_of_epoch(data, 3, first_step=2) == [[8, 9]]
    assert read_data(X, Y).num_batches == 1, "32 rows, as in Keras"


def test_a_shuffled_order_follows_from_seed_and_epoch():
    def data(seed):
        return read_data(X, Y, batch_size=4, shuffle=True, seed=seed)

    orders = {
        (seed, epoch): batches_of_epoch(data(seed), epoch) for seed in (0, 1) for epoch in (0, 1)
    }
    assert len({str(order) for order in orders.values()}) == 4
    for (seed, epoch), order in orders.items():
        assert sorted(np.concatenate(order)) == list(range(10))
        assert batches_of_epoch(data(seed), epoch, first_step=1) == order[1:]


def test_rows_are_shuffled_within_a_batch():
    order = batches_of_epoch(read_data(X, Y, batch_size=4, shuffle="batch"), 0)
    assert list(map(sorted, order)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert order != batches_of_epoch(read_data(X, Y, batch_size=4), 0)


def test_a_py_dataset_is_shuffled_by_batches_and_hears_of_its_epochs():
    dataset = Numbered()
    data = read_data(dataset, shuffle=True, seed=3)
    order = batches_of_epoch(data, 1)
    assert sorted(order) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert dataset.epochs == ["begin", "end"]
    assert batches_of_epoch(data, 1, first_step=1) == order[1:]
    assert batches_of_epoch(read_data(Numbered()), 0) == sorted(order)
    assert len({str(batches_of_epoch(data, epoch)) for epoch in range(8)}) > 1


def test_a_py_dataset_with_workers_gives_the_same_batches():
    data = read_data(Numbered(workers=2), shuffle=True, seed=3)
    assert batches_of_epoch(data, 1) == batches_of_epoch(
        read_data(Numbered(), shuffle=True, seed=3), 1
    )


@pytest.mark.parametrize("kind", ["arrays", "py_dataset", "dataset"])
def test_epochs_of_so_many_steps_go_on_where_the_last_one_stopped(kind):
    kinds = {
        "arrays": lambda: read_data(X, Y, batch_size=2),
        "py_dataset": lambda: read_data(Halved()),
        "dataset": lambda: read_data(tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)),
    }
    data = kinds[kind]()
    batches = epochs_of(data, 2)
    assert rows_of(batches(0, 0)) == [[0, 1], [2, 3]]
    assert rows_of(batches(1, 0)) == [[4, 5], [6, 7]]
    with pytest.warns(UserWarning, match="ended before the steps of the epoch"):
        assert rows_of(batches(2, 0)) == [[8, 9]]
    assert rows_of(batches(3, 0)) == [[0, 1], [2, 3]]
    assert rows_of(epochs_of(kinds[kind](), 2)(1, 1)) == [[6, 7]], "resumed"


class Halved(Numbered):
    @property
    def num_batches(self):
        return 5

    def __getitem__(self, index):
        return X[2 * index : 2 * index + 2], Y[2 * index : 2 * index + 2]


def test_a_generator_is_read_on_and_loses_no_batch():
    batches = epochs_of(read_data(generate()), 2)
    assert rows_of(batches(0, 0)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert rows_of(batches(1, 0)) == [[8, 9], [0, 1, 2, 3]]


def test_a_part_that_ends_before_those_of_others_is_told_in_one_sentence():
    data = read_data(tf.data.Dataset.range(3).batch(1).filter(lambda row: True))
    data.is_part = True
    told = r"^This process's part of the data ended after 3 of 5 steps, .*\(number of batches\)\.$"
    batches = epochs_of(data, 5)
    with pytest.raises(ValueError, match=told), in_one_sentence():
        list(batches(0, 0))


@pytest.mark.parametrize(
    "kind",
    [
        "arrays",
        "dataset",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("py_dataset", "generator")),
    ],
)
def test_every_kind_of_data_trains_the_same(kind):
    kinds = {
        "arrays": lambda: ((X, Y), {"batch_size": 4}),
        "dataset": lambda: ((tf.data.Dataset.from_tensor_slices((X, Y)).batch(4),), {}),
        "py_dataset": lambda: ((Numbered(),), {}),
        "generator": lambda: ((generate(),), {"steps_per_epoch": 3}),
    }
    weights = []
    for fit, extra in ((keras.Model.fit, {}), (towers.fit, {"towers": tower_devices(2)})):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-3), "mse")
        arguments, options = kinds[kind]()
        shuffle = {"shuffle": False}
        fit(model, *arguments, epochs=2, verbose=0, **options, **extra, **shuffle)
        weights.append(model.get_weights()[0])
    np.testing.assert_allclose(*weights, rtol=1e-5)


def test_data_frames_are_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    data = read_data(frame, pandas.Series(Y[:, 0]), batch_size=4)
    assert batches_of_epoch(data, 0) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_data_loader_of_pytorch_gives_its_batches():
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    loader = torch.utils.data.DataLoader(tensors, batch_size=4)
    assert batches_of_epoch(read_data(loader), 0) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
