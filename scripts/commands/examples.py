"""Two examples of every command, which its `--help` shows."""

from __future__ import annotations

from collections.abc import Mapping

HEADING = "examples:"
EXAMPLES: Mapping[str, tuple[str, str]] = {
    "recipes": ("towers recipes", "towers recipes chatbot"),
    "prepare": (
        "towers prepare chatbot --language zh --data my.conv",
        "towers prepare chatbot --data dialogues/ --processes 4",
    ),
    "train": (
        "towers train shapes --towers 2",
        "towers train --config runs/shapes/run.toml --run-dir runs/again",
    ),
    "launch": (
        "towers launch --processes 2 -- train shapes",
        "towers launch --nnodes 2 --node-rank 0 --coordinator 10.0.0.1:6000 -- train shapes",
    ),
    "runs": ("towers runs", "towers runs compare runs/shapes runs/again"),
    "evaluate": (
        "towers evaluate runs/shapes --checkpoint latest",
        "towers evaluate runs/chatbot --beam 5 --json",
    ),
    "chat": ("towers chat runs/chatbot", 'towers chat runs/chatbot --ask "How are you?" --nbest 3'),
    "serve": ("towers serve runs/chatbot", "towers serve runs/chatbot --port 0 --beam 5"),
    "generate": (
        'towers generate runs/stories --prompt "the kite" --length 30',
        "towers generate runs/stories --num-samples 3 --top-p 0.9",
    ),
    "predict": (
        "towers predict runs/shapes photo.png",
        "towers predict runs/shapes photos/ --top 1 --json",
    ),
    "export": ("towers export runs/shapes", "towers export runs/chatbot --output bot --beam 5"),
    "doctor": ("towers doctor", "towers doctor --towers 4 --json"),
    "estimate": (
        "towers estimate shapes --towers 4",
        "towers estimate chatbot --set hidden_size=512 --json",
    ),
    "devices": ("towers devices", "towers devices --json"),
    "download": ("towers download mnist", "towers download ptb --data corpora/ptb"),
    "benchmark": (
        "towers benchmark shapes --towers 1,2",
        "towers benchmark shapes --towers 2 --exchange packs,nccl",
    ),
    "completion": (
        'eval "$(towers completion bash)"',
        "towers completion fish > ~/.config/fish/completions/towers.fish",
    ),
}


def epilog(command: str) -> str:
    """Returns the examples of a command, below a heading."""
    return "\n  ".join([HEADING, *EXAMPLES[command]])
