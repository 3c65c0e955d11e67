#!/usr/bin/env bash
# bare.sh [COMMAND...]: runs README.md's two commands in a bare Debian 12: a minimal debootstrap tree in build/bare with a
# clean clone of HEAD, as root, with nothing else installed. With a COMMAND, runs that instead, in the tree as it is.
# Takes 40 minutes on two processors. Needs root and the Debian archive; elsewhere it says that it was skipped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
root=$PWD/build/bare/root
passed=0 failed=0

skip() { printf '[bare] skipped: %s\n0 passed, 0 failed, 1 skipped\n' "$1"; exit 0; }

# inside LINE: runs it in the clone, with a root's first environment and mounts that end with it.
inside() {
    unshare --mount --pid --fork bash -c 'mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" &&
        mount -t sysfs -o ro sys "$1/sys" && shift && exec "$@"' bash "$root" \
        env -i HOME=/root USER=root LOGNAME=root SHELL=/bin/bash TERM=dumb \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ${http_proxy:+http_proxy="$http_proxy"} \
        chroot "$root" bash -c "cd /root/gdnctl && $1" </dev/null
}

[ "$(id -u)" = 0 ] || skip 'debootstrap and chroot need root'
[ "$(unshare --mount --pid --fork sh -c 'mount -t tmpfs none /mnt && echo yes' 2>/dev/null)" = yes ] ||
    skip 'mounts are not allowed here'
if [ $# = 0 ] || [ ! -d "$root" ]; then
    rm -rf --one-file-system build/bare
    mkdir -p build/bare
    echo "[bare] a minimal Debian 12 in $root"
    debootstrap --variant=minbase bookworm "$root" >build/bare/debootstrap.log 2>&1 || {
        tail -5 build/bare/debootstrap.log
        skip 'debootstrap found no Debian archive (build/bare/debootstrap.log)'
    }
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"  # as an installed system has it
    git clone -q . "$root/root/gdnctl" || exit 1
fi
if [ $# -gt 0 ]; then
    inside "$*"
    exit
fi
for word in run test; do
    echo "[bare] ./dev $word"
    if inside "./dev $word" >"build/bare/$word.log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        tail -60 "build/bare/$word.log"
    fi
    echo "[bare] ./dev $word: $(tail -1 "build/bare/$word.log")"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
