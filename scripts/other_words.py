"""Names of commands and options in other programs, and what they are called here."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from towers.scripts.options.setting import settings_of
from towers.scripts.training.catalogue import find_recipe, recipe_names
from towers.scripts.training.fields import OTHER_NAMES
from towers.scripts.wrong_input import nearest

CONTINUES = "Run the same `towers train` command again: it continues its run without a flag."
MACHINES = (
    "Several machines: --ray ADDRESS; or --cluster HOST:PORT,... with --index I on each; or srun."
)
READING = "One thread per core reads and prepares the data."
# By what another program calls it, the command.
COMMANDS = {
    **dict.fromkeys(("fit", "run", "continue", "resume", "finetune"), "train"),
    **dict.fromkeys(("test", "eval", "validate", "score"), "evaluate"),
    **dict.fromkeys(("infer", "classify", "inference"), "predict"),
    **dict.fromkeys(("list", "ls", "show", "status", "logs"), "runs"),
    **dict.fromkeys(("models", "networks"), "recipes"),
    **dict.fromkeys(("talk", "ask"), "chat"), **dict.fromkeys(("sample", "write"), "generate"),
    **dict.fromkeys(("preprocess", "tokenize", "tokenise"), "prepare"),
    **dict.fromkeys(("save", "convert", "freeze"), "export"), "gpus": "devices",
    **dict.fromkeys(("version", "-v", "-V", "--v"), "--version"), "check": "doctor",
    **dict.fromkeys(("server", "web", "gui", "ui"), "serve"), "speed": "benchmark",
}  # fmt: skip
# By the option, those that do it here; a command gets the first that it has, or a sentence.
OPTIONS = {
    **dict.fromkeys(("resume", "continue", "resume-from", "load"), (CONTINUES,)),
    **dict.fromkeys(("nnodes", "node-rank", "coordinator", "master-addr", "port"), (MACHINES,)),
    **dict.fromkeys(("num-gpus", "n-gpus", "ngpus", "nproc", "num-towers"), ("towers",)),
    **dict.fromkeys(("gpu", "device", "devices", "gpu-ids"), ("gpus",)),
    **dict.fromkeys(("output-dir", "save-dir", "logdir", "log-dir", "out"), ("run-dir", "output")),
    **dict.fromkeys(("dataset", "train-data", "input", "corpus", "files"), ("data",)),
    **dict.fromkeys(("fp16", "amp", "mixed-precision", "bf16", "half", "dtype"), ("precision",)),
    **dict.fromkeys(("max-steps", "iterations", "num-steps", "iters"), ("steps",)),
    **dict.fromkeys(("max-epochs", "num-epochs", "epoch"), ("epochs",)),
    **dict.fromkeys(("batch", "bs", "global-batch-size"), ("batch-size",)),
    **dict.fromkeys(("save-every", "save-steps", "save-interval"), ("checkpoint-every",)),
    **dict.fromkeys(("eval-every", "eval-steps", "eval-interval"), ("evaluate-every",)),
    **dict.fromkeys(("patience",), ("early-stopping",)),
    **dict.fromkeys(("force", "overwrite-output-dir"), ("overwrite",)),
    **dict.fromkeys(("pretrained", "weights", "from-checkpoint", "finetune"), ("init-from",)),
    **dict.fromkeys(("gradient-accumulation-steps", "accum"), ("accumulate",)),
    **dict.fromkeys(("jit", "compile", "jit-compile"), ("xla",)),
    **dict.fromkeys(("api-key", "token", "password"), ("token-file",)),
    **dict.fromkeys(("debug", "log-level"), ("verbose",)),
    **dict.fromkeys(("num-beams", "beam-size", "beams"), ("beam",)),
    **dict.fromkeys(("max-tokens", "max-new-tokens"), ("max-length", "length")),
    **dict.fromkeys(("question", "message"), ("ask",)),
    **dict.fromkeys(("workers", "num-workers", "threads", "num-threads"), (READING,)),
    **dict.fromkeys(("format", "kind", "to", "target", "type"), ("format", "kind")),
}  # fmt: skip


def command_line(arguments: Sequence[str]) -> Sequence[str]:
    """Returns a command line as `towers` has it.

    >>> command_line(["help", "train"]), command_line(["compare", "runs/a", "runs/b"])
    (['train', '--help'], ['runs', 'compare', 'runs/a', 'runs/b'])
    """
    first, *others = arguments or [""]
    if first == "help":
        return [*command_line(others[:1]), "--help"]
    return ["runs", "compare", *others] if first == "compare" else arguments


def command_for(word: str, commands: Collection[str]) -> str:
    """Returns a sentence about the command that a word may stand for."""
    known = f"train {word}" if word in recipe_names() else COMMANDS.get(word)
    if word.startswith("-") and not known:
        return " The command comes first, such as `towers train shapes --towers 2`."
    return f" Use `towers {known}`." if known else nearest(word, commands)


def advice(option: str, known: Collection[str], arguments: Sequence[str]) -> str | None:
    """Returns what does what an unknown option asks for, None if nothing is known to.

    Args:
        option: without the dashes before it.
        known: the options of the command, in the same way.
        arguments: of the command; a recipe among them decides which fields there are.
    """
    name = option.replace("_", "-")
    if name in known:
        return f" Use --{name}."
    fields = fields_of(arguments) if "set" in known else set()
    for field in (name.replace("-", "_"), OTHER_NAMES.get(name.replace("-", "_"), "")):
        if field in fields:
            return f" Use --set {field}=VALUE."
    for other in OPTIONS.get(name, ()):
        if other in known or other.endswith("."):
            return f" {other}" if other.endswith(".") else f" Use --{other}."
    return None


def fields_of(arguments: Sequence[str]) -> set[str]:
    """Returns the fields of the recipes among some arguments, or else those of all recipes."""
    names = recipe_names()
    chosen = [name for name in arguments if name in names] or names
    return {field for name in chosen for field in settings_of(type(find_recipe(name).fields))}
