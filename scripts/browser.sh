#!/bin/sh
# Brings the browser that the console's tests drive: Debian's Chromium, where it is missing and can be installed. Where it cannot,
# this says so and the tests that need it are skipped; on CI (CI=true) that is a failure. Playwright itself comes with .venv.
set -eu

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then
        exit 0
    fi
done

give_up() {
    echo "browser: $* The console's tests in a browser are skipped." >&2
    [ "${CI:-}" != true ]
    exit
}

if ! command -v apt-get >/dev/null 2>&1; then
    give_up "there is no Chromium on this machine, and no apt-get to bring it; install Chromium by hand."
fi
if [ "$(id -u)" != 0 ]; then
    give_up "there is no Chromium on this machine; install it with sudo apt-get install chromium."
fi

echo "Installing chromium, which the console's tests drive ..."
export DEBIAN_FRONTEND=noninteractive
if ! output=$(apt-get update 2>&1 && apt-get install -y --no-install-recommends chromium fonts-liberation 2>&1); then
    printf '%s\n' "$output" >&2
    give_up "apt-get could not install chromium; the reason is above."
fi
