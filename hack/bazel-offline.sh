#!/usr/bin/env bash
# Lets Bazel build this repository on a machine that reaches neither the Bazel
# registry nor GitHub, only a Go module proxy and Debian's packages.
#
# MODULE.bazel stays as it is. This makes a folder with every Bazel module that
# the build asks for, and writes .bazelrc.local, which names them to Bazel:
#   rules_go, gazelle      Go modules, at the versions in MODULE.bazel
#   rules_cc, skylib, ...  what Debian packages beside Bazel
#   protobuf, zlib, ...    empty: named by the others, used by nothing here
#   the Go SDK             the one that the go command selects for go.work
# The folder is in the user's cache, named after what it is made from, and made
# once for all checkouts. hack/bazel.sh runs this before it runs Bazel.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/external-secrets/bazel"
rootfs="${BAZEL_ROOTFS:-$cache/forky}" # from hack/bazel-debian.sh
debian="/usr/share/bazel"              # inside of it
[ -d "$rootfs$debian/rules" ] || {
  echo "$0: no Bazel modules in $rootfs$debian: run hack/bazel-debian.sh --unpack first" >&2
  exit 1
}

# The version of a Bazel module in MODULE.bazel, and of a Go module in a go.mod.
bazel-version() { sed -n "s/^bazel_dep(name = \"$1\", version = \"\([^\"]*\)\".*/\1/p" MODULE.bazel; }
# The folder of a Go module in the module cache, downloaded when it is missing.
go-module() { GOWORK=off GOFLAGS=-mod=mod go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p'; }
# Copies a Go module; in the module cache files are read-only and not executable.
copy-module() {
  cp -r "$(go-module "$1")" "$2"
  chmod -R u+w "$2"
  find "$2" -name '*.sh' -exec chmod +x {} +
}

add-rules-go() {
  copy-module "github.com/bazelbuild/rules_go@v$(bazel-version rules_go)" "$1/rules_go"
}

add-gazelle() {
  copy-module "github.com/bazelbuild/bazel-gazelle@v$(bazel-version gazelle)" "$1/gazelle"
  # The Go module leaves out the module nested in it, v2, and the list of
  # source files that Gazelle checks itself against is then incomplete.
  local v2
  v2="$(sed -n 's|^\tgithub.com/bazel-contrib/bazel-gazelle/v2 \(v[^ ]*\).*|\1|p' "$1/gazelle/go.mod")"
  if [ -n "$v2" ] && [ ! -d "$1/gazelle/v2" ]; then
    copy-module "github.com/bazel-contrib/bazel-gazelle/v2@$v2" "$1/gazelle/v2"
    [ -e "$1/gazelle/v2/go.sum" ] || cp "$1/gazelle/go.sum" "$1/gazelle/v2/"
    (cd "$1/gazelle" && go run internal/list_repository_tools_srcs.go -dir="$PWD" -check=internal/go_repository_tools_srcs.bzl)
  fi
}

# Debian's platforms lacks a processor that rules_go names; nothing is built
# for it.
add-platforms() {
  cp -rL "$rootfs$debian/tools/platforms" "$1/platforms"
  grep -q '"ppc64"' "$1/platforms/cpu/BUILD" || cat >>"$1/platforms/cpu/BUILD" <<'BUILD'

constraint_value(
    name = "ppc64",
    constraint_setting = ":cpu",
)
BUILD
}

add-empty() {
  local name
  for name in apple_support buildozer package_metadata protobuf zlib; do
    mkdir -p "$1/$name"
    echo "module(name = \"$name\")" >"$1/$name/MODULE.bazel"
    : >"$1/$name/BUILD.bazel"
  done

  # What the BUILD files of Go dependencies load from package_metadata.
  mkdir -p "$1/package_metadata/providers" "$1/package_metadata/rules"
  : >"$1/package_metadata/providers/BUILD.bazel"
  : >"$1/package_metadata/rules/BUILD.bazel"
  cat >"$1/package_metadata/providers/package_metadata_info.bzl" <<'BZL'
PackageMetadataInfo = provider(fields = ["metadata", "files"])
BZL
  cat >"$1/package_metadata/rules/package_metadata.bzl" <<'BZL'
load("//providers:package_metadata_info.bzl", "PackageMetadataInfo")

def _package_metadata_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name + ".package-metadata.json")
    ctx.actions.write(out, json.encode({"attributes": {}, "label": str(ctx.label), "purl": ctx.attr.purl}))
    files = depset([out])
    return [DefaultInfo(files = files), PackageMetadataInfo(metadata = out, files = files)]

_package_metadata = rule(
    implementation = _package_metadata_impl,
    attrs = {"purl": attr.string(mandatory = True), "attributes": attr.label_list()},
)

def package_metadata(name, purl, attributes = [], visibility = None, tags = [], **_):
    _package_metadata(
        name = name,
        purl = purl,
        attributes = attributes,
        applicable_licenses = [],
        visibility = visibility,
        tags = tags,
    )
BZL
  # What Bazel itself asks buildozer for, to edit MODULE.bazel; here "make
  # generate" does that.
  cat >"$1/buildozer/buildozer_binary.bzl" <<'BZL'
def _repository_impl(ctx):
    ctx.file("BUILD.bazel", "exports_files([\"buildozer.exe\"])")
    ctx.file("buildozer.exe", "#!/bin/sh\necho 'run make generate' >&2\nexit 1\n", executable = True)

_repository = repository_rule(implementation = _repository_impl)

def _buildozer_binary_impl(_):
    _repository(name = "buildozer_binary")

buildozer_binary = module_extension(implementation = _buildozer_binary_impl)
BZL
}

# The Go SDK as rules_go would have unpacked it.
add-go-sdk() {
  local goroot version major minor patch os arch cpu f
  goroot="$(go env GOROOT)" os="$(go env GOHOSTOS)" arch="$(go env GOHOSTARCH)"
  version="$(go env GOVERSION)" version="${version#go}"
  case "$arch" in amd64) cpu=x86_64 ;; arm64) cpu=aarch64 ;; *) cpu="$arch" ;; esac
  mkdir -p "$1/go_sdk"
  for f in "$goroot"/*; do ln -s "$f" "$1/go_sdk/"; done
  : >"$1/go_sdk/ROOT"
  : >"$1/go_sdk/REPO.bazel"
  sed -e "s/{goos}/$os/g" -e "s/{goarch}/$arch/g" -e 's/{exe}//g' \
    -e "s/{version}/$version/g" -e 's/{experiments}/[]/g' \
    -e "s|{exec_compatible_with}|[\"@platforms//os:$os\", \"@platforms//cpu:$cpu\"]|g" \
    "$1/rules_go/go/private/BUILD.sdk.bazel" >"$1/go_sdk/BUILD.bazel"
  IFS=. read -r major minor patch <<<"$version"
  printf 'MAJOR_VERSION = "%s"\nMINOR_VERSION = "%s"\nPATCH_VERSION = "%s"\nPRERELEASE_SUFFIX = ""\n' \
    "$major" "$minor" "$patch" >"$1/go_sdk/version.bzl"
}

key="$({ cat "$0"; grep "^bazel_dep" MODULE.bazel; go env GOVERSION GOROOT; echo "$rootfs"; } | sha256sum | cut -c1-16)"
modules="$cache/modules-$key"
if [ ! -d "$modules" ]; then
  mkdir -p "$cache"
  exec 9>"$modules.lock"
  flock 9
  if [ ! -d "$modules" ]; then # else another process has just made it
    rm -rf "$modules.partial"
    mkdir -p "$modules.partial"
    for what in rules-go gazelle platforms empty go-sdk; do
      "add-$what" "$modules.partial"
    done
    # An empty registry: what is not overridden fails at once, by its name.
    mkdir -p "$modules.partial/registry/modules"
    echo '{}' >"$modules.partial/registry/bazel_registry.json"
    mv "$modules.partial" "$modules"
  fi
  exec 9>&-
fi

{
  echo "# Written by hack/bazel-offline.sh; not committed."
  echo "common --disk_cache=$cache/disk"
  echo "common --registry=file://$modules/registry"
  echo "common --repo_env=GOPROXY=$(go env GOPROXY)"
  echo "common --repo_env=GO_REPOSITORY_USE_HOST_MODCACHE=1"
  for name in rules_go gazelle platforms apple_support buildozer package_metadata protobuf zlib; do
    echo "common --override_module=$name=$modules/$name"
  done
  for name in cc java license proto python shell; do
    echo "common --override_module=rules_$name=$debian/rules/$name"
  done
  for name in skylib features; do
    echo "common --override_module=bazel_$name=$debian/tools/$name"
  done
  echo "common --override_repository=rules_go~~go_sdk~go_sdk=$modules/go_sdk"
  echo "build --nosandbox_debug" # which Debian's own bazelrc turns on
} >.bazelrc.local
