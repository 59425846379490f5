#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds and tests in a chroot of the Debian release that this machine is not:
# ./run test other-debian. Needs root, some 8 GB in $TMPDIR and most of an hour the
# first time; the chroot is kept in build-other-debian/ for the next one.

set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
[ "$(id -u)" = 0 ] || { echo "run: other-debian needs root" >&2; exit 2; }

here=$(. /etc/os-release; echo "$VERSION_ID")
case "$here" in
  12) release=trixie ;;
  13) release=bookworm ;;
  *) echo "run: other-debian runs on Debian 12 and 13" >&2; exit 2 ;;
esac
command -v debootstrap > /dev/null ||
  apt-get install -y -q --no-install-recommends debootstrap

root=$PWD/build-other-debian/$release
mkdir -p "$root"
if [ ! -e "$root/.ready" ]; then
  echo "== making a chroot of $release"
  # debootstrap before Debian 13 does not know later releases by name.
  scripts=/usr/share/debootstrap/scripts
  [ -e "$scripts/$release" ] || ln -s sid "$scripts/$release"
  debootstrap --variant=minbase --include=ca-certificates "$release" "$root"
  touch "$root/.ready"
fi

cleanup() {
  for point in dev/shm dev/pts dev proc sys; do
    mountpoint -q "$root/$point" && umount -l "$root/$point"
  done
  mountpoint -q "$root" && umount -l "$root"
  return 0
}
trap cleanup EXIT
# A mount point of its own, as / is elsewhere: tests make mount namespaces.
mount --bind "$root" "$root"
mount --bind /proc "$root/proc"
mount --bind /sys "$root/sys"
mount --bind /dev "$root/dev"
mount --bind /dev/shm "$root/dev/shm"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
# The registries that this machine is set up for.
[ -e /etc/pip.conf ] && cp -L /etc/pip.conf "$root/etc/pip.conf"
# Whom it trusts, the certificate of a proxy included.
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"

echo "== copying the sources"
mkdir -p "$root/src/concord"
# Only what differs, so that the build there does the least; with the time of the
# copy: a file that changed before the last build there, and came after it, counts.
git ls-files -z | while IFS= read -r -d '' file; do
  cmp -s "$file" "$root/src/concord/$file" && continue
  mkdir -p "$root/src/concord/$(dirname "$file")"
  cp --no-preserve=timestamps "$file" "$root/src/concord/$file"
done
(cd "$root/src/concord" && [ -d .git ] && git ls-files -z || true) |
  while IFS= read -r -d '' file; do
    [ -e "$file" ] || rm -f "$root/src/concord/$file"
  done
if [ -d ../shared ]; then
  mkdir -p "$root/src/shared"
  cp -r --no-preserve=mode ../shared/. "$root/src/shared/"
fi
(cd "$root/src/concord" && { [ -d .git ] || git init -q .; git add -A; } > /dev/null)

echo "== building and testing on $release"
chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  LANG=C.UTF-8 $(env | grep -E '^(PIP_|https?_proxy|no_proxy)' || true) \
  bash -c 'apt-get update -q && apt-get install -y -q --no-install-recommends git sudo &&
           cd /src/concord && ./run test'
