#!/bin/sh
# VNN-COMP entry script: prepare_instance.sh VERSION CATEGORY ONNX VNNLIB
# Checks that the files can be read. Nothing is converted: `panoply verify` reads ONNX and VNN-LIB files, also compressed.
set -eu
[ "${1:-}" = v1 ] || { echo "expected version v1, found '${1:-}'" >&2; exit 1; }
[ $# -ge 4 ] || { echo "usage: prepare_instance.sh v1 CATEGORY ONNX VNNLIB" >&2; exit 1; }
for file in "$3" "$4"; do
    [ -r "$file" ] || { echo "cannot read $file" >&2; exit 1; }
done
