#include <algorithm>
#include <cerrno>
#include <new>
#include <span>
#include <unordered_set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/zip.h"
#include "platform/zip_format.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_write_piece = 256u << 10;
constexpr std::size_t k_sample = 64u << 10;
constexpr std::uint64_t k_dos_date = 0x0021;  // 1980-01-01, the first day that ZIP can represent; the time is midnight
constexpr std::uint64_t k_version = 20;       // "version needed to extract": deflate, no zip64
constexpr std::uint64_t k_made_by_unix = 3u << 8 | k_version;

tl::unexpected<Error> io_error(std::string_view verb, const std::filesystem::path& path, int error_number) {
    return tl::unexpected(file_error(ErrorKind::local_io, verb, path, error_number));
}

tl::unexpected<Error> too_large(const std::filesystem::path& path) {
    return fail(ErrorKind::bad_input, fmt::format("{}: larger than a ZIP archive without zip64 can be", path.string()),
                "exclude some files: the limits are 4 GiB and 65534 members");
}

bool is_relative_name(std::string_view name) {
    if (name.empty() || name.size() > zip::k_max16 || name.find('\0') != std::string_view::npos) return false;
    const auto parts = text::split(name, '/');
    return text::is_valid_utf8(name) && std::none_of(parts.begin(), parts.end(), [](std::string_view part) {
               return part.empty() || part == "." || part == "..";
           });
}

// The bytes of one member, which may be read twice.
class Input {
public:
    explicit Input(std::string_view text) : m_text(text) {}
    // `buffer` outlives this.
    Input(std::filesystem::path path, UniqueFd fd, std::span<char> buffer)
        : m_path(std::move(path)), m_fd(std::move(fd)), m_buffer(buffer) {}

    const std::filesystem::path& path() const { return m_path; }
    void rewind() { m_offset = 0; }
    // The next piece, valid until the next call; empty at the end.
    Result<std::string_view> next() {
        if (!m_fd.valid()) {
            const std::string_view piece = m_text.substr(m_offset, k_write_piece);
            m_offset += piece.size();
            return piece;
        }
        ssize_t got = -1;
        do {
            got = ::pread(m_fd.get(), m_buffer.data(), m_buffer.size(), static_cast<off_t>(m_offset));
        } while (got < 0 && errno == EINTR);
        if (got < 0) return io_error("read", m_path, errno);
        m_offset += static_cast<std::size_t>(got);
        return std::string_view(m_buffer.data(), static_cast<std::size_t>(got));
    }

private:
    std::string_view m_text;
    std::filesystem::path m_path;
    UniqueFd m_fd;
    std::size_t m_offset = 0;
    std::span<char> m_buffer;
};

class Deflater {
public:
    Deflater() {
        // The level determines the bytes, and with them the package name, so do not change it. Compared with level 6,
        // it is 1.4 times as fast on source code and twice as fast on longer files, and its output is 7 % larger.
        constexpr int k_level = 2;
        if (deflateInit2(&m_stream, k_level, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
            throw std::bad_alloc();
        }
    }
    ~Deflater() { deflateEnd(&m_stream); }
    Deflater(const Deflater&) = delete;
    Deflater& operator=(const Deflater&) = delete;

    // Begins a new stream.
    void reset() { deflateReset(&m_stream); }

    // Compresses `piece` (empty: finishes the stream) and passes the result to `out`.
    template <class Out>
    Status run(std::string_view piece, Out out) {
        m_stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
        m_stream.avail_in = static_cast<uInt>(piece.size());
        do {
            m_stream.next_out = reinterpret_cast<Bytef*>(m_buffer.data());
            m_stream.avail_out = static_cast<uInt>(m_buffer.size());
            deflate(&m_stream, piece.empty() ? Z_FINISH : Z_NO_FLUSH);
            GDNCTL_TRY(out(std::string_view(m_buffer.data(), m_buffer.size() - m_stream.avail_out)));
        } while (m_stream.avail_out == 0);
        return {};
    }

private:
    z_stream m_stream{};
    std::string m_buffer = std::string(k_write_piece, '\0');
};

struct Packed {
    std::uint16_t method = zip::k_deflate;
    std::uint64_t size = 0;
    std::uint64_t compressed_size = 0;
    uLong crc = 0;
};

// The fields that local header and directory entry have in common.
std::string common_fields(const Packed& packed) {
    std::string out;
    zip::put(out, k_version, 2);
    zip::put(out, zip::k_flag_utf8, 2);
    zip::put(out, packed.method, 2);
    zip::put(out, 0, 2);
    zip::put(out, k_dos_date, 2);
    zip::put(out, packed.crc, 4);
    zip::put(out, packed.compressed_size, 4);
    zip::put(out, packed.size, 4);
    return out;
}

std::string local_header(std::string_view name, const Packed& packed) {
    std::string out;
    zip::put(out, zip::k_local_signature, 4);
    out += common_fields(packed);
    zip::put(out, name.size(), 2);
    zip::put(out, 0, 2);
    out += name;
    return out;
}

std::string directory_entry(std::string_view name, const Packed& packed, bool executable, std::uint64_t offset) {
    const std::uint64_t mode = S_IFREG | (executable ? 0755u : 0644u);
    std::string out;
    zip::put(out, zip::k_central_signature, 4);
    zip::put(out, k_made_by_unix, 2);
    out += common_fields(packed);
    zip::put(out, name.size(), 2);
    zip::put(out, 0, 8);  // extra field, comment, disk, internal attributes
    zip::put(out, mode << 16, 4);
    zip::put(out, offset, 4);
    out += name;
    return out;
}

std::string end_record(std::size_t members, std::size_t directory_bytes, std::uint64_t directory_offset) {
    std::string out;
    zip::put(out, zip::k_end_signature, 4);
    zip::put(out, 0, 4);
    zip::put(out, members, 2);
    zip::put(out, members, 2);
    zip::put(out, directory_bytes, 4);
    zip::put(out, directory_offset, 4);
    zip::put(out, 0, 2);
    return out;
}

uLong checksum(uLong before, std::string_view bytes) {
    return crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

}  // namespace

struct ZipWriter::State {
    State(std::filesystem::path archive, UniqueFd descriptor, Watch asked)
        : path(std::move(archive)), fd(std::move(descriptor)), watch(std::move(asked)) {}

    Status write_at(std::uint64_t at, std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t written = ::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) return io_error("write", path, errno);
            bytes.remove_prefix(static_cast<std::size_t>(written));
            at += static_cast<std::uint64_t>(written);
        }
        return {};
    }

    // Reads `input` to its end and writes it at `begin` with the given method.
    Result<Packed> pack(Input& input, std::uint64_t begin, std::uint16_t method) {
        Packed packed{method, 0, 0, ::crc32(0, nullptr, 0)};
        const auto write = [&](std::string_view bytes) -> Status {
            GDNCTL_TRY(write_at(begin + packed.compressed_size, bytes));
            packed.compressed_size += bytes.size();
            return begin + packed.compressed_size < zip::k_max32 ? Status{} : too_large(path);
        };
        deflater.reset();
        input.rewind();
        while (true) {
            GDNCTL_TRY_ASSIGN(const std::string_view piece, input.next());
            packed.size += piece.size();
            if (packed.size >= zip::k_max32) return too_large(path);
            if (watch) GDNCTL_TRY(watch(begin + packed.compressed_size));
            packed.crc = checksum(packed.crc, piece);
            GDNCTL_TRY(method == zip::k_stored ? write(piece) : deflater.run(piece, write));
            if (piece.empty()) return packed;
        }
    }

    // Whether a large member's first piece does not shrink; it is then stored without trying the rest.
    Result<bool> begins_with_noise(Input& input) {
        input.rewind();
        GDNCTL_TRY_ASSIGN(const std::string_view piece, input.next());
        if (piece.size() < k_write_piece) return false;
        std::size_t compressed = 0;
        const auto count = [&](std::string_view bytes) -> Status {
            compressed += bytes.size();
            return {};
        };
        deflater.reset();
        GDNCTL_TRY(deflater.run(piece.substr(0, k_sample), count));
        GDNCTL_TRY(deflater.run({}, count));
        return compressed >= k_sample - k_sample / 50;
    }

    Status add(std::string_view name, Input& input, bool executable) {
        if (!is_relative_name(name)) {
            return fail(ErrorKind::usage, fmt::format("'{}' cannot be a name in an archive", text::repair_utf8(name)),
                        "names are relative UTF-8 paths without '.', '..' and empty parts");
        }
        if (names.size() + 1 >= zip::k_max16) return too_large(path);
        if (names.contains(std::string(name))) {
            return fail(ErrorKind::usage, fmt::format("the archive already contains '{}'", name));
        }
        const std::uint64_t data = offset + zip::k_local_bytes + name.size();
        GDNCTL_TRY_ASSIGN(const bool noise, begins_with_noise(input));
        GDNCTL_TRY_ASSIGN(Packed packed, pack(input, data, noise ? zip::k_stored : zip::k_deflate));
        if (!noise && packed.compressed_size >= packed.size) {
            const Packed before = packed;
            GDNCTL_TRY_ASSIGN(packed, pack(input, data, zip::k_stored));
            if (packed.size != before.size || packed.crc != before.crc) {
                return fail(ErrorKind::local_io, fmt::format("{} changed while it was packed", input.path().string()),
                            "try again");
            }
        }
        GDNCTL_TRY(write_at(offset, local_header(name, packed)));
        names.emplace(name);
        directory += directory_entry(name, packed, executable, offset);
        offset = data + packed.compressed_size;
        return {};
    }

    std::filesystem::path path;
    UniqueFd fd;
    Watch watch;
    Deflater deflater;
    std::string buffer = std::string(k_write_piece, '\0');  // reused for all files
    std::uint64_t offset = 0;
    std::string directory;
    std::unordered_set<std::string> names;
};

ZipWriter::ZipWriter(std::unique_ptr<State> state) : m_state(std::move(state)) {}
ZipWriter::ZipWriter(ZipWriter&&) noexcept = default;
ZipWriter& ZipWriter::operator=(ZipWriter&&) noexcept = default;
ZipWriter::~ZipWriter() = default;

Result<ZipWriter> ZipWriter::create(const std::filesystem::path& path, Watch watch) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd.valid()) return io_error("write", path, errno);
    return ZipWriter(std::make_unique<State>(path, std::move(fd), std::move(watch)));
}

Status ZipWriter::add(std::string_view name, std::string_view content, bool executable) {
    Input input(content);
    return m_state->add(name, input, executable);
}

Status ZipWriter::add_file(std::string_view name, const std::filesystem::path& file, bool executable) {
    UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts{};
    if (!fd.valid() || ::fstat(fd.get(), &facts) != 0) return io_error("read", file, errno);
    Input input(file, std::move(fd), m_state->buffer);
    if (facts.st_size >= static_cast<off_t>(zip::k_max32)) return too_large(m_state->path);
    return m_state->add(name, input, executable);
}

std::uint64_t ZipWriter::bytes_so_far() const { return m_state->offset + m_state->directory.size() + zip::k_end_bytes; }

Result<std::uint64_t> ZipWriter::finish() {
    State& state = *m_state;
    const std::uint64_t all = bytes_so_far();
    if (all >= zip::k_max32) return too_large(state.path);
    const std::string end = end_record(state.names.size(), state.directory.size(), state.offset);
    GDNCTL_TRY(state.write_at(state.offset, state.directory + end));
    // If the last member was deflated first and then stored, the longer deflated version left bytes behind.
    if (::ftruncate(state.fd.get(), static_cast<off_t>(all)) != 0) return io_error("write", state.path, errno);
    if (::close(state.fd.release()) != 0) return io_error("write", state.path, errno);
    return all;
}

bool StoredZip::add(std::string_view name, std::string_view content) {
    constexpr std::uint64_t k_room_for_the_end = 64u << 10;
    if (name.size() > zip::k_max16) return false;
    if (m_bytes.size() + content.size() + m_directory.size() > zip::k_max32 - k_room_for_the_end) return false;
    const Packed packed{zip::k_stored, content.size(), content.size(), checksum(::crc32(0, nullptr, 0), content)};
    m_directory += directory_entry(name, packed, false, m_bytes.size());
    (m_bytes += local_header(name, packed)) += content;
    ++m_members;
    return true;
}

std::string StoredZip::finish() {
    const std::uint64_t offset = m_bytes.size();
    return (m_bytes += m_directory) += end_record(m_members, m_directory.size(), offset);
}

}  // namespace gdnctl
