"""The data of a compiled model as Keras takes it; its order follows from seed and epoch.

A model may preprocess its samples itself, as the tasks of KerasHub do.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.batches.feed import iterator_of
from towers.batches.shards import CUT_AT_ONCE, OwnRows, Shard, any_number_of_rows, cut_rows, split
from towers.ground.epochs import Epoch, Epochs, even_layout
from towers.ground.host import HOST
from towers.ground.private_apis import (
    ArrayDataAdapter,
    DataAdapter,
    GeneratorDataAdapter,
    PyDatasetAdapter,
    TensorflowSparseWrapper,
    array_rows,
    batches_seen,
    convert_to_sliceable,
    get_data_adapter,
    reshuffle_sizes,
    slice_tensorflow_sparse_wrapper,
    with_passes,
)
from towers.ground.random_numbers import permutation
from towers.processes.agreement import arrays_of, digest

METHODS = ("fit", "evaluate", "predict")
PREPROCESS, BATCH_SIZE = "preprocess_samples", 32


class Data:
    """Data that can be read from the beginning, pass after pass, if its batches are of tensors.

    Attributes:
        spec: the specs of a batch.
        num_batches: the number of batches in a pass; None if it is unknown or there is no end.
        one_pass: `one_pass(number, first_batch=0)` returns the batches of a pass over the data,
            from `first_batch` on.
        is_stream: whether its batches come only one after the other.
        is_part: whether other processes have other parts of it, and nobody knows how long they are.
        is_generator: whether it can be read only once.
        reshuffles: whether it draws another order each time that it is read.
    """

    spec: Any
    num_batches: int | None
    one_pass: Callable[..., tf.data.Dataset]
    is_stream = is_part = is_generator = reshuffles = False

    def begin(self) -> None:
        """Tells the data of a fit or an evaluation that begins."""

    def first_batch(self) -> Any:
        """Returns the first batch as tensors, without taking it from a generator."""
        return next(iterator_of(self.one_pass(0)))


class Shards(Data):
    """Data as the shards of a process's towers.

    Args:
        own: the towers of this process.
        most: the number of batches in the longest pass of all processes. A shorter one is filled
            with shards that count nothing. None: all have as many as the data.
        check: is called with the data each time that it begins.
        compared: whether other processes read the same data.

    Attributes:
        begun: a checksum of the first labels of each pass but the first, if they are compared.
    """

    def __init__(
        self,
        data: Data,
        own: OwnRows,
        most: int | None = None,
        check: Callable[[Data], None] = lambda data: None,
        *,
        compared: bool = False,
    ):
        self.data, self.spec, self.is_stream = data, data.spec, data.is_stream
        self.is_part, self.is_generator = data.is_part, data.is_generator
        self.num_batches = most or data.num_batches
        self._own, self._most, self._check, self._is_compared = own, most, check, compared
        self.begun: dict[str, str] = {}
        self._arrays = data.cut(own) if isinstance(data, ArrayData) else None

    def begin(self) -> None:
        """Tells the data of a fit or an evaluation that begins."""
        self.data.begin()
        self._check(self.data)
        self.num_batches = self._most or self.data.num_batches

    def first_batch(self) -> Any:
        """Returns the first batch as tensors, not cut."""
        return self.data.first_batch()

    def one_pass(self, number: int, first_batch: int = 0) -> tf.data.Dataset:
        """Returns the shards of a pass over the data, from the batch `first_batch` on."""
        count = self.data.num_batches
        if self._most is None or count is None or self._most == count:
            return self._read(number, first_batch)
        empty = self._read(0, 0).take(1).map(without_rows)
        shards = self._read(number, min(first_batch, count))
        return shards.concatenate(empty.repeat(self._most - max(count, first_batch)))

    def _read(self, number: int, first_batch: int) -> tf.data.Dataset:
        if self._arrays is not None:
            return self._arrays.one_pass(number, first_batch)
        batches = self.data.one_pass(number, first_batch)
        if number and self._is_compared:
            name = f"a checksum of the labels of batch {first_batch + 1} of pass {number + 1}"
            batches = telling(batches, lambda *labels: self.begun.update({name: checksum(labels)}))
        return split(batches, self._own.total, self._own.towers)


def checksum(tensors: Any) -> str:
    """Returns a short text that differs between tensors of other types, shapes or bits."""
    return digest(arrays_of(tensors))[:8]


def labels_of(batch: Any) -> list[tf.Tensor]:
    """Returns the tensors of a batch's labels, or of its inputs if it has none."""
    x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
    parts = tf.nest.flatten(x if y is None else y, expand_composites=True)
    return [part for part in parts if part is not None]


def telling(batches: tf.data.Dataset, hear: Callable[..., None]) -> tf.data.Dataset:
    """Returns batches of which `hear` is called with the labels of the first, once it is read."""

    def tell(index: tf.Tensor, batch: Any) -> Any:
        labels = labels_of(batch)
        tf.cond(index == 0, lambda: tf.py_function(hear, labels, []), tf.no_op)
        return batch

    return batches.enumerate().map(tf.autograph.experimental.do_not_convert(tell))


@tf.autograph.experimental.do_not_convert
def without_rows(*shards: Shard) -> tuple[Shard, ...]:
    """Returns shards of which no row counts."""
    first = tf.nest.map_structure(lambda part: part[:1], [shard.batch for shard in shards])
    return tuple(Shard(batch, tf.zeros([], tf.int32)) for batch in first)


def read_samples(
    model: keras.Model,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    **options: Any,
) -> Data:
    """Returns data as `read_data` does, each batch of it preprocessed by a model that does so.

    Such a model takes arrays, in their order, or a `tf.data.Dataset`, as in KerasHub.
    """
    if x is not None and preprocesses(model):
        if not isinstance(x, tf.data.Dataset):
            rows = keras.utils.pack_x_y_sample_weight(x, y, sample_weight)
            x, y, sample_weight = batches_of(model, rows, batch_size or BATCH_SIZE), None, None
        preprocess = getattr(model, PREPROCESS)
        x, batch_size = x.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE), None
    return read_data(x, y, sample_weight, batch_size=batch_size, **options)


def sliceable(model: keras.Model, x: Any) -> Any:
    """Returns inputs that Keras can slice: texts that a model preprocesses as tensors."""
    return map_arrays(tf.convert_to_tensor, x) if preprocesses(model) else x


def preprocesses(model: keras.Model) -> bool:
    """Returns whether a model has methods of its own that preprocess and then call Keras's.

    They are taken for such if one class has all of them and `preprocess_samples` besides.
    """
    owners = {next(kind for kind in type(model).__mro__ if name in vars(kind)) for name in METHODS}
    return PREPROCESS in vars(owners.pop()) and not owners and not set(METHODS) & set(vars(model))


def batches_of(model: keras.Model, rows: Any, batch_size: int) -> tf.data.Dataset:
    """Returns batches of arrays, or of lists of texts, in their order."""
    try:
        return tf.data.Dataset.from_tensor_slices(rows).batch(batch_size)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{type(model).__name__} preprocesses its samples, which must be arrays with equally "
            f"many rows, or a tf.data.Dataset of batches. Received {type(rows).__name__}."
        ) from error


def read_data(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    class_weight: dict[int, float] | None = None,
    shuffle: bool | str = False,
    seed: int = 0,
) -> Data:
    """Returns data from anything that `keras.Model.fit` takes.

    Args:
        x, y, sample_weight, batch_size, class_weight: as in `keras.Model.fit`.
        steps: the number of steps of an epoch, or None.
        shuffle: whether arrays and the batches of a `PyDataset` are shuffled; `batch`: the rows of
            arrays within each batch. Other data is in its own order.
        seed: the order follows from it and from the number of the epoch.

    Raises:
        ValueError: Keras would refuse the data too.
    """
    check_given(x)
    if isinstance(x, tf.distribute.DistributedDataset):
        raise ValueError(
            "Towers cut global batches themselves. Received a data set that a strategy of "
            "tf.distribute cuts; pass the one that it was made of."
        )
    try:
        adapter = get_data_adapter(
            x, y, sample_weight, batch_size, steps_per_epoch=steps, class_weight=class_weight
        )
        if isinstance(adapter, ArrayDataAdapter):
            return ArrayData(adapter, shuffle, seed)
    except (ValueError, IndexError) as error:  # The second of a list of single numbers.
        if not str(error).startswith(("Unrecognized data type", "Invalid dtype", "tuple index")):
            raise
        kinds = " and ".join(map(kind_of, (x, y)))
        raise ValueError(
            "x and y take arrays of numbers, or x a tf.data.Dataset, keras.utils.PyDataset or "
            f"generator of batches. Received {kinds}; np.asarray makes an array of a list."
        ) from error
    if isinstance(adapter, PyDatasetAdapter):
        return PyData(x, class_weight, bool(shuffle), seed)
    return IterableData(adapter)


def check_given(x: Any) -> None:
    """Raises ValueError if there is no data."""
    if x is None:
        raise ValueError("There is no data. Received x=None; pass arrays or a data set.")


def kind_of(value: Any) -> str:
    """Returns the type of some data in words, of arrays also that of their numbers."""
    dtype = getattr(value, "dtype", None)
    return f"{type(value).__name__}{f' of {dtype}' if dtype is not None else ''}"


class ArrayData(Data):
    """Arrays in memory: any batch is found at once."""

    one_pass: Epochs

    def __init__(self, adapter: ArrayDataAdapter, shuffle: bool | str, seed: int):
        self._own: OwnRows | None = None  # Into whose shards the batches are cut.
        self._rows: int | None = None  # Of each batch, where batches tell it.
        self._order, self.batch_size = (shuffle, seed), adapter.batch_size
        self._num_rows, arrays = array_rows(adapter)
        self._lay_out()
        arrays = convert_to_sliceable(arrays, target_backend="tensorflow")
        with tf.device(HOST):
            self._arrays = map_arrays(as_tensor, keras.tree.lists_to_tuples(arrays))
        self.spec = map_arrays(spec_of, self._arrays)

    def cut(self, own: OwnRows | None) -> ArrayData:
        """Returns the data as shards, which are cut as the rows are read: one trace does both."""
        return self._with(_own=own)

    def as_in_keras(self) -> ArrayData:
        """Returns the data as batches that tell their number of rows where all have the same."""
        sizes = set(self.one_pass.layout.shapes[:, 0].tolist())
        return self._with(_own=None, _rows=sizes.pop() if len(sizes) == 1 else None)

    def in_batches_of(self, batch_size: int) -> ArrayData:
        """Returns the data in batches of another size."""
        other = self._with(batch_size=batch_size)
        other._lay_out()
        return other

    def arrays(self) -> list[np.ndarray]:
        """Returns what the arrays hold."""
        parts = tf.nest.flatten(self._arrays, expand_composites=True)
        return [part.numpy() for part in parts if tf.is_tensor(part)]

    def _lay_out(self) -> None:
        shuffle, seed = self._order
        layout = even_layout(self._num_rows, self.batch_size)
        if shuffle == "batch":
            layout = layout._replace(groups=layout.rows // self.batch_size)
        self.num_batches = layout.num_batches
        self.one_pass = Epochs(self._load, layout, len(layout.rows), seed, bool(shuffle))

    def _with(self, **changes: Any) -> ArrayData:
        other = copy.copy(self)
        vars(other).pop("_traced", None)
        vars(other).update(changes)
        other.one_pass = dataclasses.replace(self.one_pass, load=other._load)
        return other

    def _load(self, epoch: Epoch) -> tf.data.Dataset:
        """Returns the batches of a pass over the arrays, or their shards."""
        # As Keras does: the arrays are no constants of a graph, which would be copied.
        whole = tf.data.Dataset.from_tensors((epoch.order(), self._arrays)).repeat()
        options = tf.data.Options()
        options.experimental_optimization.apply_default_optimizations = False
        batches = tf.data.Dataset.zip(epoch.slices(), whole).map(
            self._traced, num_parallel_calls=CUT_AT_ONCE
        )
        return batches.with_options(options)

    @functools.cached_property
    def _traced(self) -> Callable[..., Any]:
        """What every pass calls for a batch, and traces once."""
        return tf.function(self._take, autograph=False)

    def _take(self, span: tuple[tf.Tensor, tf.Tensor], whole: Any) -> Any:
        """Returns a batch, or the shards of it that are this process's."""
        (start, stop), (order, arrays), own = span, whole, self._own
        size = tf.cast(stop - start, tf.int32)
        sizes = [size] if own is None else own.sizes(size)
        if own is not None and len(sizes) < own.total:
            count = tf.add_n(sizes)  # Where it is 0, the first row stands in the shards.
            start += tf.cast(tf.where(count > 0, own.start(size), 0), start.dtype)
            stop = start + tf.cast(tf.maximum(count, 1), start.dtype)
        chosen = tf.ensure_shape(order[start:stop], [self._rows])
        batch = map_arrays(lambda array: rows_of(array, chosen), arrays)
        if len(sizes) > 1:
            return cut_rows(batch, sizes)
        return batch if own is None else (Shard(batch, sizes[0]),)


def map_arrays(function: Callable[[Any], Any], arrays: Any) -> Any:
    """Returns a nest of arrays with a function of each; a sparse one is a tuple itself."""
    if isinstance(arrays, dict):
        return {name: map_arrays(function, one) for name, one in arrays.items()}
    if isinstance(arrays, tuple) and not isinstance(arrays, TensorflowSparseWrapper):
        parts = [map_arrays(function, one) for one in arrays]
        return type(arrays)(*parts) if hasattr(arrays, "_fields") else tuple(parts)
    return function(arrays)


def as_tensor(array: Any) -> Any:
    """Returns an array as a tensor; what is none, such as a sparse one, as it is."""
    is_other = array is None or isinstance(array, (TensorflowSparseWrapper, tf.RaggedTensor))
    return array if is_other else tf.convert_to_tensor(array)


def spec_of(array: Any) -> tf.TypeSpec:
    """Returns the spec of any number of rows of an array, or of what stands in its place."""
    if array is None:
        return tf.NoneTensorSpec()
    tensor = array.sparse if isinstance(array, TensorflowSparseWrapper) else array
    return any_number_of_rows(tf.type_spec_from_value(tensor))


def rows_of(array: Any, chosen: tf.Tensor) -> Any:
    """Returns some rows of an array."""
    if isinstance(array, TensorflowSparseWrapper):
        return slice_tensorflow_sparse_wrapper(array, chosen)
    return None if array is None else tf.gather(array, chosen)


class PyData(Data):
    """A `keras.utils.PyDataset`, whose batches are taken by their index.

    As in Keras, an epoch has at most as many batches as there were when the fit began.
    """

    def __init__(
        self,
        dataset: keras.utils.PyDataset,
        class_weight: dict[int, float] | None,
        shuffle: bool,
        seed: int,
    ):
        self.num_batches = dataset.num_batches
        self._dataset, self._class_weight = dataset, class_weight
        self._shuffle, self._seed = shuffle, seed
        whole = PyDatasetAdapter(dataset, class_weight=class_weight).get_tf_dataset()
        self.spec = whole.element_spec

    def begin(self) -> None:
        """Tells the data of a fit or an evaluation that begins: Keras ends an epoch before it."""
        self.num_batches = self._dataset.num_batches
        self._dataset.on_epoch_end()

    def one_pass(self, number: int, first_batch: int = 0) -> tf.data.Dataset:
        """Returns the batches of a pass over the data set, from `first_batch` on."""
        chosen = ChosenBatches(self._dataset, lambda: self._order(number), first_batch)
        adapter = PyDatasetAdapter(chosen, class_weight=self._class_weight)
        return with_passes(adapter, self.spec)

    def _order(self, number: int) -> np.ndarray | None:
        """Returns the indices of the batches of a pass; None if there is no end."""
        count = self._dataset.num_batches
        if count is None or self.num_batches is None:
            return None
        if count < self.num_batches:
            warnings.warn(
                f"The data set has {count} batches in this epoch, and had {self.num_batches} when "
                "the training began: the epoch is shorter.",
                stacklevel=2,
            )
        drawn = permutation(count, seed=self._seed, epoch=number) if self._shuffle else None
        return (np.arange(count) if drawn is None else drawn)[: self.num_batches]

    def first_batch(self) -> Any:
        """Returns the first batch as tensors."""
        return as_tensors(self._dataset[0])


class ChosenBatches(keras.utils.PyDataset):
    """Batches of a `PyDataset` in another order, for one pass.

    Args:
        choose: returns the indices of its batches, once the pass begins; None: as they are.
        first: the index of the first batch in the order.
    """

    def __init__(
        self,
        dataset: keras.utils.PyDataset,
        choose: Callable[[], np.ndarray | None],
        first: int,
    ):
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self._dataset, self._choose, self._first = dataset, choose, first
        self._order: np.ndarray | None = None

    @property
    def num_batches(self) -> int | None:
        """The number of batches that are left."""
        return None if self._order is None else len(self._order)

    def __getitem__(self, index: int) -> Any:
        chosen = self._first + index if self._order is None else int(self._order[index])
        return self._dataset[chosen]

    def on_epoch_begin(self) -> None:
        """Begins the pass."""
        self._dataset.on_epoch_begin()
        order = self._choose()
        self._order = None if order is None else order[self._first :]

    def on_epoch_end(self) -> None:
        """Ends the pass."""
        self._dataset.on_epoch_end()


class IterableData(Data):
    """Data in an order of its own: a `tf.data.Dataset`, a PyTorch data loader, a generator."""

    is_stream = True

    def __init__(self, adapter: DataAdapter):
        self.num_batches = adapter.num_batches
        self.is_generator = isinstance(adapter, GeneratorDataAdapter)
        self._dataset = adapter.get_tf_dataset()
        self.spec = self._dataset.element_spec
        self._seen = batches_seen(adapter)
        self.reshuffles = bool(reshuffle_sizes(self._dataset))

    def one_pass(self, number: int, first_batch: int = 0) -> tf.data.Dataset:
        """Returns the batches of a pass over the data; what comes before is read and dropped."""
        return self._dataset.skip(first_batch) if first_batch else self._dataset

    def first_batch(self) -> Any:
        """Returns the first batch as tensors, without taking it from a generator."""
        return as_tensors(self._seen[0]) if self.is_generator else super().first_batch()


def as_tensors(batch: Any) -> Any:
    """Returns a batch as tensors; what is None stays so."""
    return tf.nest.map_structure(
        lambda one: None if one is None else tf.convert_to_tensor(one), batch
    )
