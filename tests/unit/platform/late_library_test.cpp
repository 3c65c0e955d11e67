#include "platform/late_library.h"

#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <math.h>

using namespace gdnctl;

namespace {

#define TEST_LIBC_API(X) X(getpid) X(getppid)
using Unary = double (*)(double);

}  // namespace

TEST_CASE("late library: a library that is not there names soname, package and the command that mends it") {
    const LateLibrary library{"libnowhere", "libgdnctl-nowhere.so.7", "libnowhere7"};
    Unary f = nullptr;
    const LateSymbol symbols[] = {{"cbrt", &f}};
    const Status status = open_late_library(library, symbols);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().kind == ErrorKind::infrastructure);
    CHECK(status.error().message ==
          "cannot open libgdnctl-nowhere.so.7 (Debian package libnowhere7): No such file or directory");
    CHECK(status.error().hint == "apt-get install libnowhere7");
    CHECK_FALSE(static_cast<bool>(f));
}

TEST_CASE("late library: a missing symbol is named and no slot is filled") {
    const LateLibrary library{"libm", "libm.so.6", "libc6"};
    Unary f = nullptr;
    Unary g = nullptr;
    const LateSymbol symbols[] = {{"cbrt", &f}, {"gdnctl_no_such_function", &g}};
    const Status status = open_late_library(library, symbols);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().kind == ErrorKind::infrastructure);
    CHECK(status.error().message.find("gdnctl_no_such_function") != std::string::npos);
    CHECK(status.error().message.find("libm.so.6") != std::string::npos);
    CHECK(status.error().hint == "apt-get install libc6");
    CHECK_FALSE(static_cast<bool>(f));
    CHECK_FALSE(static_cast<bool>(g));
}

TEST_CASE("late library: slots are filled with working functions") {
    const LateLibrary library{"libm", "libm.so.6", "libc6"};
    Unary f = nullptr;
    const LateSymbol symbols[] = {{"cbrt", &f}};
    REQUIRE(open_late_library(library, symbols).has_value());
    REQUIRE(static_cast<bool>(f));
    CHECK(f(27.0) == doctest::Approx(3.0));
}

GDNCTL_LATE_API(LateLibc, TEST_LIBC_API, "libc", "libc.so.6", "libc6")

TEST_CASE("late library: threads share one table") {
    std::vector<const LateLibc*> tables(8);
    {
        std::vector<std::jthread> threads;
        threads.reserve(tables.size());
        for (auto& table : tables) {
            threads.emplace_back([&table] {
                auto api = late_api<LateLibc>();
                if (api) table = *api;
            });
        }
    }
    for (const auto* table : tables) CHECK(table == tables[0]);
    REQUIRE(tables[0] != nullptr);
    CHECK(tables[0]->getpid() == ::getpid());
    CHECK(tables[0]->getppid() == ::getppid());
}
