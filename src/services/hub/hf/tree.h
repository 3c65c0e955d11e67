// Parses what the Hub reports about a repository: revisions, listings, and the trees that the official client stores.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/hub/transfer/digest.h"

namespace gdnctl::hub {

struct TreeFile {
    std::string path;
    std::int64_t size = 0;  // of the content
    std::string blob_id;    // git's hash of the file or, with lfs_sha256, of its pointer
    std::optional<std::string> lfs_sha256;
    std::int64_t lfs_size = 0;
    std::optional<std::string> xet_hash;  // kept for the official client's records
    bool bad_xet_hash = false;

    // What the official client calls the file's etag and uses as the name of records.
    const std::string& etag() const { return lfs_sha256 ? *lfs_sha256 : blob_id; }
    Digest digest() const;
};

struct Revision {
    std::string commit;  // 40 hex digits
    std::string id;      // the repository's current name; empty: not given
};

// Errors of all: bad_input.
Result<Revision> parse_revision(std::string_view text);
// Skips folders and entries of unknown types.
Result<std::vector<TreeFile>> parse_tree_page(std::string_view text);

// trees/<commit>.json, byte for byte as the official client writes it. nullopt: the client would not write it (a
// malformed xetHash).
std::optional<std::string> tree_file_text(const std::map<std::string, TreeFile>& files);
// nullopt: an unknown version, or damaged.
std::optional<std::vector<TreeFile>> parse_tree_file(std::string_view text);

}  // namespace gdnctl::hub
