#!/bin/sh
# Makes the development environment (.venv) or, called as `setup.sh lock`, writes requirements.lock anew.
#
# The environment is remembered in .venv/.stamp by what it was made from: this folder, the lock, the two pyproject.toml and the
# interpreter that was asked for. A run that finds all of them unchanged does nothing; a changed pyproject.toml alone
# installs only the project's packages again. Folders may have spaces in their names, so everything is quoted and relative.
set -eu
cd "$(dirname "$0")/.."

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_USER=0
unset PYTHONHOME PYTHONPATH PIP_REQUIRE_VIRTUALENV 2>/dev/null || true

fail() {
    echo "setup: $*" >&2
    exit 1
}

recent_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        recent_enough "$PYTHON" || fail "PYTHON is \"$PYTHON\", which does not run or is older than Python 3.11; name a newer one."
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
        if recent_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer was found; install one, or name it: make setup PYTHON=/path/to/python3."
}

# Runs a command silently; its output matters only when it fails.
quietly() {
    if ! output=$("$@" 2>&1); then
        printf '%s\n' "$output" >&2
        return 1
    fi
}

# Debian ships python3 without the part that makes environments; it is added where that is possible.
make_environment() {
    if "$1" -c 'import venv; from ensurepip import version' >/dev/null 2>&1; then
        :
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing python3-venv, which this Python needs to make an environment ..."
        export DEBIAN_FRONTEND=noninteractive
        quietly apt-get update || fail "apt-get could not read its package lists; the reason is above."
        quietly apt-get install -y --no-install-recommends python3-venv || fail "apt-get could not install python3-venv; the reason is above."
    else
        fail "\"$1\" cannot make environments; install the package python3-venv (sudo apt-get install python3-venv) and run make setup again."
    fi
    quietly "$1" -m venv --clear "$2" || fail "\"$1\" could not make the environment \"$2\"; the reason is above."
}

checksum() {
    cksum <"$1"
}

write_lock() {
    locker=build/locker
    if [ ! -x "$locker/bin/uv" ]; then
        python=$(find_python)
        make_environment "$python" "$locker"
        quietly "$locker/bin/python" -m pip install uv || fail "uv, which writes the lock, could not be installed; the reason is above."
    fi
    # uv does not read pip's configuration; a mirror that is set there is passed on, and stays out of the lock.
    mirror=$("$locker/bin/python" -m pip config get global.index-url 2>/dev/null || true)
    if [ -n "$mirror" ]; then
        export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$mirror}"
    fi
    "$locker/bin/python" -m uv pip compile pyproject.toml --extra dev --output-file requirements.lock --quiet \
        --universal --python-version 3.11 --generate-hashes \
        --no-emit-package handrail --no-emit-package handrail-reference \
        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" "$@"
}

# What pip says goes to build/setup.txt, and a line to the terminal for every twentieth package.
install_packages() {
    mkdir -p build
    rm -f build/setup.done
    {
        .venv/bin/python -m pip install --require-hashes --only-binary :all: --no-compile --progress-bar off \
            -r requirements.lock && : >build/setup.done
    } 2>&1 | tee build/setup.txt | awk '
        /^Collecting / { if (++found % 20 == 0) { print "  " found " packages found or fetched ..."; fflush() } }
        /^Installing collected / { print "  " found " packages found; installing them ..."; fflush() }'
    [ -f build/setup.done ] || {
        cat build/setup.txt >&2
        return 1
    }
    rm -f build/setup.done
}

install_everything() {
    python=$(find_python)
    echo "Setting up .venv with $("$python" --version); the first time this takes one to three minutes, longer on a slow network ..."
    make_environment "$python" .venv
    echo "Installing the packages of requirements.lock, each checked by its hash ..."
    install_packages || fail "the packages in requirements.lock could not be installed; the reason is above."
    install_project
}

install_project() {
    quietly .venv/bin/python -m pip install --no-deps --no-build-isolation --editable . --editable packages/handrail-reference ||
        fail "the project itself could not be installed; the reason is above."
}

remember() {
    printf '%s\n' "$place" "$locked" "$project" "${PYTHON:-}" >.venv/.stamp
}

if [ "${1:-}" = lock ]; then
    shift
    write_lock "$@"
    exit
fi

place=$(pwd -P)
locked=$(checksum requirements.lock)
project="$(checksum pyproject.toml) $(checksum packages/handrail-reference/pyproject.toml)"
if [ -f .venv/.stamp ] && [ -x .venv/bin/python ]; then
    made_in=$(sed -n 1p .venv/.stamp)
    made_from=$(sed -n 2p .venv/.stamp)
    made_for=$(sed -n 3p .venv/.stamp)
    made_with=$(sed -n 4p .venv/.stamp)
    # Nothing asked for: keep to the interpreter that was chosen last time.
    PYTHON=${PYTHON:-$made_with}
    if [ "$made_in" = "$place" ] && [ "$made_from" = "$locked" ] && [ "$made_with" = "$PYTHON" ]; then
        if [ "$made_for" != "$project" ]; then
            rm .venv/.stamp
            install_project
            remember
        fi
        exit
    fi
fi
install_everything
remember
