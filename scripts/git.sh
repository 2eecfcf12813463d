#!/bin/sh
# Brings git, which the tests of repositories run: Debian's.
set -eu
. "$(dirname "$0")/bring.sh"

bring git git "the tests of repositories run" "The tests of repositories" git
