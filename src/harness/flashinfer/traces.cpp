#include "harness/flashinfer/traces.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "oracle/flashinfer/flashinfer.h"
#include "platform/fd.h"
#include "platform/fs.h"

namespace gdnctl::harness::flashinfer {

namespace {

constexpr std::size_t k_max_traces = std::size_t{1} << 30U;

Status cannot(const std::filesystem::path& path, int problem) {
    return tl::unexpected(file_error(ErrorKind::local_io, "append to", path, problem));
}

// Whether the file ends in the middle of a line.
bool ends_unfinished(int fd, off_t size) {
    char last = '\n';
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

Status append_trace(const std::filesystem::path& path, std::string_view line) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) return cannot(path, error.value());
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666));
    if (!fd.valid()) return cannot(path, errno);
    int locked = 0;
    do {
        locked = flock(fd.get(), LOCK_EX);
    } while (locked != 0 && errno == EINTR);
    struct stat before{};
    if (locked != 0 || fstat(fd.get(), &before) != 0) return cannot(path, errno);
    std::string record = ends_unfinished(fd.get(), before.st_size) ? "\n" : "";
    record += line;
    record += '\n';
    int problem = write_fully(fd.get(), record);
    if (problem == 0 && fsync(fd.get()) != 0) problem = errno;
    if (problem == 0) return {};
    // No one else has written meanwhile: remove the half line.
    [[maybe_unused]] const int restored = ftruncate(fd.get(), before.st_size);
    return cannot(path, problem);
}

Result<std::set<std::pair<std::string, std::string>>> recorded_traces(const std::filesystem::path& path) {
    std::set<std::pair<std::string, std::string>> recorded;
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, k_max_traces));
    if (!text) return recorded;
    std::size_t number = 0;
    for (const std::string_view line : text::split(*text, '\n')) {
        ++number;
        if (text::trim(line).empty()) continue;
        const auto trace = oracle::flashinfer::parse_trace(line, fmt::format("{}:{}", path.string(), number));
        if (!trace) {
            log::warning("{}: skipped", trace.error().message);
        } else if (trace->solution) {
            recorded.emplace(*trace->solution, trace->workload.uuid);
        }
    }
    return recorded;
}

}  // namespace gdnctl::harness::flashinfer
