#!/bin/bash
# Compiles, through ccache if there is one: the launcher of all compilers.
#
#   cmake/compile.sh ROOT CCACHE COMPILER ARGUMENT...     CCACHE may be `none`
#
# Compilers fill hundreds of megabytes: with large pages they take a sixth less time. ccache also
# finds what other clones have compiled: paths below ROOT are relative to it, and what a build folder
# is called is not part of an object (so a debugger that does not find sources there needs
# `set substitute-path`). It leaves alone what follows -Xclang, such as precompiled headers; build
# folders are left out of that here.
#
# ptxas mentions, but not as a warning, that it makes each wgmma wait for the one before: registers
# that do not suffice are enough for that. Where warnings are errors, so is this.
root=$1 ccache=$2
shift 2
compile() {
  [[ " $* " == *" -Werror=all-warnings "* ]] || exec "$@"
  local said status
  said=$("$@" 2>&1)
  status=$?
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  [[ $said != *"wgmma.mma_async instructions are serialized"* ]] || status=1
  exit $status
}
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864
[ "$ccache" != none ] || compile "$@"
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_PCH_EXTSUM=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
arguments=("${@/#"$PWD/"/}")
# ccache makes the paths of files relative to the build, but not that of an installation.
relative=$(realpath --relative-to="$PWD" "$root")
compile "$ccache" "${arguments[@]/#"--rocm-path=$root/"/"--rocm-path=$relative/"}"
