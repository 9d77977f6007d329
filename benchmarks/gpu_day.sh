#!/usr/bin/env bash
# gpu_day.sh FOLDER [SLICE...]: see benchmarks/gpu_day.py. Installs towers beside the clone if it must.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
[ -x "$python" ] || python=python3
if ! "$python" -c "import towers, tensorflow" 2>/dev/null; then
    python3 scripts/bootstrap.py install
    python=.venv/bin/python
fi
exec "$python" -m benchmarks.gpu_day "$@"
