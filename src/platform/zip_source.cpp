#include "platform/zip_source.h"

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/fd.h"

namespace gdnctl {

namespace {

class FileSource final : public ZipSource {
public:
    FileSource(std::string name, UniqueFd fd, std::uint64_t size)
        : ZipSource(std::move(name)), m_fd(std::move(fd)), m_size(size) {}

    std::uint64_t size() const override { return m_size; }

    Status read_at(std::uint64_t offset, std::span<char> into) const override {
        while (!into.empty()) {
            const ssize_t got = ::pread(m_fd.get(), into.data(), into.size(), static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) {
                return fail(ErrorKind::local_io,
                            fmt::format("cannot read {}: {}", name(), std::generic_category().message(errno)));
            }
            if (got == 0) return bad("cut");
            into = into.subspan(static_cast<std::size_t>(got));
            offset += static_cast<std::uint64_t>(got);
        }
        return {};
    }

private:
    UniqueFd m_fd;
    std::uint64_t m_size;
};

class MemorySource final : public ZipSource {
public:
    MemorySource(std::string name, std::span<const char> bytes) : ZipSource(std::move(name)), m_bytes(bytes) {}

    std::uint64_t size() const override { return m_bytes.size(); }

    Status read_at(std::uint64_t offset, std::span<char> into) const override {
        if (offset > m_bytes.size() || into.size() > m_bytes.size() - offset) return bad("cut");
        if (!into.empty()) std::memcpy(into.data(), m_bytes.data() + offset, into.size());
        return {};
    }

private:
    std::span<const char> m_bytes;
};

}  // namespace

tl::unexpected<Error> ZipSource::bad(const std::string& what) const {
    return fail(ErrorKind::bad_input, fmt::format("{}: {}", m_name, what));
}

Result<std::string> ZipSource::text_at(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > size() || bytes > size() - offset) return bad("cut");
    std::string text(static_cast<std::size_t>(bytes), '\0');
    GDNCTL_TRY(read_at(offset, text));
    return text;
}

Result<std::unique_ptr<ZipSource>> open_zip_file(const std::filesystem::path& path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts{};
    if (!fd.valid() || ::fstat(fd.get(), &facts) != 0) {
        return fail(ErrorKind::local_io,
                    fmt::format("cannot read {}: {}", path.string(), std::generic_category().message(errno)));
    }
    if (!S_ISREG(facts.st_mode)) {
        return fail(ErrorKind::bad_input, fmt::format("{}: not a regular file", path.string()));
    }
    return std::make_unique<FileSource>(path.string(), std::move(fd), static_cast<std::uint64_t>(facts.st_size));
}

std::unique_ptr<ZipSource> zip_in_memory(std::span<const char> bytes, std::string name) {
    return std::make_unique<MemorySource>(std::move(name), bytes);
}

}  // namespace gdnctl
