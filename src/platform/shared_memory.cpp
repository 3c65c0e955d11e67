#include "platform/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gdnctl {

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
