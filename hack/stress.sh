#!/usr/bin/env bash
# Runs tests ten times beside processes that take all processors, and stops at
# the first failure: what passes only on an idle machine is a defect.
#   hack/stress.sh [--all] [PACKAGE...]
# Without packages, those whose inputs differ from what last passed on this
# machine: run it before "make test". ESO_STRESS_ROUNDS sets another number of
# rounds. Nothing is recorded.
set -euo pipefail
cd "$(dirname "$0")/.."

flags=()
if [ "${1:-}" = --all ]; then
  flags+=(--all)
  shift
fi
if [ $# = 0 ]; then
  mapfile -t packages < <(hack/packages.sh)
  set -- "${packages[@]}"
else
  flags+=(--all)
fi

program="$(mktemp -d)"
hogs=()
cleanup() {
  for hog in "${hogs[@]}"; do kill "$hog" 2>/dev/null || true; done
  rm -rf "$program"
}
trap cleanup EXIT

go build -o "$program/runtests" ./testkit/cmd/runtests
mapfile -t selected < <("$program/runtests" --list ${flags[@]+"${flags[@]}"} "$@")
if [ ${#selected[@]} = 0 ]; then
  echo "nothing has changed since it passed; name packages, or use --all"
  exit 0
fi
echo "${#selected[@]} packages:" "${selected[@]}"
go test -count=1 -run '^$' "${selected[@]}" >/dev/null # builds beforehand

for _ in $(seq "$(getconf _NPROCESSORS_ONLN)"); do
  (while :; do :; done) &
  hogs+=($!)
done
for round in $(seq "${ESO_STRESS_ROUNDS:-10}"); do
  begin=$SECONDS
  go test -count=1 -p 2 -timeout 40m "${selected[@]}" >"$program/output" || { cat "$program/output"; echo "failed in round $round"; exit 1; }
  echo "round $round passed in $((SECONDS - begin)) s"
done
