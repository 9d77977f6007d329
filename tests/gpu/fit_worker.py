"""`towers.fit` of a model that was made as Keras makes it; prints where its ops ran, as JSON."""

import json

import keras
import numpy as np

import towers
from towers.devices.op_devices import record_op_devices


def main():
    inputs, labels = np.ones((16, 8), "float32"), np.zeros(16, "int32")
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    with record_op_devices() as ops:
        history = towers.fit(model, inputs, labels, batch_size=8, epochs=2, verbose=0)
    products = {device for op, device in ops if op in ("MatMul", "_FusedMatMul")}
    print(json.dumps({"products": sorted(products), "epochs": history.epoch}))


if __name__ == "__main__":
    main()
