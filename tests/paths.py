"""Where the repository is, and where real corpora are: in $TOWERS_CORPORA, or ../shared/data."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPORA = Path(os.environ.get("TOWERS_CORPORA") or ROOT.parent / "shared" / "data")
