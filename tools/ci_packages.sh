#!/usr/bin/env bash
# Install commands that some tests need, where they are missing: `ci_packages.sh COMMAND=PACKAGE…`.
# Says nothing on standard output. Where it cannot, those tests say themselves that they did not run.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive
missing=()
for wanted in "$@"; do
  command -v "${wanted%%=*}" >/dev/null || missing+=("${wanted#*=}")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "not installed here: ${missing[*]}" >&2
  exit 0
fi
apt-get update -qq >&2 || true
apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2 || echo "not installed: ${missing[*]}" >&2
