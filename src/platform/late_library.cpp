#include "gdnctl/platform/late_library.h"

#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace gdnctl {

namespace {

std::string dl_reason() {
    const char* reason = dlerror();
    return reason != nullptr ? reason : "unknown reason";
}

std::string install_hint(const LateLibrary& library) {
    return fmt::format("apt-get install {}", library.debian_package);
}

}  // namespace

Status open_late_library(const LateLibrary& library, std::span<const LateSymbol> symbols) {
    void* handle = dlopen(library.soname, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("cannot open {} ({}, Debian package {}): {}", library.name, library.soname,
                                library.debian_package, dl_reason()),
                    install_hint(library));
    }
    std::vector<void*> found;
    found.reserve(symbols.size());
    for (const LateSymbol& symbol : symbols) {
        void* address = dlsym(handle, symbol.name);
        if (address == nullptr) {
            return fail(ErrorKind::infrastructure,
                        fmt::format("{} ({}) has no function {}: another version than Debian package {} is installed",
                                    library.name, library.soname, symbol.name, library.debian_package),
                        install_hint(library));
        }
        found.push_back(address);
    }
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        // POSIX lets a void* hold a function's address; C++ has no cast for it through an untyped slot.
        std::memcpy(symbols[i].slot, &found[i], sizeof(void*));
    }
    return {};
}

}  // namespace gdnctl
