"""Gathers the variables of an LSTM where there is a GPU; prints the ops that it then has."""

import json

import keras
import tensorflow as tf

import towers
from towers.variables.find_variables import gather_variables, trace_once

SPEC = tf.TensorSpec([4, 5, 3])


def make_model():
    with towers.Placement(["/GPU:0"]).scope():
        return keras.Sequential([keras.Input((5, 3)), keras.layers.LSTM(2)])


def ops_of(model):
    return sorted({op.type for op in trace_once(model, SPEC).get_operations()})


def main():
    told, model = {}, make_model()
    told["as Keras has it"] = ops_of(model)
    try:
        gather_variables(model, model.variables, SPEC, compiled=True)
    except ValueError as error:
        told["compiled, its variables alone"] = str(error)
    gather_variables(model, model, SPEC, compiled=True)
    told["compiled"] = ops_of(model)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
