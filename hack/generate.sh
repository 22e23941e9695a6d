#!/usr/bin/env bash
# Generates all generated files that are checked in: hack/generate.sh [THING...]
#
# One function per thing; without arguments all of them, in this order:
#   protobuf   Go code of the provider protocol
#   deepcopy   DeepCopy methods of the API types
#   crds       CustomResourceDefinitions: the folder crds of the same modules
#   metadata   what is generated from the metadata.yaml of providers
#   bazel      BUILD files, and the list of dependencies in MODULE.bazel
# hack/verify.sh runs this on a copy of the repository and compares.
set -euo pipefail
cd "$(dirname "$0")/.."
tool="$PWD/hack/tool.sh"

# Modules of the community are not part of go.work.
workspace-of() { # folder
  case "$1" in providers/community/*) echo off ;; *) go env GOWORK ;; esac
}

# The folders of the modules that have API types of their own.
api-modules() {
  local dir
  { go list -m -f '{{.Dir}}'; ls -d "$PWD"/providers/community/*/ 2>/dev/null | sed 's|/$||'; } | while read -r dir; do
    if grep -rqs '^// +groupName=\|^// +kubebuilder:object:generate=true' --include='*.go' "$dir"; then
      echo "${dir#"$PWD/"}"
    fi
  done
}

generate-protobuf() {
  (cd api && "$tool" buf generate)
}

generate-deepcopy() {
  local dir
  for dir in $(api-modules); do
    (cd "$dir" && GOWORK="$(workspace-of "$dir")" "$tool" controller-gen object paths=./...)
  done
}

generate-crds() {
  local dir out
  out="$(mktemp -d)"
  for dir in $(api-modules); do
    (cd "$dir" && GOWORK="$(workspace-of "$dir")" "$tool" controller-gen crd paths=./... output:crd:dir="$out/$dir")
    [ -d "$out/$dir" ] || continue
    # In place at the end only: a package may embed the files.
    mkdir -p "$dir/crds"
    rm -f "$dir"/crds/*.yaml
    cp "$out/$dir"/*.yaml "$dir/crds/"
  done
  rm -rf "$out"
}

generate-metadata() {
  go run ./release/cmd/release metadata
}

# Bazel's name for a Go module: github.com/a/b-c is com_github_a_b_c.
repository-names() {
  awk '{
    slash = index($1 "/", "/")
    n = split(substr($1, 1, slash - 1), host, ".")
    name = host[n]
    for (i = n - 1; i > 0; i--) name = name "_" host[i]
    name = tolower(name substr($1, slash))
    gsub(/[^a-z0-9]/, "_", name)
    print name, $1
  }' | LC_ALL=C sort
}

generate-bazel() {
  # MODULE.bazel names what the go.mod files require directly.
  local names
  names="$(go list -m -f '{{if not (or .Main .Indirect)}}{{.Path}}{{end}}' all |
    grep . | repository-names | cut -d' ' -f1)"
  awk -v names="$names" '
    /^use_repo\($/ {
      print "use_repo(\n    go_deps,"
      n = split(names, name, "\n")
      for (i = 1; i <= n; i++) print "    \"" name[i] "\","
      skip = 1
    }
    skip && /^\)$/ { skip = 0 }
    !skip
  ' MODULE.bazel >MODULE.bazel.new
  if cmp -s MODULE.bazel.new MODULE.bazel; then rm MODULE.bazel.new; else mv MODULE.bazel.new MODULE.bazel; fi

  # Bazel reads a go.mod only from a folder that has a BUILD file.
  local dir
  for dir in $(go list -m -f '{{.Dir}}'); do
    [ -e "$dir/BUILD.bazel" ] || : >"$dir/BUILD.bazel"
  done

  # Gazelle gets every module of the build list, so that it need not ask
  # the network which module a package belongs to.
  local repos
  repos="$(mktemp)"
  go list -m -f '{{if not .Main}}{{.Path}}{{end}}' all | grep . | repository-names |
    awk '{ printf "go_repository(name = \"%s\", importpath = \"%s\")\n", $1, $2 }' >"$repos"
  "$tool" gazelle -repo_root=. -repo_config="$repos" -external=static
  rm -f "$repos"
}

things=("$@")
[ $# -gt 0 ] || things=(protobuf deepcopy crds metadata bazel)
for thing in "${things[@]}"; do
  declare -F "generate-$thing" >/dev/null || { echo "$0: nothing generates '$thing'" >&2; exit 2; }
  "generate-$thing"
done
