// Records beside the files, as `hf download --local-dir` writes and reads them, and our own partial files. Pure but for
// write_markers().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/hub/transfer/out_folder.h"

namespace gdnctl::hub {

inline constexpr std::string_view k_records = ".cache/huggingface";

// Whether a file's name leaves room for those of its records.
bool has_room_for_records(std::string_view local);
std::string metadata_path(std::string_view local);
std::string lock_path(std::string_view local);
std::string tree_path(std::string_view commit);
// Keyed by content, so that bytes of one version never continue another. `owner`: empty, or what makes the name ours
// alone.
Result<std::string> part_path(std::string_view local, std::string_view etag, std::string_view owner);
std::string sidecar_path(std::string_view part);

struct Metadata {
    std::string commit, etag;
    double time = 0;  // Unix, s
};
std::string metadata_text(const Metadata& metadata);
std::optional<Metadata> parse_metadata(std::string_view text);
// As Python's str(float) for times of this age: 1712656091.123, 1712656091.0
std::string python_time(double seconds);

// .gitignore and CACHEDIR.TAG, unless they are there.
Outcome<void> write_markers(OutFolder& folder);

}  // namespace gdnctl::hub
