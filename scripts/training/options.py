"""The options of a training and of its parts, with their defaults; importing them is cheap."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, get_args

from towers.scripts.options.setting import (
    CHECKPOINT,
    Amount,
    Bound,
    Count,
    Flag,
    Folder,
    Numbers,
    Parts,
    Paths,
    RunDir,
    Seed,
    StepRange,
    Switch,
    Temperature,
    Tokens,
)

Checkpoint = Annotated[str, CHECKPOINT, "best|latest|STEP"]
Precision = Literal["float32", "float64", "bfloat16", "float16"]
Exchange = Literal["packs", "nccl"]  # A test compares them with the library's.
EXCHANGES: tuple[str, ...] = get_args(Exchange)
WITHOUT_COPIES = ("auto", "packs")  # Any other needs a copy of the parameters on each tower.
ASSIGNED = Bound("FIELD=VALUE, such as learning_rate=0.1", lambda text: "=" in text)
Overrides = Annotated[tuple[str, ...], ASSIGNED, "FIELD=VALUE", Flag(name="set", action="append")]
USUAL_DECODING = ("temperature", "top_p", "beam", "nbest", "mmi")  # Those that helps show.
# The fields of recipes that have a flag of their own.
FLAGS = ("batch_size", "epochs", "language", "kind", "encoding", "context")


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """Text, for the recipes that read some.

    Attributes:
        language: language of the text (default: the recipe's).
        kind: format of the files (default: recognised).
        encoding: encoding of the files, such as gb18030 (default: utf-8).
        context: earlier turns that belong to a question (default: the recipe's).
    """

    language: Annotated[str | None, "zh|en"] = None
    kind: Annotated[str | None, "KIND"] = None
    encoding: Annotated[str | None, "CODEC"] = None
    context: Annotated[int | None, "K"] = None


@dataclasses.dataclass(frozen=True)
class RecipeOptions:
    """The choice of a recipe, and of its fields.

    Attributes:
        recipe: see `towers recipes`.
        overrides: any other field of the recipe (default: see `towers recipes RECIPE`).
    """

    recipe: Annotated[str, "RECIPE"]
    overrides: Overrides = ()
    text: TextOptions = TextOptions()


@dataclasses.dataclass(frozen=True)
class BatchedRecipeOptions(RecipeOptions):
    """The choice of a recipe, of its fields and of the size of its batches.

    Attributes:
        batch_size: examples in one update, over all towers (default: the recipe's).
    """

    batch_size: Annotated[Count | None, "B"] = None


@dataclasses.dataclass(frozen=True)
class DeviceOptions:
    """Devices.

    Attributes:
        towers: number of towers (default: one per GPU, or one on the CPU).
        cpu_towers: number of towers without GPUs, unless --towers is given.
        gpus: use only these GPUs, such as 0,2 (default: all).
        gpus_per_tower: split each tower's layers between N GPUs, for models too large for one;
            without GPUs, between N virtual CPUs.
        virtual: split one GPU into the towers.
        gpu_memory: limit in GB, or as a fraction of a GPU's memory (default: as much as is needed).
        parameters: where the shared variables live; replicated: a copy on each tower; auto: on
            several GPUs the faster of cpu and replicated.
        tf32: whether GPUs may round the factors of float32 products to 10 bits of mantissa
            (default: yes, if they can).
    """

    towers: Parts | None = None
    cpu_towers: Parts = 1
    gpus: Annotated[Numbers | None, "LIST"] = None
    gpus_per_tower: Parts = 1
    virtual: Switch = False
    gpu_memory: Annotated[Amount | None, "GB|FRACTION"] = None
    parameters: Literal["auto", "cpu", "tower0", "replicated"] = "auto"
    tf32: bool | None = None


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """How a step runs.

    Attributes:
        updates: async: each tower takes its own batches and makes its own updates.
        accumulate: cut each shard into K micro-batches.
        steps_per_call: make K updates in one call of the graph, which is faster for small steps.
        precision: number format in which the towers compute.
        xla: compile each tower with XLA.
        batch_norm: how the towers' moving averages are combined.
        deterministic: get the same numbers in every run on the same machine, and on any number of
            towers with the same total of micro-batches, a power of two per tower.
        exchange: how copies of the variables sum their gradients: packs that the towers exchange,
            or NCCL (on CPUs, a ring); auto: nccl if it was fastest on four or more GPUs.
    """

    updates: Literal["sync", "async"] = "sync"
    accumulate: Annotated[Parts, "K"] = 1
    steps_per_call: Annotated[Parts, "K"] = 1
    precision: Precision = "float32"
    xla: Switch = False
    batch_norm: Literal["first", "mean"] = "mean"
    deterministic: Switch = False
    exchange: Literal["auto", Exchange] = "auto"


@dataclasses.dataclass(frozen=True)
class PeriodOptions:
    """Reports, evaluations and checkpoints.

    Attributes:
        report_every: steps between two report lines.
        evaluate_every: steps between two evaluations (default: every epoch).
        early_stopping: stop after N evaluations without improvement (default: never).
        checkpoint_every: steps between two checkpoints (default: every epoch).
        checkpoint_minutes: also save after M minutes.
        keep_checkpoints: keep the N latest, and the best.
    """

    report_every: Annotated[Count, "STEPS"] = 50
    evaluate_every: Annotated[Count | None, "STEPS"] = None
    early_stopping: Count | None = None
    checkpoint_every: Annotated[Count | None, "STEPS"] = None
    checkpoint_minutes: Annotated[Amount, "M"] = 10.0
    keep_checkpoints: Count = 3


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """Output.

    Attributes:
        quiet: print warnings and errors only.
        verbose: also print every save, the model's size and the versions.
        json: print one JSON object with the run's metrics as the last line.
        histograms: steps between two histograms of every trained variable, for TensorBoard
            (default: none).
        profile: record these steps for TensorBoard's profiler, such as 100-110 (default: none).
    """

    quiet: Switch = False
    verbose: Switch = False
    json: bool = False
    histograms: Annotated[Count | None, "STEPS"] = None
    profile: StepRange | None = None


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """Everything about a training besides its recipe.

    Attributes:
        run_dir: folder; {n} becomes the first free number (default: runs/RECIPE).
        data: the data's folder, or files (default: datasets/...).
        seed: seed of the initial values, the order of the data and all random numbers.
        steps: number of updates, instead of --epochs (default: none).
        max_minutes: stop and save after M minutes; the same command continues (default: no limit).
        init_from: start from the weights of another run, where names and shapes match (default:
            none).
        overwrite: replace the run in the directory; on a terminal, asks first.
        log_placement: print on which device each kind of op runs.
        silent_seconds: how long another process of the training may be silent before it counts as
            lost; one that has ended is noticed at once.
    """

    devices: DeviceOptions = DeviceOptions()
    engine: EngineOptions = EngineOptions()
    periods: PeriodOptions = PeriodOptions()
    output: OutputOptions = OutputOptions()
    run_dir: Folder | None = None
    data: Paths | None = None
    seed: Seed = 0
    steps: Annotated[Count | None, "S"] = None
    max_minutes: Annotated[Amount | None, "M"] = None
    init_from: RunDir | None = None
    overwrite: bool = False
    log_placement: Switch = False
    silent_seconds: Annotated[Amount, "SECONDS"] = 100.0


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """The choice of a trained model.

    Attributes:
        run_dir: the run's directory.
        checkpoint: which checkpoint of the run; without held-out data, best is the latest.
    """

    run_dir: RunDir
    checkpoint: Checkpoint = "best"


@dataclasses.dataclass(frozen=True)
class SamplingOptions:
    """Sampling.

    Attributes:
        temperature: sample; below 1 favours likely words more, above 1 less (default: 1 with
            --top-k or --top-p).
        top_k: sample from the K most likely words (default: all).
        top_p: nucleus sampling: from the smallest set of words with total probability P (default:
            1).
        seed: seed of the samples.
    """

    temperature: Temperature | None = None
    top_k: Annotated[Count | None, "K"] = None
    top_p: Annotated[Amount | None, "P"] = None
    seed: Seed = 0

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn at random."""
        return any((self.temperature, self.top_k, self.top_p))


@dataclasses.dataclass(frozen=True)
class SearchOptions(SamplingOptions):
    """Decoding, greedy by default.

    Attributes:
        beam: beam search with N beams.
        nbest: N answers to each question, with scores.
        length_penalty: exponent of Wu et al. 2016, for beam search.
        no_repeat_ngram: never repeat a sequence of N tokens (default: no such rule).
        repetition_penalty: make tokens that were already generated less likely, by the factor F.
        max_length: at most N tokens in an answer (default: the recipe's).
    """

    beam: Parts = 1
    nbest: Parts = 1
    length_penalty: Annotated[float, "A"] = 1.0
    no_repeat_ngram: Count | None = None
    repetition_penalty: Annotated[Amount, "F"] = 1.0
    max_length: Tokens | None = None


@dataclasses.dataclass(frozen=True)
class DecodingOptions(SearchOptions):
    """Reranking (Li et al. 2016).

    Attributes:
        mmi: rerank with this run, trained with --set direction=backward or answers (default: none).
        candidates: rerank N samples; a beam search reranks its beams.
        mmi_weight: weight of the second model's log probabilities.
        length_reward: how much each token of an answer adds to its score.
    """

    mmi: RunDir | None = None
    candidates: Parts = 20
    mmi_weight: Annotated[Amount, "W"] = 0.5
    length_reward: Annotated[float, "R"] = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """The evaluation of a run.

    Attributes:
        data: the folder or the files (default: those of the training).
        batch_size: examples in one batch (default: the run's).
        overrides: a field, such as part=test (default: the run's).
        classes: image runs: also print tables about the classes.
        tune: chatbots: first tune --mmi-weight and --length-reward on test questions that the
            evaluation does not ask.
        dynamic: language models: the weights follow the text that was read, with this learning
            rate, such as 0.0007 (Krause et al. 2018).
        json: print one JSON object as the last line.
    """

    devices: DeviceOptions
    decoding: DecodingOptions = DecodingOptions()
    data: Paths | None = None
    batch_size: Annotated[Count | None, "B"] = None
    overrides: Overrides = ()
    classes: bool = False
    tune: bool = False
    dynamic: Annotated[Amount | None, "RATE"] = None
    json: bool = False
