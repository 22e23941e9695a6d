#!/usr/bin/env bash
# Runs the Bazel that Debian packages, for a machine that has none and cannot
# download one: hack/bazel-debian.sh test //...
#
# Only Debian forky and later carry a recent enough Bazel, so its packages are
# unpacked once into a root file system in the user's cache (0.7 GB to
# download, 1.5 GB on disk; --unpack does only that). Bazel then runs on that
# root in a mount namespace of its own, with the folders of this machine that
# the build reads mounted at their usual places. Nothing outside of that
# namespace changes.
#
# Needs root (for mount), and mmdebstrap the first time.
#   BAZEL_ROOTFS   where the root file system is kept
#   BAZEL_BIND     further folders to mount, separated by spaces
#   DEBIAN_MIRROR  the mirror, when it is not Debian's default
set -euo pipefail

repo="$(cd "$(dirname "$0")/.." && pwd -P)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/external-secrets/bazel"
rootfs="${BAZEL_ROOTFS:-$cache/forky}"

packages=(
  bazel-bootstrap bazel-features bazel-platforms bazel-skylib
  bazel-rules-cc bazel-rules-java bazel-rules-license bazel-rules-proto
  bazel-rules-python bazel-rules-shell
  ca-certificates git patch
)

unpack() {
  [ -x "$rootfs/usr/bin/bazel" ] && return # another process was faster
  command -v mmdebstrap >/dev/null || {
    echo "$0: mmdebstrap is missing: apt-get install mmdebstrap" >&2
    return 1
  }
  echo "unpacking Debian's Bazel into $rootfs (once, some minutes)" >&2
  rm -rf "$rootfs.partial"
  # A testing release's index may be past its validity when the mirror is a
  # snapshot; its signature is checked all the same.
  mmdebstrap --variant=minbase --mode=root \
    --aptopt='Acquire::Check-Valid-Until "false"' \
    --aptopt='Acquire::Languages "none"' \
    --aptopt='APT::Install-Recommends "false"' \
    --include="$(IFS=,; echo "${packages[*]}")" \
    forky "$rootfs.partial" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >&2
  mv "$rootfs.partial" "$rootfs"
}

# First pass, on the machine's own file system: unpack, then start again in a
# new mount namespace.
if [ -z "${_BAZEL_DEBIAN_BINDS:-}" ]; then
  [ "$(id -u)" = 0 ] || { echo "$0: needs root, to mount; install Bazel to do without" >&2; exit 1; }
  if [ ! -x "$rootfs/usr/bin/bazel" ]; then
    mkdir -p "$(dirname "$rootfs")"
    exec 9>"$rootfs.lock"
    flock 9
    unpack
    exec 9>&-
  fi
  [ "${1:-}" != --unpack ] || exit 0
  cp -L /etc/resolv.conf /etc/hosts "$rootfs/etc/"
  # The Go SDK, the module cache and the repository may be anywhere.
  binds="/tmp /etc/ssl $HOME ${XDG_CACHE_HOME:-$HOME/.cache} $repo $(go env GOROOT) $(go env GOMODCACHE) ${BAZEL_BIND:-}"
  if git="$(git -C "$repo" rev-parse --path-format=absolute --git-common-dir 2>/dev/null)"; then
    binds="$binds $git"
  fi
  _BAZEL_DEBIAN_BINDS="$binds" exec unshare --mount --propagation private -- "$0" "$@"
fi

# Second pass, inside the namespace.
mount --bind "$rootfs" "$rootfs"
for d in /proc /sys /dev /run; do
  mount --rbind "$d" "$rootfs$d"
done
for d in $_BAZEL_DEBIAN_BINDS; do
  [ -d "$d" ] || continue
  mkdir -p "$rootfs$d"
  mount --bind "$d" "$rootfs$d"
done
unset _BAZEL_DEBIAN_BINDS

# pivot_root, not chroot: Bazel's sandbox makes user namespaces, which the
# kernel refuses to a chrooted process.
cwd="$(pwd -P)"
mkdir -p "$rootfs/.old"
cd "$rootfs"
pivot_root . .old
exec /usr/bin/env sh -c 'umount -l /.old; cd "$1"; shift; exec /usr/bin/bazel "$@"' sh "$cwd" "$@"
