#!/usr/bin/env bash
# gpu_day.sh FOLDER [SLICE...]: see benchmarks/gpu_day.py. Installs towers beside the clone if it must.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
if [ ! -x "$python" ]; then
    python=python3
    "$python" -c "import towers" 2>/dev/null || { "$python" scripts/bootstrap.py install && python=.venv/bin/python; }
fi
exec "$python" -m benchmarks.gpu_day "$@"
