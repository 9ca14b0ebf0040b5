#!/bin/sh
# Find a Python that is new enough and hand over to tools/install.py.
# PYTHON=/path/to/python chooses one; otherwise the newest known one that answers is taken. A name on
# the PATH proves nothing (version managers leave shims that only print an error), so each is asked.
set -eu
cd "$(dirname "$0")/.."

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    if ! is_new_enough "$PYTHON"; then
        echo "PYTHON=$PYTHON is not a Python 3.11 or newer." >&2
        exit 1
    fi
    exec "$PYTHON" tools/install.py "$@"
fi

for candidate in .venv/bin/python python3.13 python3.12 python3.11 python3 python; do
    if is_new_enough "$candidate"; then
        exec "$candidate" tools/install.py "$@"
    fi
done

echo "kohort needs Python 3.11 or newer, and none was found on the PATH." >&2
echo "Install one, or name it: make test PYTHON=/path/to/python3.11" >&2
exit 1
