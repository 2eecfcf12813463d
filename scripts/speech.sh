#!/bin/sh
# Brings the voice that speaks to the console's microphone in the tests: Debian's espeak-ng, where it is missing and can be
# installed. Where it cannot, this says so and the tests that need it are skipped; on CI (CI=true) that is a failure.
set -eu

if command -v espeak-ng >/dev/null 2>&1; then
    exit 0
fi

give_up() {
    echo "speech: $* The tests that speak to the microphone are skipped." >&2
    [ "${CI:-}" != true ]
    exit
}

if ! command -v apt-get >/dev/null 2>&1; then
    give_up "there is no espeak-ng on this machine, and no apt-get to bring it; install espeak-ng by hand."
fi
if [ "$(id -u)" != 0 ]; then
    give_up "there is no espeak-ng on this machine; install it with sudo apt-get install espeak-ng."
fi

echo "Installing espeak-ng, which speaks to the microphone in the tests ..."
export DEBIAN_FRONTEND=noninteractive
if ! output=$(apt-get update 2>&1 && apt-get install -y --no-install-recommends espeak-ng 2>&1); then
    printf '%s\n' "$output" >&2
    give_up "apt-get could not install espeak-ng; the reason is above."
fi
