# Sourced by the scripts that bring a program which only the tests need: from Debian, where it is missing and can be installed.
# Where it cannot, this says so and the tests that need it are skipped; on CI (CI=true) that is a failure.

# bring WHAT PACKAGES PURPOSE SKIPPED NAME...: nothing happens if one of the names can be run.
#   WHAT      the program, as people call it, and PACKAGES, those of Debian's that have it, the program's own first
#   PURPOSE   what it does for the tests, and SKIPPED, which of them cannot run without it
bring() {
    what=$1 packages=$2 purpose=$3 skipped=$4
    shift 4
    for name in "$@"; do
        if command -v "$name" >/dev/null 2>&1; then
            return
        fi
    done
    package=${packages%% *}
    if ! command -v apt-get >/dev/null 2>&1; then
        give_up "there is no $what on this machine, and no apt-get to bring it; install $what by hand."
    fi
    if [ "$(id -u)" != 0 ]; then
        give_up "there is no $what on this machine; install it with sudo apt-get install $package."
    fi
    echo "Installing $package, which $purpose ..."
    export DEBIAN_FRONTEND=noninteractive
    # The packages are words of their own.
    # shellcheck disable=SC2086
    if ! output=$(apt-get update 2>&1 && apt-get install -y --no-install-recommends $packages 2>&1); then
        printf '%s\n' "$output" >&2
        give_up "apt-get could not install $package; the reason is above."
    fi
}

# Named after the script, which is the make target too.
give_up() {
    echo "$(basename "$0" .sh): $* $skipped are skipped." >&2
    if [ "${CI:-}" = true ]; then
        exit 1
    fi
    exit 0
}
