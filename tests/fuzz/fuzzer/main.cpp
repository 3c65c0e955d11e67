// The fuzzer named by $FUZZ under libFuzzer, whose main() calls these. `--names` prints the names of all.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fuzz/fuzz.h"

namespace {
const Fuzzer* g_fuzzer = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    if (*argc == 2 && std::strcmp((*argv)[1], "--names") == 0) {
        for (const Fuzzer& fuzzer : all_fuzzers()) std::printf("%s\n", fuzzer.name.data());
        std::exit(0);
    }
    const char* name = std::getenv("FUZZ");
    g_fuzzer = find_fuzzer(name == nullptr ? "" : name);
    if (g_fuzzer == nullptr) {
        std::fprintf(stderr, "FUZZ must be the name of a fuzzer; --names prints them\n");
        std::exit(2);
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { return g_fuzzer->run(data, size); }
