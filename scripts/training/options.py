"""The options of a training and of its parts, with their defaults; importing them is cheap."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class DeviceOptions:
    """The choice of the devices.

    Attributes:
        towers: how many, None for one per GPU.
        cpu_towers: how many where there is no GPU, if `towers` is None.
        gpus: numbers of the GPUs to use, None for the first ones.
        gpus_per_tower: GPUs (or virtual CPUs) that share the layers of each tower.
        virtual: whether to split one GPU into the towers.
        gpu_memory: limit in GB, or a fraction of a GPU's memory; None to grow with need.
        parameters: where the shared variables live: auto, cpu, tower0 or replicated.
        tf32: whether GPUs may round the factors of float32 products; None for TensorFlow's default.
    """

    towers: int | None = None
    cpu_towers: int = 1
    gpus: tuple[int, ...] | None = None
    gpus_per_tower: int = 1
    virtual: bool = False
    gpu_memory: float | None = None
    parameters: str = "auto"
    tf32: bool | None = None


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """How a step runs.

    Attributes:
        updates: sync, or async where each tower updates by itself.
        accumulate: micro-batches of each shard.
        precision: float32, float64, bfloat16 or float16.
        xla: whether XLA compiles each tower.
        batch_norm: how the towers' moving averages become one: mean, or the first tower's.
        deterministic: whether every run on the same machine gives the same numbers.
        exchange: how copies of the variables sum their gradients: packs, nccl or auto.
    """

    updates: str = "sync"
    accumulate: int = 1
    precision: str = "float32"
    xla: bool = False
    batch_norm: str = "mean"
    deterministic: bool = False
    exchange: str = "auto"


@dataclasses.dataclass(frozen=True)
class PeriodOptions:
    """How often a training reports, evaluates and saves, in steps.

    Attributes:
        report_every: between two lines of report.
        evaluate_every: between two evaluations, None for every epoch.
        early_stopping: evaluations without a better one before the training stops, or None.
        checkpoint_every: between two checkpoints, None for every epoch.
        checkpoint_minutes: the longest time between two checkpoints.
        keep_checkpoints: how many of the latest are kept; the best one is kept besides.
    """

    report_every: int = 50
    evaluate_every: int | None = None
    early_stopping: int | None = None
    checkpoint_every: int | None = None
    checkpoint_minutes: float = 10.0
    keep_checkpoints: int = 3


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """What a training prints.

    Attributes:
        quiet: whether to print warnings and errors only.
        verbose: whether to print every save, the model's size and the versions as well.
        json: whether the last line is one JSON object.
        histograms: steps between two histograms of every trained variable, None for none.
        profile: the first and the last step to profile, such as 100-110, or None.
    """

    quiet: bool = False
    verbose: bool = False
    json: bool = False
    histograms: int | None = None
    profile: str | None = None


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Everything about a training besides its recipe.

    Attributes:
        devices, engine, periods, output: the groups.
        run_dir: the run's directory, None for runs/RECIPE.
        data: the folder or the files, None for the recipe's default.
        seed: of the initial values, of the data's order and of all random numbers.
        steps: how many, None for as many as the recipe's epochs have.
        max_minutes: the time after which this process stops, or None.
        init_from: the directory of the run with whose weights a new run begins, or None.
        overwrite: whether another run in the directory is removed.
        log_placement: whether to print on which device each kind of op runs.
    """

    devices: DeviceOptions
    engine: EngineOptions
    periods: PeriodOptions
    output: OutputOptions
    run_dir: str | None = None
    data: tuple[str, ...] | None = None
    seed: int = 0
    steps: int | None = None
    max_minutes: float | None = None
    init_from: str | None = None
    overwrite: bool = False
    log_placement: bool = False


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    """The evaluation of a run.

    Attributes:
        run_dir: the run's directory.
        devices: the choice of the devices.
        data: the folder or the files, None for those of the training.
        checkpoint: best or latest.
        batch_size: examples in one batch, None for the run's.
        overrides: texts such as `part=test`.
        classes: whether to tell of each class.
        tune: whether to search how much a second run counts for the order of answers.
    """

    run_dir: str
    devices: DeviceOptions
    data: tuple[str, ...] | None = None
    checkpoint: str = "best"
    batch_size: int | None = None
    overrides: tuple[str, ...] = ()
    classes: bool = False
    tune: bool = False


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The choice of a trained model.

    Attributes:
        run_dir: the run's directory.
        checkpoint: best or latest.
    """

    run_dir: str
    checkpoint: str = "best"


@dataclasses.dataclass(frozen=True)
class DecodingOptions:
    """How answers are decoded; by default greedily.

    Attributes:
        beam: number of beams.
        nbest: answers to each question.
        length_penalty: exponent of Wu et al. 2016, for beam search.
        temperature, top_k, top_p: of sampling; without any of them nothing is sampled.
        no_repeat_ngram: length of the sequences that are never repeated, or None.
        repetition_penalty: factor by which tokens that were said become less likely.
        max_length: tokens of an answer, None for the recipe's number.
        seed: of samples.
        mmi: the directory of a run whose model reranks the answers, or None.
        candidates: samples among which it chooses; a beam search gives as many as it has beams.
        mmi_weight: weight of its log probabilities.
        length_reward: added to the score of a reranked answer for each of its tokens.
    """

    beam: int = 1
    nbest: int = 1
    length_penalty: float = 1.0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    no_repeat_ngram: int | None = None
    repetition_penalty: float = 1.0
    max_length: int | None = None
    seed: int = 0
    mmi: str | None = None
    candidates: int = 20
    mmi_weight: float = 0.5
    length_reward: float = 2.0
