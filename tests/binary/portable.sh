# The release binary as a file: what it demands of its host, and that it starts where almost nothing is.

test_needs_no_glibc_above_2_35() {
    local highest
    highest=$(objdump -T "$GDNCTL" | grep -oE 'GLIBC_[0-9]+\.[0-9.]+' | sort -uV | tail -1)
    [ -n "$highest" ] || fail "no versioned symbol found"
    [ "$(printf '%s\nGLIBC_2.35\n' "$highest" | sort -V | tail -1)" = GLIBC_2.35 ] ||
        fail "needs $highest: $(objdump -T "$GDNCTL" | grep -F "$highest")"
}

test_brings_its_own_random_numbers() {
    objdump -T "$GDNCTL" | grep 'UND.*arc4random' >imported
    [ ! -s imported ] || fail "takes arc4random from the host: $(cat imported)"
    nm "$GDNCTL" | grep -q ' T arc4random$' || fail "arc4random is not in the binary"
}

test_needs_only_libc_libm_and_the_loader() {
    local needed
    needed=$(readelf -d "$GDNCTL" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
    case $needed in
        *libc.so.6*) ;;
        *) fail "readelf found no libc: $needed" ;;
    esac
    for library in $needed; do
        case $library in
            libc.so.6 | libm.so.6 | ld-linux-x86-64.so.2) ;;
            *) fail "needs $library" ;;
        esac
    done
}

a_log() { python3 "$REPO/tests/bench/make_log.py" 3000 >"$1"; }

# opened COMMAND...: the libraries that a run maps, one a line.
opened() {
    LD_DEBUG=files LD_DEBUG_OUTPUT=$WORK/ld "$@" >/dev/null 2>&1 </dev/null
    cat "$WORK"/ld.* | grep -oE 'file=[^ ]+' | sort -u
    rm -f "$WORK"/ld.*
}
opens_no_late_library() {
    opened "$GDNCTL" "$@" >files
    grep -q 'file=libc.so.6' files || fail "the loader's report is not what this test takes it for: $(cat files)"
    ! grep -E 'curl|git2|crypto|isal|ssl' files >late || fail "gdnctl $* opens $(cat late)"
}
test_help_opens_no_late_library() { opens_no_late_library --help; }
test_version_opens_no_late_library() { opens_no_late_library --version; }
test_lint_log_opens_no_late_library() {
    a_log log.md
    expect 0 "$GDNCTL" lint-log --log-file log.md
    opens_no_late_library lint-log --log-file log.md
}
test_late_libraries_would_be_seen() {
    git init -q . && a_log log.md
    git add log.md && git commit -qm one
    opened "$GDNCTL" lint-log --since HEAD --log-file log.md >files
    grep -q git2 files || fail "lint-log --since did not open libgit2: $(cat files)"
}

# A root directory with the C library and the binary, nothing else.
bare_root() {
    mkdir -p root/lib64 root/lib/x86_64-linux-gnu root/logs root/tmp
    cp "$GDNCTL" root/gdnctl
    cp -L /lib64/ld-linux-x86-64.so.2 root/lib64/
    cp -L /lib/x86_64-linux-gnu/libc.so.6 /lib/x86_64-linux-gnu/libm.so.6 root/lib/x86_64-linux-gnu/
    if chroot root /gdnctl --version >/dev/null 2>&1; then in_root=(chroot root)
    elif unshare -r chroot root /gdnctl --version >/dev/null 2>&1; then in_root=(unshare -r chroot root)
    elif unshare -r true 2>/dev/null || [ "$(id -u)" = 0 ]; then fail "does not start: $(chroot root /gdnctl --version 2>&1)"
    else skip "needs root or user namespaces for chroot"; fi
}
test_starts_on_a_bare_host() {
    bare_root
    expect 0 "${in_root[@]}" /gdnctl --help
    out_has 'lint-log'
    expect 0 "${in_root[@]}" /gdnctl --version
    out_has gdnctl
    a_log root/logs/log.md
    expect 0 "${in_root[@]}" /gdnctl lint-log --log-file /logs/log.md
    printf '### Iteration 1 - x\n\n- Commit: (pending)\n' >root/logs/log.md
    expect 1 "${in_root[@]}" /gdnctl lint-log --log-file /logs/log.md
}
test_says_what_is_missing_on_a_bare_host() {
    bare_root
    git init -q root/logs && a_log root/logs/log.md
    expect 2 "${in_root[@]}" /gdnctl -C /logs lint-log --since HEAD --log-file log.md
    err_has libgit2
    err_has 'hint:'
}
