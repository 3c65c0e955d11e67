#include "platform/gzip.h"

#include <cerrno>
#include <cstdio>
#include <set>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include "platform/fd.h"
#include "platform/fs.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

// 0 or errno.
int pack(int from, int to) {
    constexpr std::size_t k_step = std::size_t{256} << 10;
    constexpr int k_level = 6;
    constexpr int k_gzip_window = MAX_WBITS + 16;
    z_stream stream{};
    if (deflateInit2(&stream, k_level, Z_DEFLATED, k_gzip_window, 8, Z_DEFAULT_STRATEGY) != Z_OK) return ENOMEM;
    std::vector<unsigned char> in(k_step), out(k_step);
    int problem = 0;
    for (bool end = false; !end && problem == 0;) {
        const ssize_t n = read(from, in.data(), in.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            problem = errno;
            break;
        }
        end = n == 0;
        stream.next_in = in.data();
        stream.avail_in = static_cast<uInt>(n);
        do {
            stream.next_out = out.data();
            stream.avail_out = static_cast<uInt>(out.size());
            deflate(&stream, end ? Z_FINISH : Z_NO_FLUSH);
            const std::size_t made = out.size() - stream.avail_out;
            problem = write_fully(to, std::string_view(reinterpret_cast<const char*>(out.data()), made));
        } while (stream.avail_out == 0 && problem == 0);
    }
    deflateEnd(&stream);
    return problem;
}

// Creates PATH.gz next to PATH. False: only PATH.gz existed.
Result<bool> pack_beside(const fs::path& path) {
    const fs::path packed = path.string() + ".gz";
    const fs::path temporary = path.string() + ".gz.part";
    const UniqueFd from(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!from.valid()) {
        if (errno == ENOENT && access(packed.c_str(), F_OK) == 0) return false;
        return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    }
    const UniqueFd to(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    int problem = to.valid() ? pack(from.get(), to.get()) : errno;
    if (problem == 0 && fsync(to.get()) != 0) problem = errno;
    if (problem == 0 && std::rename(temporary.c_str(), packed.c_str()) != 0) problem = errno;
    if (problem != 0) {
        unlink(temporary.c_str());
        return tl::unexpected(file_error(ErrorKind::local_io, "write", packed, problem));
    }
    return true;
}

}  // namespace

Status gzip_in_place(std::span<const fs::path> paths) {
    std::vector<fs::path> done;
    std::set<fs::path> folders;
    Status packed;
    for (const auto& path : paths) {
        const auto made = pack_beside(path);
        if (!made) {
            packed = tl::unexpected(made.error());
            break;
        }
        if (!*made) continue;
        done.push_back(path);
        folders.insert(path.parent_path());
    }
    for (const auto& folder : folders) GDNCTL_TRY(sync_directory(folder));
    for (const auto& path : done) {
        if (unlink(path.c_str()) != 0) return tl::unexpected(file_error(ErrorKind::local_io, "remove", path, errno));
    }
    return packed;
}

}  // namespace gdnctl
