#!/usr/bin/env bash
# Runs Bazel on this repository, whichever way this machine allows:
#   hack/bazel.sh test //...
#
# The machine's own bazelisk or bazel, where the Bazel registry can be reached;
# otherwise Debian's packaged Bazel in a root file system of its own, with the
# modules that hack/bazel-offline.sh collects. ESO_BAZEL names a Bazel to use
# no matter what.
set -euo pipefail
repo="$(cd "$(dirname "$0")/.." && pwd)"
cd "$repo"
export ESO_ROOT="$repo" # for tests that start servers, see bazel/go.bzl

if [ -n "${ESO_BAZEL:-}" ]; then
  exec "$ESO_BAZEL" "$@"
fi

# Without .bazelrc.local: it would answer from its own modules. A registry that
# cannot be reached fails within seconds.
online() {
  rm -f .bazelrc.local
  timeout 120 "$1" mod graph --depth=1 >/dev/null 2>&1
}
for bazel in bazelisk bazel; do
  if command -v "$bazel" >/dev/null && online "$bazel"; then
    exec "$bazel" "$@"
  fi
done

if [ "$(uname -s)" != Linux ] || [ ! -e /etc/debian_version ] || [ "$(id -u)" != 0 ]; then
  echo "$0: the Bazel registry cannot be reached, or there is no bazel and no bazelisk." >&2
  echo "Install bazelisk, or set ESO_BAZEL to a Bazel, or run this as root on Debian." >&2
  exit 1
fi
if ! command -v mmdebstrap >/dev/null && [ ! -x "${BAZEL_ROOTFS:-${XDG_CACHE_HOME:-$HOME/.cache}/external-secrets/bazel/forky}/usr/bin/bazel" ]; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update && apt-get install -y --no-install-recommends mmdebstrap; } >&2
fi
hack/bazel-debian.sh --unpack
hack/bazel-offline.sh
exec hack/bazel-debian.sh "$@"
