// Records stored with the files in the format of `hf download --local-dir`, and our own partial files. Pure, except for
// write_markers().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/hub/transfer/out_folder.h"

namespace gdnctl::hub {

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
Outcome<void> write_markers(OutFolder& folder);

}  // namespace gdnctl::hub
