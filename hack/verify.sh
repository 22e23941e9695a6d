#!/usr/bin/env bash
# Checks the repository without changing it: hack/verify.sh [CHECK...]
#
# One function per check; all run, each prints a line with its time, and the
# output of those that fail is shown. The comment of a failed check's function
# is what to do about it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Run "make generate" and commit what it changes.
verify-generated() {
  copy="$(mktemp -d)" # not local: the trap outlives the function
  trap 'rm -rf "$copy"' EXIT
  git ls-files -z --cached --others --exclude-standard --deduplicate |
    tar --null --files-from=- --ignore-failed-read -cf - 2>/dev/null | tar -xf - -C "$copy"
  cd "$copy"
  git init -q
  git add -A
  # Generated files whose source is gone must go, too. Of the others the order
  # of generation takes care.
  find . \( -name '*.pb.go' -o -name 'zz_generated.*.go' \) -delete
  hack/generate.sh
  git add -AN
  # The go command adds to go.work.sum whatever it had to look at.
  git diff --exit-code --stat -p -- . ':!go.work.sum'
}

# Run "make fmt".
verify-gofmt() {
  hack/tool.sh golangci-lint fmt --diff
}

# Fix what it names; "make lint ARGS=--fix" fixes some by itself.
verify-lint() {
  hack/packages.sh | xargs hack/tool.sh golangci-lint run
}

# Run "GOWORK=off go mod tidy" in the folder that it names.
verify-tidy() {
  local dir result=0
  for dir in $(go list -m -f '{{.Dir}}') hack/tools/*/; do
    (cd "$dir" && GOWORK=off go mod tidy -diff) || { echo "in $dir"; result=1; }
  done
  return "$result"
}

# Fix api/provider/v2alpha1, or explain an exception in api/buf.yaml.
verify-proto-lint() {
  (cd api && ../hack/tool.sh buf lint)
}

# A released protocol only grows: add a field or an RPC beside the old one.
verify-proto-breaking() {
  [ -f api/provider/released.binpb ] || { echo "nothing is released yet"; return; }
  (cd api && ../hack/tool.sh buf breaking --against provider/released.binpb)
}

# Shorten descriptions: the API server refuses to store larger ones by apply.
verify-crd-size() {
  local large
  large="$(git ls-files --cached --others --exclude-standard --deduplicate '*/crds/*.yaml' |
    while read -r f; do find "$f" -size +200k; done)"
  echo "$large"
  [ -z "$large" ]
}

# Move the import, or the code, to where design and CONTRIBUTING.md allow it.
verify-imports() {
  # Not from the cache: that does not see what go list reads.
  go test -count=1 ./release/imports
}

# Make release/trains.yaml, go.work and the go.mod files agree.
verify-release() {
  go run ./release/cmd/release check
}

# Use the word that it proposes, or explain an exception in
# release/internal/language.
verify-language() {
  go run ./release/cmd/release language
}

checks=("$@")
[ $# -gt 0 ] || checks=(gofmt generated tidy lint proto-lint proto-breaking crd-size imports release language)
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
failed=()
for check in "${checks[@]}"; do
  declare -F "verify-$check" >/dev/null || { echo "$0: no check '$check'" >&2; exit 2; }
  begin=$SECONDS
  # In a process of its own, with errexit on: a function in a condition would
  # run with it off.
  set +e
  (set -e; "verify-$check") >"$log" 2>&1
  result=$?
  set -e
  if [ "$result" = 0 ]; then
    printf 'ok    %-16s %3ds\n' "$check" "$((SECONDS - begin))"
  else
    printf 'FAIL  %-16s %3ds\n' "$check" "$((SECONDS - begin))"
    sed -n '1,100s/^/      /p' "$log"
    sed -n "/^# /{N;s/^# \(.*\)\nverify-$check() {/      => \1/p}" "$0"
    failed+=("$check")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}; again: hack/verify.sh ${failed[*]}" >&2
  exit 1
fi
