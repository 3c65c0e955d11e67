#include "platform/sandbox.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fd.h"
#include "platform/fs.h"

namespace gdnctl {

namespace {

bool write_text(const char* path, std::string_view text) {
    const UniqueFd fd(open(path, O_WRONLY | O_CLOEXEC));
    return fd.valid() && write_fully(fd.get(), text) == 0;
}

#if defined(__x86_64__)
constexpr std::uint32_t k_architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t k_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t k_architecture = 0;
#endif
constexpr std::uint32_t k_x32_bit = 0x40000000U;  // calls of the x32 interface on x86-64

constexpr std::uint32_t refuse_with(int error_number) {
    return SECCOMP_RET_ERRNO | (static_cast<std::uint32_t>(error_number) & SECCOMP_RET_DATA);
}

}  // namespace

std::string_view name_of(NetworkBarrier barrier) {
    switch (barrier) {
        case NetworkBarrier::name_space: return "namespace";
        case NetworkBarrier::seccomp: return "seccomp";
        case NetworkBarrier::none: return "none";
    }
    return "";
}

bool enter_empty_network() {
    if (unshare(CLONE_NEWNET) == 0) return true;
    const uid_t user = geteuid();
    const gid_t group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    // Without a map we would have no user id, which confuses programs that look up their user; files open either way.
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", fmt::format("{} {} 1\n", user, user));
    write_text("/proc/self/gid_map", fmt::format("{} {} 1\n", group, group));
    return true;
}

bool refuse_sockets() {
    if (k_architecture == 0) return false;
    constexpr auto k_arch = static_cast<std::uint32_t>(offsetof(struct seccomp_data, arch));
    constexpr auto k_number = static_cast<std::uint32_t>(offsetof(struct seccomp_data, nr));
    constexpr auto k_family = static_cast<std::uint32_t>(offsetof(struct seccomp_data, args));  // low half first
    // Jump offsets count from the next instruction. io_uring is blocked because it could open sockets past the filter.
    std::array<sock_filter, 12> program = {{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k_arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k_architecture, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k_number),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, k_x32_bit, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(SYS_io_uring_setup), 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(SYS_socket), 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k_family),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, refuse_with(EACCES)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

NetworkBarrier block_network() {
    if (enter_empty_network()) return NetworkBarrier::name_space;
    return refuse_sockets() ? NetworkBarrier::seccomp : NetworkBarrier::none;
}

void give_up_privileges() {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    write_text("/proc/self/oom_score_adj", "1000");
}

std::size_t private_memory(pid_t pid) {
    const auto text = read_file_if_exists(fmt::format("/proc/{}/statm", pid));
    if (!text || !*text) return 0;
    const auto fields = text::split(**text, ' ');  // size resident shared ..., in pages
    if (fields.size() < 3) return 0;
    const auto resident = text::parse_int(fields[1]);
    const auto shared = text::parse_int(fields[2]);
    if (!resident || !shared || *resident < *shared) return 0;
    return static_cast<std::size_t>(*resident - *shared) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace gdnctl
