#!/bin/bash
# Builds Octet for emulated GPUs and tests it.
#
#   tools/test.sh          builds build/emulation and runs all its tests
#   tools/test.sh --all    then also runs the tests labelled `sanitize` under AddressSanitizer with
#                          UndefinedBehaviorSanitizer, under ThreadSanitizer, and with weak memory
#
# Works on a fresh Debian 12 as root: missing packages are installed first. Each step is announced
# with its number and the time since the start.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' tools/test.sh; }

presets=(emulation)
case ${1:-} in
  "") ;;
  --all) presets=(emulation emulation-asan emulation-tsan emulation-weak) ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

jobs=$(nproc)
steps=$((1 + 2 * ${#presets[@]}))
step_number=0
step() {
  step_number=$((step_number + 1))
  printf '== [%d/%d, %d:%02d] %s\n' "$step_number" "$steps" $((SECONDS / 60)) $((SECONDS % 60)) "$1" >&2
}
# Finished and all commands of the build, and the seconds that it has taken.
export NINJA_STATUS='[%f/%t, %es] '

step "packages: installing those that are missing"
tools/install_packages.sh build plot

for preset in "${presets[@]}"; do
  step "$preset: building with $jobs jobs"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$jobs"
  # Tests wait for a third of their time, for deadlines and processes; not under a sanitizer.
  at_once=$jobs
  [[ $preset == emulation ]] && at_once=$((2 * jobs))
  step "$preset: running tests, $at_once at a time, the longest first"
  timeout 1800 ctest --preset "$preset" -j "$at_once" --timeout 120
done
printf '== all passed in %d:%02d\n' $((SECONDS / 60)) $((SECONDS % 60)) >&2
