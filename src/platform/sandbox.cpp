#include "platform/sandbox.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/text.h"
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

namespace {

// One that its parent has and a process has not keeps the process from the parent's memory. Those that programs of root
// need to use files, memory and users stay.
void drop_capabilities() {
    constexpr std::array k_dropped = {CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_RAWIO,
                                      CAP_SYS_TIME,   CAP_SYS_BOOT,  CAP_MKNOD,      CAP_SETPCAP,
                                      CAP_SETFCAP,    CAP_BPF,       CAP_PERFMON,    CAP_CHECKPOINT_RESTORE};
    for (const int capability : k_dropped) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> held{};
    if (syscall(SYS_capget, &header, held.data()) != 0) return;
    for (const int capability : k_dropped) {
        auto& word = held.at(static_cast<std::size_t>(CAP_TO_INDEX(capability)));
        for (std::uint32_t* bits : {&word.effective, &word.permitted, &word.inheritable}) {
            *bits &= ~static_cast<std::uint32_t>(CAP_TO_MASK(capability));
        }
    }
    syscall(SYS_capset, &header, held.data());
}

}  // namespace

void give_up_privileges() {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    drop_capabilities();
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    write_text("/proc/self/oom_score_adj", "1000");
}

bool can_write_to_parent() {
    // Nothing is mapped at 0, so this fails in any case; whether we may try is asked first.
    char byte = 0;
    const iovec here{&byte, 1}, there{nullptr, 1};
    if (syscall(SYS_process_vm_readv, getppid(), &here, 1UL, &there, 1UL, 0UL) < 0 && errno == EFAULT) return true;
    return UniqueFd(open(fmt::format("/proc/{}/mem", getppid()).c_str(), O_RDWR | O_CLOEXEC)).valid();
}

void close_own_memory() { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); }

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

Result<SharedMemory> SharedMemory::create() {
    SharedMemory memory;
    memory.m_fd.reset(memfd_create("gdnctl-tensors", MFD_CLOEXEC));
    if (!memory.m_fd.valid()) {
        return fail(ErrorKind::local_io, fmt::format("cannot create shared memory: {}", std::strerror(errno)));
    }
    return memory;
}

Status SharedMemory::resize(std::size_t size) {
    if (m_data != nullptr) munmap(m_data, m_size);
    m_data = nullptr;
    m_size = 0;
    void* address = MAP_FAILED;
    if (ftruncate(m_fd.get(), static_cast<off_t>(size)) == 0) {
        address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, m_fd.get(), 0);
    }
    if (address == MAP_FAILED) {
        return fail(ErrorKind::local_io,
                    fmt::format("cannot share {} bytes of memory: {}", size, std::strerror(errno)));
    }
    m_data = static_cast<std::byte*>(address);
    m_size = size;
    return {};
}

std::filesystem::path SharedMemory::path() const { return fmt::format("/proc/self/fd/{}", m_fd.get()); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : m_fd(std::move(other.m_fd)),
      m_data(std::exchange(other.m_data, nullptr)),
      m_size(std::exchange(other.m_size, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
    std::swap(m_fd, other.m_fd);
    std::swap(m_data, other.m_data);
    std::swap(m_size, other.m_size);
    return *this;
}

SharedMemory::~SharedMemory() {
    if (m_data != nullptr) munmap(m_data, m_size);
}

// --- guarded pieces

Result<GuardedMapping> GuardedMapping::map(int file, std::span<const GuardedPiece> pieces) {
    const auto failed = [](std::size_t bytes) {
        return fail(ErrorKind::local_io, fmt::format("cannot map {} bytes of memory: {}", bytes, std::strerror(errno)));
    };
    GuardedMapping mapping;
    std::size_t size = 0;
    for (const GuardedPiece& p : pieces) size += k_guard + p.bytes + k_guard;
    mapping.m_address = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping.m_address == MAP_FAILED) {
        mapping.m_address = nullptr;
        return failed(size);
    }
    mapping.m_size = size;
    std::byte* at = static_cast<std::byte*>(mapping.m_address);
    for (const GuardedPiece& p : pieces) {
        at += k_guard;
        mapping.m_pieces.push_back(at);
        const int access = p.writable ? PROT_READ | PROT_WRITE : PROT_READ;
        const bool own = p.offset < 0;
        const int flags = MAP_FIXED | MAP_POPULATE | (own ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
        if (p.bytes > 0 && mmap(at, p.bytes, access, flags, own ? -1 : file, own ? 0 : p.offset) == MAP_FAILED) {
            return failed(p.bytes);
        }
        at += p.bytes + k_guard;
    }
    return mapping;
}

GuardedMapping::GuardedMapping(GuardedMapping&& other) noexcept
    : m_address(std::exchange(other.m_address, nullptr)),
      m_size(std::exchange(other.m_size, 0)),
      m_pieces(std::move(other.m_pieces)) {}

GuardedMapping& GuardedMapping::operator=(GuardedMapping&& other) noexcept {
    std::swap(m_address, other.m_address);
    std::swap(m_size, other.m_size);
    std::swap(m_pieces, other.m_pieces);
    return *this;
}

GuardedMapping::~GuardedMapping() {
    if (m_address != nullptr) munmap(m_address, m_size);
}

}  // namespace gdnctl
