#!/bin/bash
# Builds Octet for emulated GPUs and tests it; then the tests labelled `sanitize` again under
# AddressSanitizer with UndefinedBehaviorSanitizer, under ThreadSanitizer, and with weak memory.
#
#   tools/test.sh [--no-sanitizers]
#
# Works on a fresh Debian 12 as root: missing packages are installed first. Everything that is built
# goes to build/. Less than half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "tools/test.sh"; }

presets=(emulation emulation-asan emulation-tsan emulation-weak)
case ${1:-} in
  "") ;;
  --no-sanitizers) presets=(emulation) ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

tools/install_packages.sh build

jobs=$(nproc)
for preset in "${presets[@]}"; do
  echo "== $preset" >&2
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$jobs"
  timeout 900 ctest --preset "$preset" -j "$jobs" --timeout 120
done
