# libgdn as it is installed: its names, its needs, and the example built against it with nothing but pkg-config.
BUILD=$(dirname "$GDNCTL")
NAMES='gdn_backward gdn_call_arrays gdn_call_arrays_bf16 gdn_call_gradients gdn_call_gradients_bf16 gdn_call_init gdn_decode gdn_forward gdn_kernel gdn_linear_ce_forward gdn_linear_ce_gradient_arrays gdn_linear_ce_gradients gdn_linear_ce_init gdn_status_text gdn_version gdn_workspace linear_ce_kernel'

# One at a time: an installation writes its manifest and what it generates into the build folder.
install_it() {
    flock "$BUILD" cmake --install "$BUILD" --prefix "$WORK/prefix" >install.log 2>&1 || fail "cmake --install: $(tail -3 install.log)"
    LIB=$(dirname "$(find "$WORK/prefix" -name libgdn.so)")
    export PKG_CONFIG_PATH=$LIB/pkgconfig
    [ -f "$LIB/libgdn.a" ] && [ -f "$WORK/prefix/include/gdn/gdn.h" ] || fail "the archive or the header is not installed"
}

test_only_documented_names_are_exported() {
    [ "$(nm -D --defined-only "$BUILD/libgdn.so" | awk '$2 != "A" {sub("@.*", "", $3); print $3}' | sort | xargs)" = "$NAMES" ] ||
        fail "libgdn.so exports: $(nm -D --defined-only "$BUILD/libgdn.so")"
    [ "$(nm "$BUILD/libgdn.a" 2>/dev/null | awk 'NF == 3 && $2 ~ /[A-TV-Z]/ {print $3}' | sort | xargs)" = "$NAMES" ] ||
        fail "libgdn.a exports: $(nm "$BUILD/libgdn.a")"
    for name in $NAMES; do
        grep -q "$name" "$REPO/docs/libgdn.md" "$REPO/docs/writing-a-kernel.md" || fail "$name is not documented"
    done
}

test_the_shared_object_needs_only_libc() {
    needed=$(objdump -p "$BUILD/libgdn.so" | awk '$1 == "NEEDED" {print $2}' | grep -vE '^(libc|libm|libpthread|ld-linux.*)\.so' | xargs)
    [ -z "$needed" ] || fail "it needs $needed"
}

test_the_example_builds_with_pkg_config_and_runs() {
    install_it
    cc "$REPO/examples/use-libgdn/main.c" $(pkg-config --cflags --libs gdn) -lm -o shared || fail "it does not build"
    LD_LIBRARY_PATH=$LIB expect 0 ./shared
    out_has "$(grep -o 'done; out\[last\] = .*' "$REPO/docs/libgdn.md")"
    cp "$WORK/out" first
    # By its name, beside the shared object, as the page says.
    cc "$REPO/examples/use-libgdn/main.c" -I"$WORK/prefix/include" "$LIB/libgdn.a" -lstdc++ -lm -pthread -o by_name || fail "the archive by its name"
    expect 0 ./by_name
    cmp -s first "$WORK/out" || fail "the archive by its name gives another result"
    rm "$LIB"/libgdn.so*
    cc "$REPO/examples/use-libgdn/main.c" $(pkg-config --static --cflags --libs gdn) -lm -o static || fail "the archive"
    expect 0 ./static
    cmp -s first "$WORK/out" || fail "the archive gives another result"
}

# Templates that both sides use must not meet.
test_the_archive_links_into_a_cpp_program() {
    install_it
    rm "$LIB"/libgdn.so*
    cat >use.cpp <<'CPP'
#include <gdn/gdn.h>
#include <thread>
#include <vector>
int main() {
    std::vector<float> x(64, 0.5f), g(4, 0.0f), out(64), state(256);
    std::thread([&] { x.resize(128, 0.25f); }).join();
    gdn_call call;
    gdn_call_init(&call, 1, 4, 1, 1, 16, 16);
    gdn_call_arrays(&call, x.data(), x.data(), x.data(), g.data(), g.data(), nullptr, out.data(), state.data());
    return gdn_forward(&call);
}
CPP
    c++ -O0 -std=c++17 use.cpp $(pkg-config --static --cflags --libs gdn) -o use || fail "it does not link"
    expect 0 ./use
}

# A container may allow few threads, or little memory for their stacks.
test_threads_that_cannot_be_started_are_done_without() {
    install_it
    cat >few.c <<'C'
#include <gdn/gdn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
enum { T = 16, H = 64, D = 16 };
int main(void)
{
    static float x[T * H * D], g[T * H], state[H * D * D], out[2][T * H * D];
    for (int i = 0; i < T * H * D; ++i) x[i] = (float)(i % 13) * 0.05f;
    for (int i = 0; i < T * H; ++i) g[i] = i % 2 ? 0.5f : -0.5f;
    gdn_call call;
    for (int run = 0; run < 2; ++run) {
        gdn_call_init(&call, 1, T, H, H, D, D);
        gdn_call_arrays(&call, x, x, x, g, g, NULL, out[run], state);
        if (run == 1) {
            const struct rlimit limit = {200u << 20, 200u << 20}; /* 64 threads want 8 MB of stack each */
            if (setrlimit(RLIMIT_AS, &limit) != 0) return 77;
            call.threads = 64;
        }
        const int status = gdn_forward(&call);
        printf("%s\n", gdn_status_text(status));
        if (status != GDN_OK) return 1;
    }
    return memcmp(out[0], out[1], sizeof out[0]) != 0;
}
C
    cc -O1 few.c $(pkg-config --cflags --libs gdn) -o few || fail "it does not build"
    LD_LIBRARY_PATH=$LIB expect 0 ./few
}

test_a_call_without_memory_says_so() {
    install_it
    cat >large.c <<'C'
#include <gdn/gdn.h>
#include <stdio.h>
#include <sys/resource.h>
static float x[1024 * 8 * 256], gates[1024 * 8], out[1024 * 8 * 256];
int main(void)
{
    const struct rlimit limit = {1u << 30, 1u << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 77;
    gdn_call call;
    gdn_call_init(&call, 1024, 1, 8, 8, 256, 256);
    gdn_call_arrays(&call, x, x, x, gates, gates, NULL, out, NULL); /* forward needs room for 2 GiB of final states */
    const int status = gdn_forward(&call);
    printf("%s\n", gdn_status_text(status));
    return status != GDN_NO_MEMORY;
}
C
    cc -O1 large.c $(pkg-config --cflags --libs gdn) -o large || fail "it does not build"
    LD_LIBRARY_PATH=$LIB expect 0 ./large
}

# Helpers outlive a call; a program may close the library all the same.
test_the_library_can_be_closed_while_helpers_wait() {
    install_it
    cat >close.c <<'C'
#include <dlfcn.h>
#include <gdn/gdn.h>
#include <unistd.h>
enum { T = 64, H = 8, D = 64 };
static float x[T * H * D], g[T * H], out[T * H * D], state[H * D * D];
int main(int argc, char **argv)
{
    for (int round = 0; round < 3; ++round) {
        void *library = dlopen(argv[argc - 1], RTLD_NOW);
        if (library == NULL) return 1;
        void (*init)(gdn_call *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
        void (*arrays)(gdn_call *, const float *, const float *, const float *, const float *, const float *,
                       const float *, float *, float *);
        int (*forward)(const gdn_call *);
        *(void **)&init = dlsym(library, "gdn_call_init");
        *(void **)&arrays = dlsym(library, "gdn_call_arrays");
        *(void **)&forward = dlsym(library, "gdn_forward");
        gdn_call call;
        init(&call, 1, T, H, H, D, D);
        arrays(&call, x, x, x, g, g, NULL, out, state);
        call.threads = 4;
        if (forward(&call) != GDN_OK || dlclose(library) != 0) return 1;
        usleep(20000);
    }
    return 0;
}
C
    cc -O1 close.c $(pkg-config --cflags gdn) -ldl -o close || fail "it does not build"
    expect 0 ./close "$LIB/libgdn.so"
}

test_headers_are_plain_c_and_cpp() {
    install_it
    for header in gdn gdn_kernel; do
        echo "#include <gdn/$header.h>" >use.c
        cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only $(pkg-config --cflags gdn) use.c || fail "$header.h as C99"
        c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ $(pkg-config --cflags gdn) use.c || fail "$header.h as C++"
    done
}

test_the_oracle_judges_the_library_itself() {
    expect 0 "$GDNCTL" oracle verify gdn --kernel "lib:$BUILD/libgdn.so"
    out_has 'verdict: OK'
}
