#!/bin/bash
# Builds `octet` for what this machine has, NVIDIA GPUs, AMD GPUs or neither (then eight emulated
# ones), and runs one MoE step on all of them: dispatch, experts, combine, checked against the
# serial reference.
set -euo pipefail
cd "$(dirname "$0")/.."

. tools/build_octet.sh
# As many ranks as there are GPUs, if they divide the 256 experts evenly.
for ranks in 8 4 2 1; do
  [ "$ranks" -gt "$gpus" ] || break
done
echo "== $platform, $ranks ranks" >&2
# A step takes a quarter of a second on emulated GPUs, and its time says nothing.
steps=()
[ "$platform" != emulation ] || steps=(--iters=5)
set -x
"$octet" run --ranks="$ranks" --experts=256 --topk=8 --hidden=7168 \
  --max_tokens=256 --dtype=fp16 --strategy=direct --check "${steps[@]}"
