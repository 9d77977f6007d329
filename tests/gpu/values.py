"""Leaves out what meaningless values would stop: pretended GPUs compute none."""

from towers.loop.updates import FiniteCheck


def ignore_values():
    """From now on a training goes on after a gradient that is not finite."""
    FiniteCheck.add = lambda *_: None
    FiniteCheck.check = lambda *_: None
