#!/usr/bin/env bash
# Prints the package patterns of every module of go.work that has packages:
# ./api/... ./core/... A single ./... does not reach across modules.
set -euo pipefail
cd "$(dirname "$0")/.."
go list -m -f '{{.Dir}}' | while read -r dir; do
  [ -z "$(go list "$dir/..." 2>/dev/null)" ] || echo "./${dir#"$PWD/"}/..."
done
