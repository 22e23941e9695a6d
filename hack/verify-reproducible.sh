#!/usr/bin/env bash
# Builds the operator twice with Bazel and twice with the go command, each time
# with nothing left from the time before, and fails unless both give the same
# file bit by bit. Takes as long as two builds from nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

work="$(mktemp -d)"
bases=()
cleanup() {
  local base
  for base in "${bases[@]}"; do
    hack/bazel.sh --output_base="$base" clean --expunge >/dev/null 2>&1 || true
  done
  chmod -R u+w "$work"
  rm -rf "$work"
}
trap cleanup EXIT

bazel-build() { # output base, then flags
  local base="$1"
  shift
  bases+=("$base")
  hack/bazel.sh --output_base="$base" build --noshow_progress --color=no --symlink_prefix=/ "$@" \
    //core/cmd/external-secrets >&2
  cp "$base/execroot/_main/$(hack/bazel.sh --output_base="$base" cquery --noshow_progress --output=files "$@" \
    //core/cmd/external-secrets 2>/dev/null)" "$base.binary"
}

go-build() { # name; the build cache is part of what must not matter
  GOCACHE="$work/cache-$1" CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/$1.binary" ./core/cmd/external-secrets
  rm -rf "$work/cache-$1"
}

compare() {
  (cd "$work" && sha256sum "$1.binary" "$2.binary")
  cmp "$work/$1.binary" "$work/$2.binary" || { echo "$0: $1 and $2 differ" >&2; exit 1; }
}

go-build go-1
go-build go-2
compare go-1 go-2

# The first may take what earlier builds left in the disk cache.
bazel-build "$work/bazel-1"
bazel-build "$work/bazel-2" --disk_cache=
compare bazel-1 bazel-2
