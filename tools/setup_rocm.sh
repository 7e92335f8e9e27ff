#!/bin/bash
# Unpacks what compiling for AMD GPUs needs into a folder of its own, on a Debian machine without
# ROCm: HIP, hipCUB and RCCL headers and device libraries from a newer Debian suite, and a stub to
# link with.
#
#   tools/setup_rocm.sh DIR [SUITE...]       default suites: experimental sid trixie, first that has it
#
# About 1.5 MB is downloaded and nothing is installed: apt runs with a state of its own below DIR and
# takes the mirror from the machine's own sources. DIR is replaced as a whole, at the end. DIR/flags
# receives the compiler flags that this version needs; CMake reads them (cmake/OctetRocm.cmake).
#
# The stub answers every HIP call with hipErrorNoDevice: programs link, start, and say that there is
# no device. The suite's real library needs a newer C library than Debian 12 has.
set -euo pipefail

if [ $# -lt 1 ]; then
  sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0"
  exit 2
fi
dir=$(realpath -m "$1")
shift
suites=("$@")
[ ${#suites[@]} -gt 0 ] || suites=(experimental sid trixie)

work=$(mktemp -d --suffix=.setup_rocm)
trap 'rm -rf "$work"' EXIT
tree=$work/tree

mirror=$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
if [ -z "$mirror" ] && [ -f /etc/apt/sources.list ]; then
  mirror=$(sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+).*/\2/p' /etc/apt/sources.list | head -1)
fi
if [ -z "$mirror" ]; then
  echo "setup_rocm: no Debian mirror in /etc/apt: not a Debian machine?" >&2
  exit 1
fi

# Unpacks the newest HIP of a suite into $tree.
unpack() {
  local apt=$work/apt options device_libraries
  rm -rf "$apt" "$tree"
  mkdir -p "$apt"/etc/{apt.conf.d,preferences.d} "$apt"/lists/partial \
    "$apt"/cache/archives/partial "$apt"/debs "$tree"
  cp /etc/apt/apt.conf.d/* "$apt/etc/apt.conf.d/" 2>/dev/null || true
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" \
    >"$apt/etc/sources.list"
  : >"$apt/status"
  options=(-o "Dir::Etc=$apt/etc" -o "Dir::State=$apt" -o "Dir::State::status=$apt/status"
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o Acquire::Languages=none
    -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update || return 1
  device_libraries=$(apt-cache "${options[@]}" pkgnames rocm-device-libs- | sort -V | tail -1)
  [ -n "$device_libraries" ] || return 1
  (cd "$apt/debs" &&
    apt-get "${options[@]}" -qq download libamdhip64-dev "$device_libraries" \
      libhipcub-dev librocprim-dev librccl-dev) || return 1
  for package in "$apt"/debs/*.deb; do dpkg-deb -x "$package" "$tree" || return 1; done
}

# The shape in which clang (--rocm-path) and CMake (hip-lang) look for their files.
arrange() {
  local bitcode config
  bitcode=$(dirname "$(find "$tree" -name ockl.bc | head -1)")
  mkdir -p "$tree/usr/amdgcn" "$tree/usr/lib/cmake"
  ln -sfn usr/lib "$tree/lib"
  ln -sfn "$(realpath --relative-to="$tree/usr/amdgcn" "$bitcode")" "$tree/usr/amdgcn/bitcode"
  for config in "$tree"/usr/lib/x86_64-linux-gnu/cmake/hip*; do
    ln -sfn "../x86_64-linux-gnu/cmake/$(basename "$config")" \
      "$tree/usr/lib/cmake/$(basename "$config")"
  done
  ln -sfn x86_64-linux-gnu/libamdhip64.so "$tree/usr/lib/libamdhip64.so"
}

# Every function that HIP's headers declare, answering hipErrorNoDevice (100).
stub() {
  local lib=$tree/usr/lib/x86_64-linux-gnu include=$tree/usr/include/hip file soname
  file=$(grep -hoE 'libamdhip64\.so\.[0-9.]*[0-9]' "$lib"/cmake/hip-lang/*.cmake |
    awk '{print length, $0}' | sort -rn | head -1 | cut -d' ' -f2)
  soname=$(grep -oE '^libamdhip64\.so\.[0-9]+' <<<"$file")
  {
    grep -ohE '\bhip[A-Z][A-Za-z0-9_]*\(' "$include/hip_runtime_api.h" "$include/hip_ext.h" |
      tr -d '(' | sort -u | grep -vE '^hip(GetErrorName|GetErrorString)$|R0600$|_spt$' |
      awk '{print "int " $1 "(void) { return 100; }"}'
    cat <<'C'
int hipGetDevicePropertiesR0600(void) { return 100; }
int hipChooseDeviceR0600(void) { return 100; }
const char* hipGetErrorName(int e) { return e == 100 ? "hipErrorNoDevice" : e ? "hipError" : "hipSuccess"; }
const char* hipGetErrorString(int e) { return e == 100 ? "no ROCm device" : e ? "error" : "no error"; }
int __hipPushCallConfiguration(void) { return 100; }
int __hipPopCallConfiguration(void) { return 100; }
static void* module;
void** __hipRegisterFatBinary(const void* data) { (void)data; return &module; }
void __hipUnregisterFatBinary(void** modules) { (void)modules; }
void __hipRegisterFunction(void) {}
void __hipRegisterVar(void) {}
void __hipRegisterManagedVar(void) {}
C
  } >"$work/stub.c"
  clang-22 -O1 -shared -fPIC -w "-Wl,-soname,$soname" "$work/stub.c" -o "$lib/$file"
  ln -sf "$file" "$lib/$soname"
  ln -sf "$file" "$lib/libamdhip64.so"
}

found=
for suite in "${suites[@]}"; do
  if unpack "$suite"; then
    found=$suite
    break
  fi
  echo "setup_rocm: no HIP from $suite" >&2
done
[ -n "$found" ] || exit 1
arrange
stub

version=$tree/usr/share/hip/version
major=$(sed -n 's/^HIP_VERSION_MAJOR=//p' "$version")
minor=$(sed -n 's/^HIP_VERSION_MINOR=//p' "$version")
flags=
# HIP 5 and 6 use a wave-size macro that clang has dropped since; older device libraries do not know
# code object version 6.
[ "$major" -ge 7 ] || flags="-D__AMDGCN_WAVEFRONT_SIZE=64"
[ -e "$tree/usr/amdgcn/bitcode/oclc_abi_version_600.bc" ] || flags="$flags -mcode-object-version=5"
echo "$flags" >"$tree/flags"

rm -rf "$dir"
mkdir -p "$(dirname "$dir")"
mv "$tree" "$dir"
echo "HIP $major.$minor from $found, $(du -sh "$dir" | cut -f1) in $dir"
