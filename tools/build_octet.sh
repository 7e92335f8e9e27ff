# For scripts in bash, which source it from the tree's root: builds `octet` for what this machine
# has, NVIDIA GPUs, AMD GPUs or neither (then eight emulated ones). Sets octet, platform and gpus.
# shellcheck shell=bash disable=SC2034
PATH=$PATH:/usr/local/cuda/bin:/opt/rocm/bin
if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
  platform=nvidia packages=nvidia gpus=$(nvidia-smi -L | wc -l)
elif [ -e /opt/rocm/include/hip/hip_runtime.h ] && [ -e /dev/kfd ]; then
  platform=amd packages=build gpus=$(rocminfo | grep -c 'Device Type: *GPU')
else
  platform=emulation packages=build gpus=8
fi
octet=build/$platform/tools/octet

command -v dpkg-query >/dev/null && tools/install_packages.sh "$packages"
echo "== building for $platform, $gpus GPUs" >&2
# Without the tests, unless somebody has configured them there.
tests=OFF
if grep -qs '^OCTET_TESTS:BOOL=ON' "build/$platform/CMakeCache.txt"; then tests=ON; fi
cmake --preset "$platform" -DOCTET_TESTS=$tests >/dev/null
cmake --build --preset "$platform" --target octet -j "$(nproc)" >&2
