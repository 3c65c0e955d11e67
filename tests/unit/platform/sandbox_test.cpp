// What foreign code cannot do: reach the network, or touch pages beside its arrays.
#include "platform/sandbox.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace gdnctl;

namespace {

// The exit code of a child that runs `body`; -N when it died of signal N.
template <class Body>
int code_of_child(const Body& body) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, SIG_DFL);  // not the sanitizer's
        _exit(body());
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Whether a datagram socket can be aimed at this very machine, for which no packet is needed.
bool reaches_loopback() {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

TEST_CASE("sandbox: the network is gone in its own namespace") {
    REQUIRE(reaches_loopback());
    const int code = code_of_child([] { return !enter_empty_network() ? 77 : reaches_loopback() ? 1 : 0; });
    if (code == 77) {
        MESSAGE("this system allows no network namespace");
    } else {
        CHECK(code == 0);
    }
}

TEST_CASE("sandbox: the filter refuses all sockets but Unix ones") {
    const int code = code_of_child([] {
        if (!refuse_sockets()) return 77;
        if (socket(AF_INET, SOCK_STREAM, 0) != -1 || errno != EACCES) return 1;
        if (socket(AF_INET6, SOCK_DGRAM, 0) != -1 || errno != EACCES) return 2;
        const int local = socket(AF_UNIX, SOCK_STREAM, 0);
        if (local < 0) return 3;
        const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return file < 0 ? 4 : 0;
    });
    if (code == 77) {
        MESSAGE("this system allows no filter");
    } else {
        CHECK(code == 0);
    }
}

TEST_CASE("sandbox: one of the two is chosen, and the choice has a name") {
    const int code = code_of_child([] {
        const NetworkBarrier barrier = block_network();
        if (barrier == NetworkBarrier::none) return 77;
        return reaches_loopback() ? 1 : 0;
    });
    CHECK((code == 0 || code == 77));
    CHECK(name_of(NetworkBarrier::name_space) == "namespace");
    CHECK(name_of(NetworkBarrier::seccomp) == "seccomp");
    CHECK(name_of(NetworkBarrier::none) == "none");
}

TEST_CASE("sandbox: no core dump, and memory of one's own is counted") {
    CHECK(code_of_child([] {
              give_up_privileges();
              rlimit core{1, 1};
              return getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0 ? 0 : 1;
          }) == 0);
    const std::size_t before = private_memory(getpid());
    CHECK(before > 0);
    std::vector<char> grown(std::size_t{64} << 20U, 'x');
    CHECK(private_memory(getpid()) >= before + (grown.size() / 2));
    CHECK(private_memory(-1) == 0);
}

TEST_CASE("shared memory: both sides see the same bytes, and resizing keeps them") {
    auto memory = SharedMemory::create();
    REQUIRE(memory);
    REQUIRE(memory->resize(page()));
    std::memcpy(memory->data(), "abc", 3);
    CHECK(code_of_child([&] {
              const int fd = open(memory->path().c_str(), O_RDWR | O_CLOEXEC);
              std::array<char, 3> seen{};
              if (pread(fd, seen.data(), 3, 0) != 3 || std::memcmp(seen.data(), "abc", 3) != 0) return 1;
              return pwrite(fd, "xyz", 3, 0) == 3 ? 0 : 2;
          }) == 0);
    CHECK(std::memcmp(memory->data(), "xyz", 3) == 0);
    REQUIRE(memory->resize(4 * page()));
    CHECK(std::memcmp(memory->data(), "xyz", 3) == 0);
    CHECK(memory->data()[4 * page() - 1] == std::byte{0});
}

TEST_CASE("guarded mapping: what lies beside each piece traps, inputs cannot be written") {
    auto memory = SharedMemory::create();
    REQUIRE(memory);
    REQUIRE(memory->resize(3 * page()));
    const int fd = open(memory->path().c_str(), O_RDWR | O_CLOEXEC);
    const std::array<GuardedPiece, 3> pieces = {
        {{0, page(), false}, {static_cast<std::int64_t>(page()), 2 * page(), true}, {-1, page(), true}}};
    const auto mapped = GuardedMapping::map(fd, pieces);
    close(fd);
    REQUIRE(mapped);
    mapped->piece(1)[0] = std::byte{5};
    CHECK(memory->data()[page()] == std::byte{5});
    CHECK(mapped->piece(2)[page() - 1] == std::byte{0});
    const auto touching = [&](std::size_t piece, std::int64_t at, bool write) {
        return code_of_child([&] {
            volatile std::byte* address = mapped->piece(piece) + at;
            if (write) *address = std::byte{1};
            const std::byte seen = *address;
            return seen == std::byte{0xEE} ? 1 : 0;
        });
    };
    CHECK(touching(0, 0, false) == 0);
    CHECK(touching(0, 0, true) == -SIGSEGV);
    CHECK(touching(0, -1, false) == -SIGSEGV);
    CHECK(touching(0, static_cast<std::int64_t>(page()), false) == -SIGSEGV);
    CHECK(touching(1, static_cast<std::int64_t>(2 * page()) - 1, true) == 0);
    CHECK(touching(1, static_cast<std::int64_t>(2 * page()), true) == -SIGSEGV);
    CHECK(touching(2, -1, true) == -SIGSEGV);
    constexpr auto k_far = static_cast<std::int64_t>(GuardedMapping::k_guard);
    CHECK(touching(1, static_cast<std::int64_t>(2 * page()) + k_far - 1, true) == -SIGSEGV);
    for (const std::size_t piece : {0U, 1U, 2U}) CHECK(touching(piece, -k_far, true) == -SIGSEGV);
}
