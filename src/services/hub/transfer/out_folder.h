// The folder for downloads. Names in it come from a server, so every path is opened folder by folder without following
// symbolic links, and nothing outside can be reached, whatever someone has placed there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include "platform/fs.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

// "no space left on device: PATH", or "cannot <what> PATH: <reason>". local_io.
Error local_failure(std::string_view what, const std::filesystem::path& path, int error_number);

class OutFolder {
public:
    // Creates it with its parents, unless `existing_only`: then a missing folder counts as empty.
    static Result<OutFolder> open(const std::filesystem::path& path, bool existing_only);

    const std::filesystem::path& path() const { return m_path; }
    std::filesystem::path whole(std::string_view relative) const { return m_path / relative; }
    bool exists() const { return m_fd.valid(); }

    // All paths are relative to the folder and either known to be safe (why_unsafe) or our own. Errors of all:
    // local_io.
    Result<UniqueFd> open_file(std::string_view relative, int flags, mode_t mode = 0666);
    // nullopt: does not exist. A symbolic link, there or in the path, is an error.
    Result<std::optional<struct stat>> facts(std::string_view relative);
    // nullopt: no such file, or longer than `limit`.
    Result<std::optional<std::string>> read(std::string_view relative, std::size_t limit);
    Status replace(std::string_view relative, std::string_view bytes);  // temporary name, then rename
    Status move(std::string_view from, std::string_view to);
    void remove(std::string_view relative);  // if it exists
    std::optional<std::uint64_t> free_bytes() const;
    // False on file systems where flock() may grant a lock to everyone (NFS, Lustre, GPFS).
    bool locks_can_be_trusted() const;
    bool ignores_case(std::string_view existing) const;

private:
    OutFolder() = default;
    struct Parent {
        int fd;
        std::string name;
    };
    Result<Parent> parent_of(std::string_view relative, bool create);

    std::filesystem::path m_path;
    UniqueFd m_fd;
    std::map<std::string, UniqueFd, std::less<>> m_folders;  // recently opened ones, by path
};

// Records stored with the files in the format of `hf download --local-dir`, and our own partial files. Pure, except for
// write_markers().

inline constexpr std::string_view k_records = ".cache/huggingface";

// Whether a file's name leaves room for the names of its records.
bool has_room_for_records(std::string_view local);
std::string metadata_path(std::string_view local);
std::string lock_path(std::string_view local);
std::string tree_path(std::string_view commit);
// The name contains the content's etag, so that bytes of different versions never mix. `owner`: empty, or a word that
// makes the name unique.
Result<std::string> part_path(std::string_view local, std::string_view etag, std::string_view owner);
std::string sidecar_path(std::string_view part);

struct Metadata {
    std::string commit, etag;
    double time = 0;  // Unix, s
};
std::string metadata_text(const Metadata& metadata);
std::optional<Metadata> parse_metadata(std::string_view text);
// Python's str(float) for current times: 1712656091.123, 1712656091.0
std::string python_time(double seconds);

// .gitignore and CACHEDIR.TAG, unless they exist.
Status write_markers(OutFolder& folder);

}  // namespace gdnctl::hub
