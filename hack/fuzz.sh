#!/usr/bin/env bash
# Runs every native fuzz target for a while, one after the other:
#   hack/fuzz.sh [TIME] [TARGET...]     such as: hack/fuzz.sh 10m FuzzRewrite
# Inputs that reach new code are kept in Go's build cache; the smallest of them
# go to the target's testdata/fuzz, so that "go test" tries them each time. One
# that fails is there already, and its place is in the output.
set -euo pipefail
cd "$(dirname "$0")/.."

time="${1:-1m}"
shift || true
keep=40 # inputs of a target, and bytes of an input
largest=2000
result=0

while IFS=: read -r file _ line; do
  target="$(sed -E 's/^func (Fuzz[A-Za-z0-9]*).*/\1/' <<<"$line")"
  [ $# = 0 ] || [[ " $* " == *" $target "* ]] || continue

  package="$(dirname "$file")"
  module="$package"
  until [ -f "$module/go.mod" ]; do module="$(dirname "$module")"; done

  echo "--- $target in $package for $time"
  (cd "$package" && GOWORK=off go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" ${FUZZ_WORKERS:+-parallel "$FUZZ_WORKERS"} .) || result=1

  cache="$(go env GOCACHE)/fuzz/$(cd "$package" && GOWORK=off go list .)/$target"
  [ -d "$cache" ] || continue
  corpus="$package/testdata/fuzz/$target"
  mkdir -p "$corpus"
  find "$cache" -type f -size "-${largest}c" -printf '%s %p\n' | sort -n | awk '{ print $2 }' | awk -v n="$keep" '{ line[NR] = $0 } END { step = NR > n ? NR / n : 1; for (i = 1; i <= NR; i += step) print line[int(i)] }' |
    while read -r input; do cp "$input" "$corpus/"; done
done < <(grep -rn --include='*_test.go' '^func Fuzz' --exclude-dir='bazel-*' . | sed 's|^\./||' | sort)

exit "$result"
