#!/bin/bash
# Searches for input that breaks what reads input: .npy files and recorded routing, --routing, the
# command lines of `octet run` and `perf`, *.safetensors files, config.json, whole model folders and
# placements. With libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer.
#
#   tools/fuzz.sh [SECONDS]     of processor time, shared by the targets; 60 unless said otherwise
#
# An input that fails is left in build/fuzz/<target>/, beside those that were found interesting and
# that the next search begins with; the target runs it again when given its name. What is worth
# keeping belongs into tests/fuzz/corpus/<target>/, which every test run replays.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-60} in
  *[!0-9]* | 0*)
    sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' tools/fuzz.sh >&2
    exit 2
    ;;
esac
targets=(npy routing command_line safetensors model_config model_folder placement)
seconds=$((${1:-60} / ${#targets[@]}))
[ "$seconds" -gt 0 ] || seconds=1

tools/install_packages.sh build
cmake --preset emulation-asan >/dev/null
cmake --build --preset emulation-asan -j "$(nproc)" --target octet_fuzzers

# fuzz TARGET
fuzz() {
  mkdir -p "build/fuzz/$1"
  local log=build/fuzz/$1.log
  # Memory beyond the limit would mean that a number in the input was believed.
  UBSAN_OPTIONS=print_stacktrace=1 "build/emulation-asan/tests/fuzz/${1}_fuzzer" \
    -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=64 -max_len=4096 \
    -dict="tests/fuzz/$1.dict" -artifact_prefix="build/fuzz/$1/" -print_final_stats=1 \
    "build/fuzz/$1" "tests/fuzz/corpus/$1" >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
  printf '== %s\n%s\n' "$1" \
    "$(grep -E '^(Done|stat::number_of_executed_units|stat::peak_rss_mb)|DONE' "$log")"
}
export -f fuzz
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I '{}' bash -euo pipefail -c 'fuzz {}'
