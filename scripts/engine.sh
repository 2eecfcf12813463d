#!/bin/sh
# Brings what the engine of local models needs from the system: libgomp, which a bare Debian does not have.
set -eu
. "$(dirname "$0")/bring.sh"
cd "$(dirname "$0")/.."

if .venv/bin/python -c 'import xllamacpp' >/dev/null 2>&1; then
    exit
fi
bring libgomp libgomp1 "the engine of local models needs" "The tests of local models" no-program-has-it
