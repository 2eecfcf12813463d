#!/bin/sh
# Brings the browser that the console's tests drive: Debian's Chromium. Playwright itself comes with .venv.
set -eu
. "$(dirname "$0")/bring.sh"

bring Chromium "chromium fonts-liberation" "the console's tests drive" "The console's tests in a browser" \
    chromium chromium-browser google-chrome
