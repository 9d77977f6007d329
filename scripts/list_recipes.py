"""`towers recipes`: what can be trained."""

from __future__ import annotations

import argparse

from scripts.recipe import summaries


def run(options: argparse.Namespace) -> int:
    """Prints a line per recipe."""
    lines = summaries()
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:<{width}}  {line}")
    return 0
