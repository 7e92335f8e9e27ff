#!/bin/bash
# Compiles, and writes a checksum of the content beside precompiled headers.
#
#   cmake/precompile.sh ROOT COMPILER ARGUMENT...
#
# Precompiled headers contain the absolute paths of a build, so ccache would find nothing that was
# compiled with those of another clone or of another build that compiles in the same way. It takes
# FILE.pch.sum in their place: a checksum of the command, of the preprocessed headers and of their
# macros, with ROOT and the build's folder left out.
set -euo pipefail

root=$1
shift
"$@"

output=
preprocess=()
while [ $# -gt 0 ]; do
  case $1 in
    -o) output=$2 && shift ;;
    -MT | -MF) shift ;;
    -c | -MD) ;;
    -Xclang)
      [ "$2" = -emit-pch ] || preprocess+=("$1" "$2")
      shift
      ;;
    *) preprocess+=("$1") ;;
  esac
  shift
done
case $output in
  *.pch)
    { printf '%s\n' "${preprocess[@]}" && "${preprocess[@]}" -E -dD; } | sed "s|$PWD||g; s|$root||g" |
      sha256sum >"$output.sum"
    ;;
esac
