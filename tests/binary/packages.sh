# What `./dev dist` makes: a tarball that works wherever it is unpacked, and a .deb, both used in a bare Debian 12, too.
BUILD=$(dirname "$GDNCTL")

# One at a time: an installation writes its manifest and what it generates into the build folder.
pack() {
    flock "$BUILD" cmake -D "OUT=$WORK/dist" -P "$REPO/cmake/dist.cmake" >dist.log 2>&1 || fail "dist.cmake: $(tail -5 dist.log)"
    (cd "$WORK/dist" && sha256sum -c --strict SHA256SUMS) >sums || fail "a sum is wrong: $(cat sums)"
    [ "$(wc -l <sums)" = 2 ] || fail "not two packages: $(cat sums)"
    version=$("$GDNCTL" --version --json | jq -r .version)
    tarball=$(echo "$WORK/dist/gdnctl-$version-linux-"*.tar.xz)
    deb=$(echo "$WORK/dist/gdnctl_${version}_"*.deb)
}

# has_all ROOT: a tree as it is installed, with everything in it.
has_all() {
    expect 0 "$1/bin/gdnctl" --version
    out_has "gdnctl $version"
    [ "$(nm "$1/bin/gdnctl" 2>/dev/null | wc -l)" = 0 ] || fail 'the binary is not stripped'
    ! readelf -S "$1/bin/gdnctl" | grep -q '\.debug_' || fail 'the binary has debug sections'
    bash -n "$1/share/bash-completion/completions/gdnctl" || fail 'the completion of bash does not parse'
    grep -q '^#compdef gdnctl' "$1/share/zsh/site-functions/_gdnctl" || fail 'no completion of zsh'
    grep -q complete "$1/share/fish/vendor_completions.d/gdnctl.fish" || fail 'no completion of fish'
    [ -s "$1/share/man/man1/gdnctl.1" ] && [ -s "$1/share/man/man1/gdnctl-lint-log.1" ] || fail 'manual pages are missing'
    [ -s "$1/include/gdn/gdn.h" ] && [ -e "$1/lib/libgdn.so" ] || fail 'libgdn or its header is missing'
    doc=$1/share/doc/gdnctl
    [ -s "$doc/LICENSE" ] && [ -s "$doc/third-party/fmt.txt" ] || fail 'a licence is missing'
    expect 0 "$1/bin/gdnctl" trace info "$doc/examples/traces/matmul.xplane.pb"
}

test_tarball_works_wherever_it_is_unpacked() {
    pack
    mkdir 'some where' && tar -C 'some where' -xJf "$tarball" || fail 'cannot unpack'
    root=$(echo "$PWD/some where/gdnctl-"*)
    has_all "$root"
    # shellcheck source=tests/structure/docs.sh
    . "$REPO/tests/structure/docs.sh"
    dead_links "$doc" >dead
    [ ! -s dead ] || fail "dead links: $(cat dead)"
    [ "$(cat "$doc"/docs/*.md "$doc"/*.md | grep -c '](')" -gt 100 ] || fail 'no links were checked'
    cd "$doc" || fail cd
    command -v "${CC:-cc}" >/dev/null || return 0
    expect 0 "$root/bin/gdnctl" oracle verify gdn --kernel src:examples/cpu-gdn/kernel.c --case g1
}

test_deb_only_recommends_curl_and_git() {
    command -v dpkg-deb >/dev/null || skip 'no dpkg-deb'
    pack
    dpkg-deb -f "$deb" Package Version Depends Recommends >fields
    [ "$(cat fields)" = "Package: gdnctl
Version: $version
Depends: libc6 (>= 2.35)
Recommends: libcurl4, libgit2-1.5" ] || fail "$(cat fields)"
    dpkg-deb -x "$deb" unpacked
    has_all unpacked/usr
    [ "$(find unpacked -perm /022 ! -type l | wc -l)" = 0 ] || fail 'a file can be written by others'
    dpkg-deb -c "$deb" | awk '$2 != "root/root"' >others
    [ ! -s others ] || fail "not root's: $(cat others)"
}

# A minimal Debian 12 in $root, copied from one that debootstrap makes once for the build folder.
bare_debian() {
    [ "$(id -u)" = 0 ] || skip 'debootstrap and chroot need root'
    command -v debootstrap >/dev/null || skip 'no debootstrap (apt-get install debootstrap)'
    local pristine=$BUILD/debian-12
    exec 9>"$pristine.lock" && flock 9
    if [ ! -d "$pristine" ]; then
        rm -rf --one-file-system "$pristine.new"
        debootstrap --variant=minbase bookworm "$pristine.new" >debootstrap.log 2>&1 ||
            skip "debootstrap found no Debian archive: $(tail -1 debootstrap.log)"
        rm -rf "$pristine.new/var/cache/apt/archives"/*.deb && mv "$pristine.new" "$pristine"
    fi
    exec 9>&-
    root=$WORK/debian
    cp -a "$pristine" "$root"
}
inside() { chroot "$root" env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"; }

# used GDNCTL DOC: what a new user tries first, without the libraries that the package recommends.
used() {
    expect 0 inside "$1" --version
    out_has "gdnctl $version"
    out_has 'libcurl    not found'
    expect 0 inside "$1" oracle verify gdn --kernel builtin:chunk --case g1
    out_has 'verdict: OK'
    expect 0 inside "$1" trace kernels "$2/examples/traces/matmul.xplane.pb"
    out_has matmul_optimized.1
    expect 0 inside "$1" lint-log --log-file "$2/examples/cpu-gdn/log.md"
    expect 4 inside "$1" hf-download-trace --repo-id a/b --path-prefix c
    err_has libcurl
    err_has hint:
}

test_both_work_in_a_bare_debian() {
    bare_debian
    pack
    cp "$deb" "$root/gdnctl.deb"
    expect 0 inside dpkg -i /gdnctl.deb
    used gdnctl /usr/share/doc/gdnctl
    expect 0 inside ldconfig -p
    out_has libgdn.so.1
    expect 0 inside dpkg -r gdnctl
    [ ! -e "$root/usr/bin/gdnctl" ] && [ ! -e "$root/usr/share/doc/gdnctl" ] || fail 'something stays behind'
    tar -C "$root/opt" -xJf "$tarball"
    folder=/opt/$(basename "${tarball%.tar.xz}")
    used "$folder/bin/gdnctl" "$folder/share/doc/gdnctl"
}

# A project with our cmake/version.cmake, in a repository.
says() {  # WORD: what a build that is configured now calls itself
    cmake -G Ninja -S project -B project-build >cmake.log 2>&1 || fail "$(cat cmake.log)"
    grep -qF "RELEASE=$1" cmake.log || fail "it is not: $(grep RELEASE cmake.log)"
}
test_a_release_is_a_clean_commit_with_the_tag_of_its_version() {
    mkdir -p project/src/core
    cat >project/CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(x VERSION 1.2.3 LANGUAGES NONE)
include($REPO/cmake/version.cmake)
message(STATUS "RELEASE=\${release}")
CMAKE
    says 0
    git -C project init -q && git -C project add -A && git -C project commit -qm one
    says 0
    git -C project tag v1.2.2
    says 0
    git -C project tag v1.2.3
    says 1
    echo '# changed' >>project/CMakeLists.txt
    says 0
    git -C project commit -qam two
    says 0
}
