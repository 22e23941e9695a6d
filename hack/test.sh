#!/usr/bin/env bash
# Runs the tests of every module of go.work, or of the packages that are named:
#   hack/test.sh [PACKAGE...]
# The last line is their count: N passed, N failed, N skipped.
#
# With the race detector where there is a C compiler, which it needs. Tests of
# e2e start real servers, so one package at a time, and without the detector;
# the first time, they build those servers.
set -euo pipefail
cd "$(dirname "$0")/.."

# What gotestsum reads: go test's events, of both runs.
if [ "${1:-}" = --events ]; then
  shift
  flags=(-json -timeout 40m)
  [ -z "${CI:-}" ] || flags+=(-count=1)
  race=()
  if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then
    race=(-race)
  fi

  packages=() servers=() strangers=()
  for package in "$@"; do
    case "$package" in
      ./e2e/*|./testkit/*) servers+=("$package") ;;
      ./providers/community/*) strangers+=("$package") ;;
      *) packages+=("$package") ;;
    esac
  done
  result=0
  if [ ${#packages[@]} -gt 0 ]; then
    go test "${flags[@]}" "${race[@]}" "${packages[@]}" || result=$?
  fi
  if [ ${#servers[@]} -gt 0 ]; then
    go test "${flags[@]}" -p 1 "${servers[@]}" || result=$?
  fi
  for package in "${strangers[@]}"; do # outside of go.work, each a module
    module="$(cut -d/ -f1-4 <<<"$package")"
    (cd "$module" && GOWORK=off go test "${flags[@]}" "${race[@]}" ".${package#"$module"}") || result=$?
  done
  exit "$result"
fi

if [ $# = 0 ]; then
  mapfile -t packages < <(hack/packages.sh; for module in ./providers/community/*/go.mod; do [ ! -e "$module" ] || echo "${module%go.mod}..."; done)
  set -- "${packages[@]}"
fi
exec hack/tool.sh gotestsum --format=pkgname --format-hide-empty-pkg --hide-summary=skipped \
  --post-run-command='sh -c "echo $((TESTS_TOTAL - TESTS_FAILED - TESTS_SKIPPED)) passed, $((TESTS_FAILED + TESTS_ERRORS)) failed, $TESTS_SKIPPED skipped"' \
  --raw-command -- "$0" --events "$@"
