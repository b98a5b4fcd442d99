#!/bin/sh
# VNN-COMP entry script: install_tool.sh VERSION
# Builds the command in the repository that contains this script.
set -eu
[ "${1:-}" = v1 ] || { echo "expected version v1, found '${1:-}'" >&2; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v cargo > /dev/null; then
    echo "cargo is needed; install Rust from https://rustup.rs" >&2
    exit 1
fi
cargo build --release --manifest-path "$here/../../../Cargo.toml" --package panoply-cli
