// Downloads files of a service in parallel, each continued where it stopped and checked against its hash.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/hash.h"
#include "services/hub/transfer/names.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/retrying_client.h"

namespace gdnctl::hub {

struct Digest {
    enum class Kind { none, sha256, git_sha1, md5 };
    Kind kind = Kind::none;
    std::string hex;  // lower case
};

inline constexpr std::size_t k_md5_digits = 32;
inline constexpr std::size_t k_sha1_digits = 40;
inline constexpr std::size_t k_sha256_digits = 64;
bool is_hex(std::string_view text, std::size_t digits);  // lower case

// MD5 in manifests is base64. Empty: not base64.
std::string hex_of_base64(std::string_view text);
std::string base64_of_hex(std::string_view hex);

// Hashes a file's bytes in order, as required by its Digest.
class Digester {
public:
    // `size`: of the whole file, which git hashes first.
    static Result<Digester> create(Digest::Kind kind, std::int64_t size);
    Status update(std::string_view bytes);
    Result<std::string> hex();

private:
    Digester() = default;
    std::optional<Hasher> m_hasher;  // none: no hash
};

// Downloads files in parallel into an OutFolder, and checks each against its hash as it arrives.

// A file of the service.
struct Wanted {
    std::string path;   // at the service
    std::string local;  // below the output folder
    std::int64_t size = 0;
    Digest digest;
    std::string etag;                   // identifies the content
    std::vector<std::string> urls;      // tried in order, if one fails for good
    bool first_without_token = false;   // the first of them is signed
    std::filesystem::path blob;         // a copy of the content on this machine; empty: none
    std::optional<Error> refused = {};  // why it cannot be fetched at all
};

enum class FileStatus { downloaded, resumed, up_to_date, copied, failed, skipped };
std::string_view word_of(FileStatus status);  // "up-to-date"

struct FileResult {
    FileStatus status = FileStatus::skipped;
    std::int64_t bytes_transferred = 0;
    std::chrono::milliseconds elapsed{0};
    int attempts = 0;
    bool hashed = false;  // all its bytes were hashed in this run, and the hash is right
    std::optional<Error> failure;
    int http_status = 0;     // of the answer that was the failure; 0: there was none
    std::string request_id;  // of that answer
};

struct DownloadOptions {
    int jobs = 8;
    bool verify = true;
    bool hash_all = false;  // also files that the records call up to date
    bool force = false;
    bool records = true;   // write the official client's metadata; off where names differ from the repository's
    bool dry_run = false;  // only finds out what would be done; writes nothing
    bool offline = false;
    std::string commit;
};

// Sizes come from a server, so an overflow saturates at the maximum.
inline std::int64_t total_of(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// Explains an answer that is not a file.
using Explain =
    std::function<Error(const std::string& url, int status, const HttpHeaders& headers, std::string_view body)>;
// Bytes received so far, and finished files.
using OnProgress = std::function<void(std::int64_t bytes, std::size_t files)>;

class Downloader {
public:
    Downloader(OutFolder& folder, RetryingClient* client, DownloadOptions options, Explain explain,
               std::stop_token stop, Clock& clock)
        : m_folder(folder),
          m_client(client),
          m_options(std::move(options)),
          m_explain(std::move(explain)),
          m_stop(std::move(stop)),
          m_clock(clock) {}

    // Checks what already exists, by records or hash, and what a local copy can provide. The remaining files have the
    // status `skipped` without a failure: they must be fetched.
    std::vector<FileResult> look(const std::vector<Wanted>& files);
    // Fetches the remaining files. If one fails, the others continue.
    void fetch(const std::vector<Wanted>& files, std::vector<FileResult>& results, const OnProgress& progress);

private:
    friend class FileTransfer;
    enum class Found { missing, by_record, by_hash, other_content };
    FileResult look_at(const Wanted& file);
    Result<Found> is_there(const Wanted& file);
    Result<bool> has_content(const Wanted& file, const UniqueFd& fd) const;
    Result<bool> copy_blob(const Wanted& file);
    Status publish(const Wanted& file, std::string_view part);
    Status write_metadata(const Wanted& file);

    OutFolder& m_folder;
    RetryingClient* m_client;  // nullptr: offline or a dry run
    const DownloadOptions m_options;
    const Explain m_explain;
    const std::stop_token m_stop;
    Clock& m_clock;
};

// Feeds `length` bytes of `fd`, starting at `begin`, to `digester`. Errors: local_io, interrupted.
Status digest_file(int fd, std::int64_t begin, std::int64_t length, Digester& digester, const std::stop_token& stop,
                   const std::filesystem::path& name);

}  // namespace gdnctl::hub
