#include "commands/log/spool.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/types.h>
#include <unistd.h>

#include "core/json.h"
#include "platform/fs.h"

namespace gdnctl::commands {

namespace {

constexpr std::size_t k_piece = std::size_t{256} << 10;
constexpr std::string_view k_name = "a temporary file for the log";

// Length of the part that ends with a complete character; the start of an incomplete one is left for the next piece.
std::size_t whole_characters(std::string_view bytes) {
    constexpr std::size_t k_longest = 4;
    for (std::size_t back = 1; back <= std::min(k_longest, bytes.size()); ++back) {
        const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
        if ((byte & 0xC0U) == 0x80U) continue;  // continues a character
        const std::size_t length = byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : byte >= 0xC0U ? 2 : 1;
        return length > back ? bytes.size() - back : bytes.size();
    }
    return bytes.size();
}

}  // namespace

Result<LogSpool> LogSpool::open() {
    std::error_code problem;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(problem);
    std::string path = ((problem ? std::filesystem::path("/tmp") : folder) / "gdnctl-log.XXXXXX").string();
    UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "create", path, errno));
    unlink(path.c_str());
    return LogSpool(std::move(fd));
}

void LogSpool::append(std::string_view bytes) {
    if (m_problem == 0) m_problem = write_fully(m_fd.get(), bytes);
}

Status LogSpool::status() const {
    if (m_problem == 0) return {};
    return tl::unexpected(file_error(ErrorKind::local_io, "write", k_name, m_problem));
}

Status LogSpool::print(Terminal& terminal) const {
    terminal.out("\"");
    std::string held;
    for (off_t at = 0;;) {
        const std::size_t before = held.size();
        held.resize(before + k_piece);
        const ssize_t n = pread(m_fd.get(), held.data() + before, k_piece, at);
        if (n < 0 && errno != EINTR) {
            return tl::unexpected(file_error(ErrorKind::local_io, "read", k_name, errno));
        }
        held.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
        if (n < 0) continue;
        at += n;
        const std::size_t size = n == 0 ? held.size() : whole_characters(held);
        const std::string quoted = to_text(Json(held.substr(0, size)));
        terminal.out(std::string_view(quoted).substr(1, quoted.size() - 2));
        held.erase(0, size);
        if (n == 0 || terminal.out_closed()) break;
    }
    terminal.out("\"");
    return {};
}

}  // namespace gdnctl::commands
