#!/bin/bash
# Builds Octet for emulated GPUs and tests it.
#
#   tools/test.sh          builds build/emulation and runs all its tests
#   tools/test.sh --all    then also runs the tests labelled `sanitize` under AddressSanitizer with
#                          UndefinedBehaviorSanitizer, under ThreadSanitizer, and with weak memory
#
# Works on a fresh Debian 12 as root: missing packages are installed first. Tells how long each stage
# takes, and which tests take longest.
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

. tools/stages.sh
jobs=$(nproc)
# Finished and all commands of the build, and the seconds that it has taken.
export NINJA_STATUS='[%f/%t, %es] '

# slowest_tests LOG: the ten that took longest, of what ctest has printed.
slowest_tests() {
  echo "-- the slowest tests, in seconds:" >&2
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*/\2 \1/p' "$1" |
    sort -rn | awk 'NR <= 10 { printf "%8.1f  %s\n", $1, $2 }' >&2
}

stage packages
tools/install_packages.sh build plot

for preset in "${presets[@]}"; do
  stage "$preset: build"
  flags=()
  case $preset in
    # Lines and names are enough here: variables would be a fifth of the time that kernels take.
    emulation | emulation-weak)
      flags=(-DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1 -fdebug-info-for-profiling -DNDEBUG")
      ;;
  esac
  cmake --preset "$preset" "${flags[@]}" >/dev/null
  cmake --build --preset "$preset" -j "$jobs"

  # Tests wait for a third of their time, for deadlines and processes; less under a sanitizer.
  at_once=$((jobs + 1))
  case $preset in emulation | emulation-weak) at_once=$((5 * jobs / 2)) ;; esac
  stage "$preset: tests"
  log=build/$preset/tests.log
  # A thread that wakes another one goes on, which saves a third of a test's many switches.
  timeout 1800 chrt --batch 0 ctest --preset "$preset" -j "$at_once" --timeout 120 | tee "$log"
  slowest_tests "$log"
done
