#!/usr/bin/env bash
# Runs a pinned tool: hack/tool.sh controller-gen crd ...
#                     hack/tool.sh --path buf
#
# The tools are those named by the "tool" directives under hack/tools: modules
# of their own, outside of go.work, so that what a tool requires never touches
# what ships. A module's tools are built once into the user's cache, in a
# folder named after what they are made of; from then on this only runs them.
set -euo pipefail

tools="$(cd "$(dirname "${BASH_SOURCE[0]}")/tools" && pwd)"

path_only=false
if [ "${1:-}" = --path ]; then
  path_only=true
  shift
fi
name="${1:-}"
module="$(grep -lE "^(tool |	)[^ ]+/$name\$" "$tools"/*/go.mod || true)"
if [ -z "$name" ] || [ ! -f "$module" ]; then
  echo "usage: $0 [--path] TOOL [ARGUMENT...]; tools:" \
    "$(sed -nE 's|^(tool \|	)[^ ]+/([^ /]+)$|\2|p' "$tools"/*/go.mod | xargs)" >&2
  exit 2
fi
shift
module="$(dirname "$module")"

# The Go version is part of it: some tools hold the standard library's parser
# and type checker.
key="$({ cat "$module/go.mod" "$module/go.sum"; cd "$module"; GOWORK=off go env GOVERSION; } | sha256sum | cut -c1-16)"
bin="${XDG_CACHE_HOME:-$HOME/.cache}/external-secrets/tools/$(basename "$module")-$key"

if [ ! -x "$bin/$name" ]; then
  mkdir -p "$(dirname "$bin")"
  exec 9>"$bin.lock"
  flock 9
  if [ ! -x "$bin/$name" ]; then # else another process has just built it
    echo "building the tools of hack/tools/$(basename "$module") (once)" >&2
    rm -rf "$bin.partial"
    (cd "$module" && GOWORK=off GOFLAGS='' CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$bin.partial/" tool)
    mv "$bin.partial" "$bin"
  fi
  exec 9>&-
fi

if $path_only; then
  echo "$bin/$name"
else
  exec "$bin/$name" "$@"
fi
