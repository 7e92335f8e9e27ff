#!/bin/bash
# Installs the Debian packages that are missing on this machine; does nothing when none is.
#
#   tools/install_packages.sh SET...
#     build   emulated GPUs, tools and tests      amd    compiling for AMD GPUs without ROCm
#     nvidia  host libraries for NVIDIA builds    lint   clang-format and clang-tidy
#     plot    tools/plot.py and tools/compare.py
set -euo pipefail

packages=()
for set in "$@"; do
  case $set in
    build)
      packages+=(clang-22 lld-22 llvm-22 libclang-rt-22-dev g++ cmake ninja-build ccache libabsl-dev
        libcli11-dev libgtest-dev libgmock-dev libbenchmark-dev nlohmann-json3-dev python3
        python3-numpy python3-pip python3-setuptools python3-wheel gdb git
        ca-certificates pkgconf dpkg-dev file groff-base libopenmpi-dev openmpi-bin)
      ;;
    amd) packages+=(clang-tools-22 gcc) ;;
    nvidia)
      packages+=(g++ cmake ninja-build ccache libabsl-dev libcli11-dev libbenchmark-dev
        nlohmann-json3-dev git)
      ;;
    plot) packages+=(python3 python3-matplotlib python3-scipy) ;;
    lint) packages+=(clang-format-22 clang-tidy-22 clang-tools-22) ;;
    *)
      sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0" >&2
      exit 2
      ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
    missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" != 0 ]; then
  echo "Missing packages. As root: apt-get update && ${install[*]}" >&2
  exit 1
fi
echo "Installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
"${install[@]}" >/dev/null
