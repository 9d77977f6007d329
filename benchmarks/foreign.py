"""The made-up tasks in PyTorch and in Keras on JAX, each in a process without TensorFlow's work."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.made import RECIPES, arrays
from towers.ground.child_process import ChildProcess
from towers.scripts.timing.apart import TimedRun

Answer = Callable[[Any], Any]


def foreign_run(library: str, name: str, batch_size: int, steps_per_call: int) -> TimedRun:
    """Returns what trains a made-up task in a library, in a process that ends with this one.

    Raises:
        ValueError: the task is not made up, or the library has no model for it.
    """
    process = ChildProcess({"torch": make_torch, "jax": make_jax}[library], f"times {library}")
    process.ask((name, batch_size, steps_per_call))
    return process.ask


def is_installed(library: str) -> bool:
    """Returns whether a library can be imported."""
    return importlib.util.find_spec(library) is not None


def make_jax() -> Answer:
    """Returns `answer`, which builds a task first, and then makes so many steps of `fit` on JAX."""
    return answering(keras_run, KERAS_BACKEND="jax", XLA_PYTHON_CLIENT_PREALLOCATE="false")


def make_torch() -> Answer:
    """Returns `answer`, which builds a task first, and then makes so many steps in PyTorch."""
    return answering(torch_run)


def answering(build: Callable[[str, int, int], TimedRun], **environment: str) -> Answer:
    """Returns `answer`: the first request holds the arguments of `build`, each other one steps."""
    runs: list[TimedRun] = []

    def answer(request: Any) -> Any:
        if runs:
            return runs[0](request)
        if request[0] not in RECIPES:
            raise ValueError(f"Only made-up tasks are in other libraries. Received {request[0]}.")
        os.environ.update(environment)
        runs.append(build(*request))
        return None

    return answer


def keras_run(name: str, batch_size: int, steps_per_call: int) -> TimedRun:
    """Returns a run by `fit` on Keras's present backend."""
    model = RECIPES[name].make_model(None, None)
    compile_for_fit(model, steps_per_call)
    return timed_arrays(model.fit, name, batch_size, steps_per_call)


def compile_for_fit(model: Any, steps_per_call: int) -> None:
    """Compiles a model as its user does."""
    import keras

    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_call,
    )


def timed_arrays(
    fit: Callable[..., Any], name: str, batch_size: int, steps_per_call: int
) -> TimedRun:
    """Returns a run by `fit` on arrays, timed from the end of its first call to that of its last.

    Args:
        fit: takes arrays, `batch_size`, `verbose` and `callbacks`.
        name: the task.
        batch_size: of each step.
        steps_per_call: steps between two calls of the callbacks.
    """
    import keras

    def run(num_steps: int) -> float:
        inputs, labels = arrays(name, num_steps * batch_size)
        ends: list[float] = []
        note = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
        )
        fit(inputs, labels, batch_size=batch_size, verbose=0, callbacks=[note])
        timed_steps = max(1, num_steps - steps_per_call)
        return (ends[-1] - ends[0]) / timed_steps * (num_steps - 1)

    return run


def torch_run(name: str, batch_size: int, steps_per_call: int) -> TimedRun:
    """Returns a hand-written loop in PyTorch, on the first GPU if there is one."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = torch_model(name).to(device)
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-7)

    def run(num_steps: int) -> float:
        inputs, labels = arrays(name, num_steps * batch_size)
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        tensors = [torch.from_numpy(one) for one in (*inputs, labels)]
        order = torch.randperm(len(labels)).split(batch_size)
        started, hits = 0.0, torch.zeros((), device=device)
        for number, rows in enumerate(order):
            *batch, targets = (one[rows].to(device) for one in tensors)
            optimizer.zero_grad()
            logits = model(*batch).flatten(0, -2)
            targets = targets.flatten().long()
            loss = torch.nn.functional.cross_entropy(logits, targets)
            loss.backward()
            optimizer.step()
            hits += (logits.argmax(-1) == targets).sum()
            if number == 0:
                loss.item()  # Waits for the device, as at the end.
                started = time.perf_counter()
        hits.item()
        return time.perf_counter() - started

    return run


def torch_model(name: str) -> Any:
    """Returns a task's network in PyTorch; raises ValueError if it is not written here."""
    from torch import nn

    class Chatbot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.ModuleList(nn.Embedding(20_000, 256) for _ in range(2))
            self.recurrent = nn.ModuleList(nn.LSTM(256, 256, batch_first=True) for _ in range(2))
            self.out = nn.Linear(256, 20_000)

        def forward(self, question: Any, answer: Any) -> Any:
            _, state = self.recurrent[0](self.words[0](question))
            return self.out(self.recurrent[1](self.words[1](answer), state)[0])

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(10_000, 200), nn.Linear(200, 10_000)
            self.recurrent = nn.LSTM(200, 200, num_layers=2, batch_first=True)

        def forward(self, words: Any) -> Any:
            return self.out(self.recurrent(self.words(words))[0])

    class ChannelsFirst(nn.Module):
        def forward(self, images: Any) -> Any:
            return images.permute(0, 3, 1, 2)

    def convolution(channels: int) -> Sequence[Any]:
        pool = nn.MaxPool2d(3, 2, padding=1)
        return nn.Conv2d(channels, 64, 5, padding=2), nn.ReLU(), pool

    body = [ChannelsFirst(), *convolution(3), *convolution(64), nn.Flatten()]
    dense = [nn.Linear(64 * 36, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)]
    models: dict[str, Callable[[], Any]] = {
        "made_chatbot": Chatbot,
        "made_language_model": LanguageModel,
        "made_cnn": lambda: nn.Sequential(*body, *dense),
        "made_mlp": lambda: nn.Sequential(nn.Linear(100, 64), nn.ReLU(), nn.Linear(64, 2)),
    }
    if name not in models:
        raise ValueError(f"{name} is not written in PyTorch: compare it without torch.")
    return models[name]()
