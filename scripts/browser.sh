#!/bin/sh
# Brings the browser that the console's tests drive: Debian's Chromium, fonts to lay pages out with, and a library that
# Playwright's own driver is linked against. Playwright itself comes with .venv.
set -eu
. "$(dirname "$0")/bring.sh"

bring Chromium "chromium fonts-liberation fonts-dejavu-core libatomic1" "the console's tests drive" \
    "The console's tests in a browser" chromium chromium-browser google-chrome

# The same engine without windows, which most of the tests drive: it takes a third of the processor time. Where it cannot be had,
# Chromium serves as well, so there is nothing to say.
if command -v chromium >/dev/null 2>&1 && ! command -v chromium-headless-shell >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium-headless-shell >/dev/null 2>&1 || true
fi

# A machine may have a browser and lack the library.
if [ -x .venv/bin/python ] && ! .venv/bin/python -m playwright --version >/dev/null 2>&1; then
    bring "the library libatomic" libatomic1 "Playwright's driver is linked against" \
        "The console's tests in a browser" the-library-has-no-command
fi
