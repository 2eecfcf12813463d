#!/bin/sh
# Brings the voice that speaks to the console's microphone in the tests: Debian's espeak-ng.
set -eu
. "$(dirname "$0")/bring.sh"

bring espeak-ng espeak-ng "speaks to the microphone in the tests" "The tests that speak to the microphone" espeak-ng
