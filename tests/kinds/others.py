"""Code of others that calls `fit`, `evaluate` or `predict` of a Keras model itself."""

from __future__ import annotations

import tempfile

import keras
import numpy as np
from keras import layers

from tests.kinds.registry import Program, dense, kind, labels, sgd, vectors


def make_classifier() -> keras.Model:
    model = dense(5, 8, 3)
    model.add(layers.Softmax())
    model.compile(sgd(), "sparse_categorical_crossentropy", jit_compile=False)
    return model


def make_regressor(width: int) -> keras.Model:
    model = dense(5, width, 1)
    model.compile(sgd(), "mse", jit_compile=False)
    return model


class Scikit:
    """scikeras's classifier, as scikit-learn calls it."""

    def __init__(self):
        from scikeras.wrappers import KerasClassifier

        self.classifier = KerasClassifier(
            make_classifier, epochs=2, batch_size=8, shuffle=False, verbose=0, random_state=3
        )

    def fit(self, x, y):
        self.classifier.fit(x, y)
        self.model = self.classifier.model_
        chances = self.classifier.predict_proba(x)
        return {**self.classifier.history_, "chances": chances.ravel().tolist()}


@kind("loop", needs="scikeras")
def scikeras_classifier() -> Program:
    return Program(Scikit(), (vectors(5)[:17], labels(3)[:17]))


class ScikitGrid:
    """A grid search of scikit-learn: fits, clones and scores."""

    def fit(self, x, y):
        from scikeras.wrappers import KerasRegressor
        from sklearn.model_selection import GridSearchCV

        regressor = KerasRegressor(
            make_regressor, width=4, epochs=1, batch_size=8, shuffle=False, verbose=0,
            random_state=3,
        )  # fmt: skip
        search = GridSearchCV(regressor, {"width": [4, 6]}, cv=2, error_score="raise")
        search.fit(x, y)
        self.model = search.best_estimator_.model_
        return {"scores": search.cv_results_["mean_test_score"].tolist()}


@kind("loop", needs="scikeras")
def scikeras_grid_search() -> Program:
    return Program(ScikitGrid(), (vectors(5)[:17], vectors(1)[:17]))


class Tuner:
    """KerasTuner's search over the width; its trials fit and evaluate."""

    def fit(self, x, y):
        import keras_tuner

        with tempfile.TemporaryDirectory() as folder:
            tuner = keras_tuner.GridSearch(
                self.make_model, "val_loss", max_trials=2, directory=folder, seed=3
            )
            tuner.search(
                x, y, validation_data=(x[:9], y[:9]), epochs=1, batch_size=8, shuffle=False,
                verbose=0,
            )  # fmt: skip
            trials = tuner.oracle.trials.values()
            scores = {str(trial.hyperparameters.values): [trial.score] for trial in trials}
            self.model = tuner.get_best_models(1)[0]
        return scores

    def make_model(self, choices):
        keras.utils.set_random_seed(3)
        model = dense(5, choices.Choice("width", [4, 6]), 3)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(sgd(), loss, metrics=["accuracy"], jit_compile=False)
        return model


@kind(
    "loop",
    needs="keras_tuner",
    said=(
        "__array__ implementation:DeprecationWarning",  # Of Keras's variables, when it saves.
        "(currentThread|getName).. is deprecated:DeprecationWarning",
        "Skipping variable loading for optimizer:UserWarning",  # Of the best model.
    ),
)
def keras_tuner_search() -> Program:
    return Program(Tuner(), (vectors(5)[:17], labels(3)[:17]))


class Trainer:
    """A library's trainer: it fits, evaluates and predicts by Keras's own methods."""

    def __init__(self):
        self.model = dense(5, 8, 3)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile(sgd(), loss, metrics=["accuracy"], jit_compile=False)

    def fit(self, x, y):
        history = {}
        for _ in range(2):
            fitted = self.model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
            seen = self.model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
            numbers = {
                "loss": fitted.history["loss"][0],
                **{f"seen_{n}": v for n, v in seen.items()},
            }
            numbers["predicted"] = float(np.sum(self.model.predict(x, batch_size=8, verbose=0)))
            for name, number in numbers.items():
                history.setdefault(name, []).append(number)
        return history


@kind("loop")
def trainer_of_a_library() -> Program:
    return Program(Trainer(), (vectors(5)[:17], labels(3)[:17]))
