#!/bin/sh
# Build .venv with the package (editable): what a user needs. `setup.sh dev` adds to the same .venv
# what tests and checks need (a dependency group of pyproject.toml).
# Called by make; PYTHON=/path/to/python chooses the interpreter, VENV another folder,
# CONSTRAINTS another file of exact versions, or none if it is empty, and INSTALLER=uv a quicker
# one than pip, which does not read pip's settings; where it fails, pip is asked.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
constraints=${CONSTRAINTS-constraints.txt}

say() { printf '%s\n' "$*"; }
fail() { say "setup: $*" >&2; exit 1; }

# The first interpreter that is new enough; a name may exist and not run (pyenv shims).
find_python() {
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3.14 python3 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

has_ensurepip() { "$python" -c 'import ensurepip' 2>/dev/null; }

# Debian keeps ensurepip in a package of its own.
install_ensurepip() {
  package=$("$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "Installing the system package $package ..."
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq "$package" >/dev/null 2>&1 \
      || { apt-get update -qq && apt-get install -y -qq "$package" >/dev/null; } \
      || fail "apt-get could not install $package; install it by hand and try again."
  else
    fail "Python's venv module is not complete. Run: sudo apt-get install $package"
  fi
}

# What follows is told to either installer.
install() {
  if [ "${INSTALLER:-pip}" = uv ]; then
    $venv/bin/python -m pip install --quiet uv \
      && $venv/bin/uv pip install --quiet --python $venv/bin/python --compile-bytecode \
        ${constraints:+--constraints "$constraints" --build-constraints "$constraints"} "$@" \
      && return
    say "uv could not install them; pip is asked ..."
  fi
  $venv/bin/python -m pip install --quiet "$@"
}

python=$(find_python) || fail "Python 3.11 or newer is needed. Run: sudo apt-get install python3"

# pip would warn about a cache that it cannot write.
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || export PIP_NO_CACHE_DIR=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_WARN_SCRIPT_LOCATION=1
# Also where pip builds this package, in an environment of its own.
[ -z "$constraints" ] || export PIP_CONSTRAINT="$constraints" PIP_BUILD_CONSTRAINT="$constraints"

if ! $venv/bin/python -m pip --version >/dev/null 2>&1; then
  rm -rf $venv
  has_ensurepip || install_ensurepip
  say "Creating $venv with $("$python" --version) ..."
  "$python" -m venv $venv || fail "the virtual environment could not be created (see above)."
fi

say "Installing ${1:-the package} into $venv (a minute or so, once) ..."
if [ -n "${1:-}" ]; then
  $venv/bin/python scripts/dependency_group.py "$1" > "$venv/$1.txt"
  set -- --requirement "$venv/$1.txt"
else
  set -- --editable .
  # A sandboxed kernel can read what it starts from, and cannot write what it compiled of it.
  $venv/bin/python -m compileall -q kernel_agent/inkernel
fi
install "$@" || fail "the packages could not be installed (see above); is the network reachable?"
say "Ready: $venv/bin/kernel-agent --help"
