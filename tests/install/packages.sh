#!/usr/bin/env bash
# The packages in a bare Debian: makes them, installs the .deb into a folder that debootstrap fills, trains the quickstart's
# set there, removes the package, and runs the .tar.gz from a folder with a space in its name. By hand, as root, with
# debootstrap and a network; some minutes. The .deb must be of the same distribution as SUITE.
#
#   packages.sh [BUILD] [CHROOT]       default: build/release, and a temporary folder, which is removed
#
# MIRROR and SUITE name another mirror and release than http://deb.debian.org/debian and bookworm.
set -euo pipefail
case ${1-} in
  --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
  -*) printf 'packages.sh: unknown argument %s, see --help\n' "$1" >&2; exit 2 ;;
esac
build=$(realpath -- "${1-build/release}")
bare=${2-}
step() { printf '\n== %s\n' "$*"; }
fail() { printf 'packages.sh: %s\n' "$*" >&2; exit 1; }
inside() { chroot "$bare" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

temporary=
[ -n "$bare" ] || { bare=$(mktemp -d); temporary=1; }
clean() {
  umount "$bare/proc" 2>/dev/null || true
  [ -z "$temporary" ] || rm -rf --one-file-system -- "$bare"
}
trap clean EXIT

step "packages"
rm -rf -- "$build/packages"
(cd -- "$build" && cpack --config CPackConfig.cmake >packages.log 2>&1) || { tail -n 20 "$build/packages.log" >&2; fail "cpack failed"; }
(cd -- "$build/packages" && for sum in *.sha256; do sha256sum -c -- "$sum"; done)
deb=$(echo "$build"/packages/*.deb) archive=$(echo "$build"/packages/*.tar.gz)
dpkg-deb --field "$deb" Package Version Depends Installed-Size
du -h -- "$deb" "$archive"

step "a bare system"
[ -e "$bare/usr/bin/apt-get" ] || debootstrap --variant=minbase "${SUITE-bookworm}" "$bare" "${MIRROR-http://deb.debian.org/debian}" >/dev/null
mountpoint -q "$bare/proc" || mount --bind /proc "$bare/proc" || echo "/proc cannot be mounted: going on without it"
inside dpkg-query -W warpstep 2>/dev/null && fail "warpstep is installed there already"
inside sh -c 'dpkg-query -W | wc -l' | sed 's/$/ packages before/'

step "install"
cp -- "$deb" "$bare/tmp/warpstep.deb"
inside apt-get -qq update
inside apt-get -qq install -y --no-install-recommends /tmp/warpstep.deb >"$bare/tmp/apt.log" 2>&1 || { tail -n 20 "$bare/tmp/apt.log" >&2; fail "apt failed"; }
inside sh -c 'dpkg-query -W | wc -l' | sed 's/$/ packages with it/'
inside warpstep --version
inside warpstep info
for file in share/man/man1/warpstep-train.1 share/bash-completion/completions/warpstep; do
  compgen -G "$bare/usr/$file*" >/dev/null || fail "/usr/$file is not there"
done

step "train the quickstart's set"
inside sh -c 'cd /root && rm -rf data-small runs && warpstep data make data-small && warpstep train cifar10cnn --data data-small --epochs 2 --out runs/quickstart' |
  tee "$bare/tmp/run.log"
accuracy=$(sed -n 's/^ *accuracy *\([0-9]*\)[.].*/\1/p' "$bare/tmp/run.log")
[ "${accuracy:-0}" -ge 80 ] || fail "the accuracy is ${accuracy:-unknown}, not 80 % or more"

step "remove"
inside apt-get -qq remove -y warpstep >/dev/null 2>&1
left=$(inside sh -c 'find / -xdev -name "*warpstep*" -not -path "$HOME/*" -not -path "/tmp/*" -not -path "/var/lib/*" -not -path "/proc/*"')
[ -z "$left" ] || fail "after apt remove there is: $left"
echo "nothing is left"

step "the .tar.gz from any folder"
mkdir -p -- "$bare/srv/a folder"
tar -C "$bare/srv/a folder" --strip-components=1 -xzf "$archive"
inside "/srv/a folder/bin/warpstep" --version
inside "/srv/a folder/bin/warpstep" eval $HOME/runs/quickstart | head -n 3
printf '\nall good\n'
