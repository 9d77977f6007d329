"""Public kinds of Keras programs by name, small: what anyone's code must train as on one device."""

from tests.kinds import (
    contrastive,
    coupling,
    generative,
    hub,
    loops,
    others,
    plain,
    tabular,
    teaching,
    text,
    unseen,
    vision,
)
from tests.kinds.registry import KINDS, Kind, Program

__all__ = [
    "KINDS", "Kind", "Program", "contrastive", "coupling", "generative", "hub", "loops", "others",
    "plain", "tabular", "teaching", "text", "unseen", "vision",
]  # fmt: skip
