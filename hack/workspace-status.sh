#!/usr/bin/env bash
# Prints what a release build stamps into binaries: the commit, and one version
# for each module of go.work, from that module's own tags (core/v1.2.3). A
# module without a tag has the version that release/trains.yaml plans, with
# -dev behind it. Bazel reads it with --config=release, hack/build.sh always.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "STABLE_GIT_COMMIT $(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)"

planned-version() {
  awk -v module="$1" '
    $1 == "-" { found = ($2 == "path:" && $3 == module) }
    found && $1 == "version:" { gsub(/"/, "", $2); print $2; exit }
  ' release/trains.yaml
}

# The paths are read from go.work without the go command: Bazel runs this with
# a PATH of its own.
sed -n 's|^\t\./\([^ ]*\).*|\1|p' go.work | while read -r module; do
  if version="$(git describe --tags --match "$module/v*" 2>/dev/null)"; then
    version="${version#"$module/v"}"
  else
    version="$(planned-version "$module")"
    version="${version:-0.0.0}-dev"
  fi
  echo "STABLE_$(tr 'a-z/-' 'A-Z__' <<<"$module")_VERSION $version"
done
