#!/usr/bin/env bash
# Runs the tests that a change can affect, of every module of go.work, or of the
# packages that are named:
#   hack/test.sh [--all] [PACKAGE...]
# --all runs the tests of unchanged packages, too. The last line is the count:
# N passed, N failed, N skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

flags=()
while [[ "${1:-}" == --* ]]; do
  flags+=("$1")
  shift
done

# Modules of the community are no part of go.work: their tests run by themselves.
for module in ./providers/community/*/go.mod; do
  [ $# = 0 ] && [ -e "$module" ] || continue
  (cd "$(dirname "$module")" && GOWORK=off go test ./...)
done

if [ $# = 0 ]; then
  flags+=(--complete)
  mapfile -t packages < <(hack/packages.sh)
  set -- "${packages[@]}"
fi
gotestsum="$(hack/tool.sh --path gotestsum)"
program="$(mktemp -d)"
trap 'rm -rf "$program"' EXIT
go build -o "$program/runtests" ./testkit/cmd/runtests
"$program/runtests" --gotestsum="$gotestsum" ${flags[@]+"${flags[@]}"} "$@"
