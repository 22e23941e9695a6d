#!/usr/bin/env bash
# Builds every command that ships into bin/: static, with the version of its
# module and the commit inside (see --version). Commands of e2e do not ship.
set -euo pipefail
cd "$(dirname "$0")/.."

status="$(hack/workspace-status.sh)"
value() { sed -n "s/^$1 //p" <<<"$status"; }
commit="$(value STABLE_GIT_COMMIT)"

mkdir -p bin
go list -m -f '{{.Path}} {{.Dir}}' | while read -r module dir; do
  folder="${dir#"$PWD/"}"
  case "$folder" in e2e | testkit) continue ;; esac
  version="$(value "STABLE_$(tr 'a-z/-' 'A-Z__' <<<"$folder")_VERSION")"
  # A command either has these variables itself, or uses its module's package
  # internal/version; the linker ignores what is not there.
  stamp="-X main.version=$version -X main.commit=$commit"
  stamp="$stamp -X $module/internal/version.Version=$version -X $module/internal/version.Commit=$commit"
  for command in "$folder"/cmd/*/; do
    [ -d "$command" ] || continue
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w $stamp" -o bin/ "./$command"
    echo "bin/$(basename "$command") $version"
  done
done
