#include "platform/late_library.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

namespace gdnctl {

namespace {

// The loader's message without the name that it repeats: "No such file or directory", or the missing version.
std::string dl_reason(std::string_view soname) {
    const char* said = dlerror();
    if (said == nullptr) return "unknown reason";
    const std::string absent = fmt::format("{}: cannot open shared object file: ", soname);
    std::string reason = said;
    if (reason.starts_with(absent)) reason.erase(0, absent.size());
    return reason;
}

std::string install_hint(const LateLibrary& library) {
    return fmt::format("apt-get install {}", library.debian_package);
}

}  // namespace

Status open_late_library(const LateLibrary& library, std::span<const LateSymbol> symbols) {
    void* handle = dlopen(library.soname, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("cannot open {} (Debian package {}): {}", library.soname, library.debian_package,
                                dl_reason(library.soname)),
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
        // POSIX lets a void* hold a function's address, but C++ has no cast for an untyped slot.
        std::memcpy(symbols[i].slot, &found[i], sizeof(void*));
    }
    return {};
}

}  // namespace gdnctl
