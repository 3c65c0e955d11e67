// What surrounds foreign code: restrictions that a process applies to itself, and memory shared with its parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "core/result.h"
#include "platform/fs.h"

namespace gdnctl {

enum class NetworkBarrier {
    name_space,  // an empty network namespace, without even loopback
    seccomp,     // socket() refuses everything but Unix sockets
    none,        // the system allows neither
};

std::string_view name_of(NetworkBarrier barrier);  // "namespace", "seccomp", "none"

// Removes network access from this process and its children: by a namespace (as root, or in a user namespace that maps
// only the current user), else by a system call filter. Call it before starting a second thread.
NetworkBarrier block_network();

// Only one of the two ways, for tests. False: not allowed here.
bool enter_empty_network();
bool refuse_sockets();

// No new privileges through exec, no core dumps, first choice of the OOM killer, and none of root's capabilities by
// which a process reads or changes other processes, the clock or the kernel. Call it after block_network().
void give_up_privileges();

// Whether this process may write to the memory of its parent, and so change the clock that times it.
bool can_write_to_parent();
// Then that is for the parent to prevent: no process without CAP_SYS_PTRACE can read or write its memory from now on.
// As another user than root, /proc/PID/environ, fd and others of this process can then not be read either.
void close_own_memory();

// Bytes of memory private to the process: neither files nor shared. 0: no such process.
std::size_t private_memory(pid_t pid);

// Memory shared between two processes, and arrays between guard pages.

// Anonymous memory that a child maps which inherits `descriptor()` (ProcessSpec::inherited). Error: local_io.
class SharedMemory {
public:
    static Result<SharedMemory> create();

    // Resizes it to `size` bytes, zero where it grows, and maps it again.
    Status resize(std::size_t size);
    std::byte* data() const { return m_data; }
    std::size_t size() const { return m_size; }
    int descriptor() const { return m_fd.get(); }
    std::filesystem::path path() const;  // of the descriptor, here and in the child

    SharedMemory() = default;
    SharedMemory(SharedMemory&& other) noexcept;
    SharedMemory& operator=(SharedMemory&& other) noexcept;
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;
    ~SharedMemory();

private:
    UniqueFd m_fd;
    std::byte* m_data = nullptr;
    std::size_t m_size = 0;
};

// Whole pages, with GuardedMapping::k_guard bytes before and after them that trap every access.
struct GuardedPiece {
    std::int64_t offset = 0;  // in the file; -1: private to this process, zeroed
    std::size_t bytes = 0;    // a multiple of the page size
    bool writable = false;
};

class GuardedMapping {
public:
    // Wide enough to catch an index that is off by many rows. It takes address space, not memory.
    static constexpr std::size_t k_guard = std::size_t{16} << 20U;

    // Maps the pieces of `file`, all pages present. Error: local_io.
    static Result<GuardedMapping> map(int file, std::span<const GuardedPiece> pieces);

    std::byte* piece(std::size_t index) const { return m_pieces[index]; }

    GuardedMapping() = default;
    GuardedMapping(GuardedMapping&& other) noexcept;
    GuardedMapping& operator=(GuardedMapping&& other) noexcept;
    GuardedMapping(const GuardedMapping&) = delete;
    GuardedMapping& operator=(const GuardedMapping&) = delete;
    ~GuardedMapping();

private:
    void* m_address = nullptr;
    std::size_t m_size = 0;
    std::vector<std::byte*> m_pieces;
};

}  // namespace gdnctl
