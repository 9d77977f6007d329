"""Wrong input: the error type that ends a command with one line instead of a traceback."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence

from towers.scripts.shown import brief, show, without_nodes

EXIT_CODE = 2  # A command's with wrong input, as argparse has it.
LISTED = 160  # Characters of the names that an error about an unknown one lists.


class WrongInputError(Exception):
    """An argument or a file of the user's cannot be used; the message says why, and the remedy."""


@contextlib.contextmanager
def wrong_input(*kinds: type[Exception]) -> Iterator[None]:
    """The scope that handles the user's arguments and files: its errors become `WrongInputError`.

    The engine, the models and the data raise ValueError for wrong arguments and know nothing of
    commands. Only a command knows which of its parts get their arguments from the user; an error
    anywhere else is a bug.
    """
    kinds = kinds or (ValueError, OSError, ImportError)
    try:
        yield
    except BrokenPipeError:
        raise  # The reader of the output has left, which is no error.
    except kinds as error:
        raise WrongInputError(describe(error)) from error


def text_of_argument(argument: str) -> str:
    """Returns a text of the command line, which is UTF-8 whatever the locale is.

    Raises:
        ValueError: it is not UTF-8.
    """
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError as error:
        raise ValueError(describe(error)) from error


def describe(error: Exception) -> str:
    """Returns the message of an error; one of the system names its file and what to do.

    Files say themselves that they are no UTF-8: what else is read is typed, or piped.
    """
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object!r:.100} has characters that {error.encoding} cannot hold. Expected "
            "text in UTF-8; rename the file, or write it anew."
        )
    if isinstance(error, UnicodeError):
        return f"Expected text in UTF-8, found: {error}. Convert it to UTF-8."
    if not isinstance(error, OSError) or error.errno is None or error.strerror is None:
        return str(error)
    if error.filename is None:
        return (
            f"{error.strerror}, where this command writes its output. Make room, and run the same "
            "command again."
        )
    remedy = "a path that this user may use; give another one, or change its permissions"
    if isinstance(error, FileNotFoundError):
        remedy = "a path that is there; give another one, or put back what is missing"
    if isinstance(error, IsADirectoryError):
        remedy = "a file; give another one, or move the folder away"
    return f"{error.filename}: {error.strerror}. Expected {remedy}."


def fail(error: Exception | str, code: int) -> int:
    """Prints an error in one line (with its traceback if TOWERS_TRACEBACK is set)."""
    if isinstance(error, Exception) and os.environ.get("TOWERS_TRACEBACK"):
        show_traceback(error)
    text = describe(error) if isinstance(error, Exception) else error
    if is_of_tensorflow(error):
        text = without_nodes(text)
    show(f"towers: error: {brief(text)}", file=sys.stderr, colour="red")
    return code


def show_traceback(error: Exception) -> None:
    """Prints an error with its traceback."""
    show("".join(traceback.format_exception(error)), file=sys.stderr)


def is_of_tensorflow(error: Exception | str) -> bool:
    """Returns whether TensorFlow raised an error."""
    return type(error).__module__.startswith("tensorflow.")


def nearest(name: str, names: Iterable[str], before: str = "") -> str:
    """Returns a suggestion to put behind an error about an unknown name; dashes go `before` it."""
    known = sorted(names)
    begun = [one for one in known if one.startswith(name)]
    close = begun if len(begun) == 1 else difflib.get_close_matches(name, known, n=1)
    if close:
        return f" Did you mean {before + close[0]!r}?"
    return f" There are: {as_many_as_fit([f'{before}{one}' for one in known], ', ', LISTED)}."


def as_many_as_fit(texts: Sequence[str], between: str, most: int) -> str:
    """Returns the first texts, as many as a number of characters has room for but at least one.

    >>> as_many_as_fit(["one", "two", "three"], ", ", 10)
    'one, two and 1 more'
    """
    shown = 1
    while shown < len(texts) and len(between.join(texts[: shown + 1])) <= most:
        shown += 1
    left = len(texts) - shown
    return between.join(texts[:shown]) + (f" and {left} more" if left > 0 else "")
