"""One of several processes of `together_test.py`, or the one that they are compared with."""

import functools
import http.server
import json
import os
import threading

import keras
import numpy as np
import tensorflow as tf

import towers
from tests import helpers

ROWS, BATCH = 44, 8
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(ROWS, 4)).astype("float32"), RANDOM.integers(0, 3, ROWS)
HELD_OUT = RANDOM.normal(size=(9, 4)).astype("float32"), RANDOM.integers(0, 3, 9)


def network(index, make=keras.Sequential, **options):
    """A model whose first weights are another's in each process: those of the chief count."""
    keras.utils.set_random_seed(1 + index)
    layers = keras.layers
    model = make([keras.Input((4,)), layers.Dense(8, "relu"), layers.BatchNormalization(),
                  layers.Dropout(0.2), layers.Dense(3, "softmax")])  # fmt: skip
    return compiled(model, **options)


def compiled(model, **options):
    losses = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(0.05, **options), losses, metrics=["accuracy"])
    return model


def fit(one, model, x=X, y=Y, **options):
    """Trains a model on this process's towers; returns all that must be equal everywhere."""
    options = {"batch_size": BATCH, "epochs": 2, "verbose": 0, **options}
    history = towers.fit(model, x, y, towers=one["devices"], **options)
    return {"history": history.history, "epochs": history.epoch, "weights": weights_of(model)}


def weights_of(model):
    return [np.float64(weight).tolist() for weight in model.get_weights()]


class Records(keras.callbacks.Callback):
    """What a callback of one's own hears."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def on_epoch_end(self, epoch, logs=None):
        self.heard.append([epoch, {name: float(value) for name, value in logs.items()}])


class StopsInStep(keras.callbacks.Callback):
    """Stops in a step of the second epoch, in the last process alone."""

    def __init__(self, one):
        super().__init__()
        self.steps, self._asks = 0, one["index"] == one["count"] - 1

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self._asks and self.steps == 8:
            self.model.stop_training = True


def callbacks(one):
    """Those that decide, write and restore; the folder has only what the chief wrote."""
    kinds, folder = keras.callbacks, one["folder"] / "callbacks"
    folder.mkdir()
    records = Records()
    heard = [
        records,
        kinds.EarlyStopping("val_loss", patience=2, restore_best_weights=True, min_delta=0.02),
        kinds.ReduceLROnPlateau("val_loss", factor=0.5, patience=1, min_delta=0.5),
        kinds.ModelCheckpoint(folder / "{epoch}.weights.h5", save_weights_only=True),
        kinds.CSVLogger(folder / "log.csv"),
        kinds.BackupAndRestore(folder / "backup"),
        kinds.LambdaCallback(on_epoch_begin=lambda epoch, logs: records.heard.append(epoch)),
    ]
    if one["all"]:
        rate = kinds.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
        heard += [rate, kinds.TerminateOnNaN(), kinds.TensorBoard(folder / "curves")]
        heard += [kinds.RemoteMonitor(f"http://{one['monitor']}"), kinds.SwapEMAWeights()]
    model = network(one["index"], use_ema=one["all"])
    heard = kinds.CallbackList(heard, add_history=True)
    count = len(heard.callbacks)
    found = fit(one, model, epochs=7, validation_data=HELD_OUT, callbacks=heard)
    found["left"] = len(heard.callbacks) - count
    one["own"]["written"] = sorted(path.name for path in folder.iterdir())
    return found | {"heard": records.heard}


def evaluation(one):
    """Loss and metrics, and outputs of batches that do not come out even."""
    weights = network(0).get_weights()
    model = network(one["index"])  # The seeds of its random numbers are its own in each process.
    model.set_weights(weights)
    options = {"verbose": 0, "towers": one["devices"], "batch_size": BATCH}
    metrics = towers.evaluate(model, X, Y, return_dict=True, **options)
    outputs = [towers.predict(model, X[:rows], **options) for rows in (3, ROWS)]
    return {"metrics": metrics, "outputs": [np.float64(one).tolist() for one in outputs]}


class Predicts(keras.Model):
    """A model with a `predict` of its own, which takes arrays."""

    def call(self, inputs):
        return keras.layers.Rescaling(2.0)(inputs)

    def predict(self, x, **options):
        return super().predict(x[::-1], **options)


def kinds(one):
    """Outputs of all kinds, in a dict; those of a `predict` of one's own, and of carried states."""
    options = {"verbose": 0, "towers": one["devices"], "batch_size": 4}
    x = X[:20]

    def outputs(rows):
        ragged = tf.RaggedTensor.from_tensor(rows, lengths=tf.cast(rows[:, 0] > 0, tf.int64))
        texts, halves = tf.strings.as_string(rows[:, 0] > 0), tf.cast(rows, tf.bfloat16)
        return {
            "text": texts,
            "half": halves,
            "ragged": ragged,
            "sparse": tf.sparse.from_dense(rows),
        }

    found = towers.predict(keras.Sequential([keras.layers.Lambda(outputs)]), x, **options)
    sums = keras.layers.RNN(Sums(4), stateful=True)
    sums.build((4, 1, 4))
    return {
        "text": [int(text == b"true") for text in found["text"]],
        "half": np.float64(found["half"]).tolist(),
        "ragged": found["ragged"].to_list(),
        "sparse": tf.sparse.to_dense(found["sparse"]).numpy().tolist(),
        "own": towers.predict(Predicts(), x, **options).tolist(),
        "carried": towers.predict(keras.Sequential([sums]), x[:, None], **options).tolist(),
    }


class Sums(keras.layers.Layer):
    """A cell that adds up what it gets."""

    def __init__(self, size):
        super().__init__()
        self.state_size = self.output_size = size

    def call(self, inputs, states):
        return (total := inputs + states[0]), [total]


def parts(one):
    """Parts of their own: only the chief has a last batch."""
    whole = network(one["index"])  # Which rows share a tower, with its masks, is another here.
    model = compiled(keras.Sequential([whole.layers[0], whole.layers[-1]]))
    count, size = one["count"], BATCH // one["count"]
    part = np.concatenate([np.arange(ROWS)[start + size * one["index"] :][:size]
                           for start in range(0, 40, BATCH)])  # fmt: skip
    if one["index"] == 0:
        part = np.concatenate([part, np.arange(40, 40 + size)])
    if count == 1:
        part = np.arange(40 + BATCH // one["processes"])
    data = "same" if count == 1 else "own"
    return fit(one, model, X[part], Y[part], shuffle=False, data=data)


def words(one):
    """Calls of three batches, of which each looks up another number of words."""
    keras.utils.set_random_seed(1 + one["index"])
    ids = np.stack([np.arange(ROWS) % (2 + np.arange(ROWS) // BATCH), Y], axis=1)
    layers = [keras.Input((2,), dtype="int32"), keras.layers.Embedding(9, 4)]
    model = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=3)
    return fit(one, model, ids, shuffle=False)


def steps(one):
    """Epochs of so many steps of a data set; a callback stops in a step of one process."""
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).repeat()
    stops = StopsInStep(one)
    model = network(one["index"])
    found = fit(one, model, data, None, batch_size=None, steps_per_epoch=5, callbacks=[stops])
    return found | {"steps": stops.steps}


def begins(one):
    """The last process alone stops where its second epoch begins: one batch is trained of it.

    It evaluates alone, too.
    """
    keras.utils.set_random_seed(1 + one["index"])
    model = compiled(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")]))

    def stop(epoch, logs):
        model.stop_training |= epoch == 1 and one["index"] == one["count"] - 1

    def evaluate(epoch, logs):
        if one["index"] == one["count"] - 1:
            towers.evaluate(model, X, Y, verbose=0, towers=one["devices"], alone=True)

    stops = keras.callbacks.LambdaCallback(on_epoch_begin=stop, on_epoch_end=evaluate)
    return fit(one, model, epochs=3, callbacks=[stops]) | {"steps": int(model.optimizer.iterations)}


class StopsChief(keras.callbacks.CSVLogger):
    """Stops in a step where nobody asks for it: what writes runs in the chief alone."""

    def __init__(self, one, step):
        super().__init__(one["folder"] / "stopped.csv")
        self._steps, self._step = 0, step

    def on_train_batch_end(self, batch, logs=None):
        self._steps += 1
        if self._steps == self._step:
            self.model.stop_training = True


def outside(one):
    """The chief alone stops, in the midst of an epoch and in its last step.

    The request travels with the next sum: that of a step, or of the epoch's end.
    """
    found = []
    for step in (8 + (one["count"] == 1), 6):
        keras.utils.set_random_seed(1)
        model = compiled(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")]))
        found += [fit(one, model, epochs=3, callbacks=[StopsChief(one, step)])["history"]]
        found += [{"steps": int(model.optimizer.iterations)}]
    return {"found": found}


def resumed(one):
    """A run that goes on; only the chief has its folder."""
    run_dir = one["folder"] / "run"
    fit(one, network(one["index"]), run_dir=run_dir)
    found = fit(one, network(one["index"]), epochs=3, run_dir=run_dir)
    one["own"]["checkpoints"] = (run_dir / "checkpoints").exists()
    one["own"]["curves"] = sorted(path.name for path in (run_dir / "summaries").iterdir())
    return found


class OwnStep(keras.Sequential):
    """A model with a step of its own."""

    def train_step(self, data):
        return super().train_step(data)


def other_rate(rate, layers):
    """A model with another rate of its dropout."""
    layers[3].rate = rate
    return keras.Sequential(layers)


def calls_of(size, layers):
    """A model of which so many batches are a call."""
    model = keras.Sequential(layers)
    model.compile = functools.partial(model.compile, steps_per_execution=size)
    return model


class Shuffles(keras.utils.PyDataset):
    """Batches whose order is another in each process from the second epoch on."""

    def __init__(self, one):
        super().__init__()
        self.order, self._index, self._ends = np.arange(ROWS), one["index"], 0

    def __len__(self):
        return ROWS // BATCH

    def __getitem__(self, index):
        rows = self.order[index * BATCH :][:BATCH]
        return X[rows], Y[rows]

    def on_epoch_end(self):
        self._ends += 1
        if self._ends > 1:  # Keras ends an epoch before the first.
            self.order = np.random.default_rng(self._index).permutation(ROWS)


def compiles(one, hook):
    """A callback that compiles the model anew, in the last process alone."""

    def compile_anew(*_, **__):
        if one["index"] == one["count"] - 1:
            callback.model.compile("sgd", "sparse_categorical_crossentropy")

    callback = keras.callbacks.LambdaCallback(**{hook: compile_anew})
    return {"callbacks": [callback], "validation_data": HELD_OUT}


def refused(one):
    """What is said of other data, other settings and own code; and what trains alone."""
    index, said = one["index"], []
    tries = [(keras.Sequential, {"y": Y + index}), (keras.Sequential, {"epochs": 1 + index})]
    tries += [(keras.Sequential, {"batch_size": one["count"] - 1, "data": "own"}), (OwnStep, {})]
    tries += [
        (functools.partial(other_rate, 0.2 + index / 10), {}),
        (functools.partial(calls_of, 1 + index), {}),
        (keras.Sequential, {"x": Shuffles(one), "y": None, "batch_size": None, "shuffle": False}),
    ]
    hooks = ("on_epoch_end", "on_train_batch_begin", "on_test_begin")
    tries += [(keras.Sequential, compiles(one, hook)) for hook in hooks]
    for make, options in tries if one["count"] > 1 else []:
        try:
            fit(one, network(index, make), **options)
        except ValueError as error:
            said.append(str(error))
    try:  # The chief alone evaluates.
        if one["count"] > 1:
            (evaluation if index == 0 else parts)(one)
    except RuntimeError as error:
        said.append(str(error))
    one["own"]["said"] = said
    rows = BATCH - index
    found = fit(one, network(index), X[:rows], Y[:rows], epochs=1, alone=True)["epochs"]
    if one["count"] > 1:
        one["own"]["shorter"] = shorter(one)
    return found


def shorter(one):
    """What is said where the last process has fewer batches to evaluate, and nobody knew."""
    rows = ROWS - BATCH * (one["index"] == one["count"] - 1)
    batches = tf.data.Dataset.from_tensor_slices((X[:rows], Y[:rows])).batch(BATCH)
    batches = batches.filter(lambda x, y: True)
    try:
        return towers.evaluate(network(0), batches, verbose=0, towers=one["devices"])
    except RuntimeError as error:
        return str(error)


CASES = (callbacks, evaluation, kinds, parts, words, steps, begins, outside, resumed, refused)


class Monitor(http.server.BaseHTTPRequestHandler):
    """A server that counts what is sent to it."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard += 1
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def find_out(config, folder, processes, cases, num_towers):
    """Joins the processes of a `TF_CONFIG`, if there is one; writes what it finds into a file."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Monitor)
    server.heard = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder.mkdir()
    towers.enable_determinism()
    towers.select_devices(num_towers)
    if config:
        os.environ["TF_CONFIG"] = config
        joined = towers.processes.join_processes()
    else:
        joined = towers.processes.Processes()
    one = {"index": joined.index, "count": joined.count, "folder": folder, "own": {},
           "monitor": f"127.0.0.1:{server.server_port}", "processes": processes,
           "all": len(cases) == len(CASES),
           "devices": helpers.tower_devices(num_towers // joined.count)}  # fmt: skip
    found = {case.__name__: case(one) for case in CASES if case.__name__ in cases}
    one["own"]["sent"] = server.heard
    (folder / "found.json").write_text(json.dumps([found, one["own"]]))
