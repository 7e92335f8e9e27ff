#!/bin/bash
# Builds `octet` for what this machine has, NVIDIA GPUs, AMD GPUs or neither (then eight emulated
# ones), and runs one MoE step on all of them: dispatch, experts, combine, checked against the
# serial reference.
set -euo pipefail
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/local/cuda/bin:/opt/rocm/bin
if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  platform=nvidia packages=nvidia gpus=$(nvidia-smi -L | wc -l)
elif [ -e /opt/rocm/include/hip/hip_runtime.h ] && [ -e /dev/kfd ]; then
  platform=amd packages=build gpus=$(rocminfo | grep -c 'Device Type: *GPU')
else
  platform=emulation packages=build gpus=8
fi
# As many ranks as there are GPUs, if they divide the 256 experts evenly.
for ranks in 8 4 2 1; do
  [ "$ranks" -gt "$gpus" ] || break
done

command -v dpkg-query >/dev/null && tools/install_packages.sh "$packages"
echo "== $platform, $ranks ranks" >&2
cmake --preset "$platform" -DOCTET_TESTS=OFF >/dev/null
cmake --build --preset "$platform" --target octet -j "$(nproc)" >&2
set -x
"build/$platform/tools/octet" run --ranks="$ranks" --experts=256 --topk=8 --hidden=7168 \
  --max_tokens=256 --dtype=fp16 --strategy=direct --check
