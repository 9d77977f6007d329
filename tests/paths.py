"""Where the repository is, and where real corpora are: in $TOWERS_CORPORA, or ../shared/data."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPORA = Path(os.environ.get("TOWERS_CORPORA") or ROOT.parent / "shared" / "data")


def missing(corpus: str) -> str:
    """Returns why a test skips that needs a corpus: it names the variable."""
    return f"{CORPORA / corpus} is not here; $TOWERS_CORPORA names the folder of real corpora"
