// Memory shared between two processes, and arrays between guard pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/result.h"
#include "platform/fd.h"

namespace gdnctl {

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
