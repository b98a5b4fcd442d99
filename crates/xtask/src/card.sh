#!/bin/sh
# Checks and measures one device of this machine, and compares it with PyTorch, in at most ten minutes.
#
#     ./run.sh [DEVICE]        # such as cuda:0; default: the one that Panoply selects
#
# Needs no Rust; the comparison needs PYTHON (default: python3) with PyTorch. Everything is left in the folder results/, of which
# summary.txt has one line per step. Exits with 1 if a step fails.
set -u
cd "$(dirname "$0")" || exit 1
rm -rf results
mkdir results || exit 1
export PANOPLY_CACHE_DIR="$PWD/results/cache"
python="${PYTHON:-python3}"
failed=0

# step NAME SECONDS COMMAND...: runs a command for at most that long; its output goes to results/NAME.txt.
step() {
    name=$1
    seconds=$2
    shift 2
    echo "$name ..."
    begin=$(date +%s)
    timeout "$seconds" "$@" >"results/$name.txt" 2>&1 </dev/null
    code=$?
    took=$(($(date +%s) - begin))
    case $code in
    0) result=passed ;;
    124) result="FAILED: stopped after $seconds s" ;;
    *) result="FAILED with exit code $code" ;;
    esac
    [ "$code" -eq 0 ] || failed=1
    echo "$name: $result, $took s" | tee -a results/summary.txt
}

device="${1:-}"
if [ -z "$device" ]; then
    device=$(timeout 30 ./panoply --quiet default | sed -n 's/^device: \([^ ]*\) .*/\1/p')
fi
if [ -z "$device" ]; then
    echo "no device was found; run ./panoply devices" >&2
    exit 1
fi
echo "device: $device" | tee results/summary.txt
step devices 30 ./panoply devices --all --verbose
step report 290 ./panoply report --device "$device" --output results/report.json
step training 70 ./panoply bench training --device "$device" --min-time 0.2
if [ "${device#cuda:}" = "$device" ]; then
    echo "peers: SKIPPED: the comparison with PyTorch needs a device cuda:N" | tee -a results/summary.txt
elif timeout 30 "$python" -c 'import torch' 2>/dev/null; then
    step peers 150 "$python" peers.py ./panoply results/peers.md --device "$device" --seconds 0.2
else
    echo "peers: SKIPPED: $python cannot import torch" | tee -a results/summary.txt
fi
rm -rf results/cache
exit "$failed"
