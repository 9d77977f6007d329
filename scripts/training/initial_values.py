"""The initial values of a fine-tuning: the weights of another run, variable by variable."""

from __future__ import annotations

import towers
from towers.scripts.training.evaluation import check_text
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import Session
from towers.scripts.training.trained import choose_checkpoint

MOST_NAMES = 3  # Of the variables that are named in the line.


def fill_from(run_dir: str, session: Session, updates: towers.steps.Updates) -> str:
    """Assigns the weights of another run's best checkpoint, and returns a line that says which.

    Values go to the variables of the same name and shape. The optimizer begins anew.

    Args:
        run_dir: the other run's directory.
        session: the new training.
        updates: hold the variables.

    Raises:
        ValueError: the run has no checkpoint, or no variable matches.
    """
    directory = RunDirectory(run_dir)
    checkpoint = choose_checkpoint(directory, "best")
    match = towers.checkpoints.restore_matching(checkpoint, updates.groups()["variables"])
    total = len(match.restored) + len(match.unmatched)
    source = f"{run_dir} (step {checkpoint.step})"
    if not match.restored:
        raise ValueError(
            f"--init-from needs a run with variables of the same names and shapes. Of {source}, "
            f"none of {total} matches: {shortened(match.unmatched)}. Give a run of a model like "
            "this one."
        )
    line = f"begins with {len(match.restored)} of {total} variables of {source}"
    if match.unmatched:
        line += f"; without a match: {shortened(match.unmatched)}"
    return line + vocabulary_note(directory, session)


def vocabulary_note(directory: RunDirectory, session: Session) -> str:
    """Returns a warning if the ids of the other run stand for other words, else nothing."""
    if session.data.text is None or not directory.text.exists():
        return ""
    try:
        check_text(directory.text, session.data.text)
    except ValueError:
        return "; warning: its vocabulary is another, so the rows of its tables were other words'"
    return ""


def shortened(names: list[str]) -> str:
    """Returns the names in one line, of many the first few."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
