"""`towers.fit` of a model that was made as Keras makes it; prints where its ops ran, as JSON.

    fit_worker.py JIT_COMPILE

What XLA compiled is a `PartitionedCall`.
"""

import json
import sys

import keras
import numpy as np

import towers
from towers.devices.op_devices import record_op_devices


def main(jit_compile):
    inputs, labels = np.ones((16, 8), "float32"), np.zeros(16, "int32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=jit_compile)
    with record_op_devices() as ops:
        history = towers.fit(model, inputs, labels, batch_size=8, epochs=2, verbose=0)
    computing = ("PartitionedCall",) if model.jit_compile else ("MatMul", "_FusedMatMul")
    devices = sorted({device for op, device in ops if op in computing})
    print(json.dumps({"devices": devices, "epochs": history.epoch, "xla": model.jit_compile}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
