#!/bin/sh
# VNN-COMP entry script: run_instance.sh VERSION CATEGORY ONNX VNNLIB RESULTS_FILE TIMEOUT
# Writes unsat, sat with a counterexample, timeout, unknown or error. PANOPLY names another program than that of install_tool.sh.
set -eu
[ "${1:-}" = v1 ] || { echo "expected version v1, found '${1:-}'" >&2; exit 1; }
[ $# -ge 6 ] || { echo "usage: run_instance.sh v1 CATEGORY ONNX VNNLIB RESULTS_FILE TIMEOUT" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
panoply=${PANOPLY:-$here/../../../target/release/panoply}
rm -f "$5"
code=0
"$panoply" verify "$3" "$4" --device cpu --seconds "$6" --result "$5" || code=$?
case $code in
    0 | 4 | 5) ;;
    *) echo error > "$5" ;;
esac
