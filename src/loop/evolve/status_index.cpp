#include "loop/evolve/status_index.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "loop/evolve/journal.h"
#include "loop/evolve/views.h"
#include "platform/fs.h"
#include "platform/hash.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

// Size of the journal and hash of its last line, without the newline; empty: it has none.
Json mark_of(const fs::path& journal, std::string_view last_line) {
    std::error_code problem;
    const auto size = fs::file_size(journal, problem);
    const auto hash = hash_hex(HashKind::sha256, last_line);
    if (problem || !hash) return {};
    return {{"bytes", size}, {"last", *hash}};
}

// Without its newline; empty: the file ends in the middle of a line, or has none.
std::string last_line_of(const fs::path& journal) {
    constexpr std::streamoff k_piece = 1 << 16;
    std::ifstream file(journal, std::ios::binary | std::ios::ate);
    std::streamoff end = file ? static_cast<std::streamoff>(file.tellg()) : 0;
    std::string tail;
    while (end > 0) {
        const std::streamoff from = std::max<std::streamoff>(end - k_piece, 0);
        std::string piece(static_cast<std::size_t>(end - from), '\0');
        file.seekg(from);
        file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        if (!file) return {};
        tail.insert(0, piece);
        if (tail.back() != '\n') return {};
        const auto newline = tail.size() < 2 ? std::string::npos : tail.rfind('\n', tail.size() - 2);
        if (newline != std::string::npos) return tail.substr(newline + 1, tail.size() - newline - 2);
        end = from;
    }
    return tail.empty() ? std::string() : tail.substr(0, tail.size() - 1);
}

}  // namespace

void write_index(const fs::path& log_dir, const State& state, std::string_view last_line) {
    const Json mark = mark_of(log_dir / k_journal, last_line);
    if (mark.is_null() || !state.begun()) return;
    const Json index = {{"schema", "gdnctl.evolve-state/1"}, {"journal", mark},
                        {"stopped", state.stopped},          {"run", state.run},
                        {"status", status_facts(state)},     {"words", status_body(state)}};
    // As it is derived, it need not survive a crash: replaced, and not flushed to the disk.
    const fs::path place = log_dir / k_index, fresh = log_dir / ".state.json.new";
    {
        std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
        file << gdnctl::to_text(index) << "\n";
        if (!file.flush()) return;
    }
    std::error_code ignored;
    fs::permissions(fresh, fs::perms::owner_read | fs::perms::owner_write, ignored);
    fs::rename(fresh, place, ignored);
}

std::optional<StatusIndex> read_index(const fs::path& log_dir, bool running) {
    const auto text = read_file_if_exists(log_dir / k_index);
    if (!text || !*text) return std::nullopt;
    const Json index = Json::parse(**text, nullptr, false);
    const fs::path journal = log_dir / k_journal;
    if (!index.is_object() || !index.contains("journal") || !index.contains("words") ||
        index["journal"] != mark_of(journal, last_line_of(journal))) {
        return std::nullopt;
    }
    const std::string stopped = index.value("stopped", ""), run = index.value("run", "");
    StatusIndex out;
    Json status = index.value("status", Json::object());
    status.update(status_head(log_dir, stopped, running));
    out.status = gdnctl::to_text(status);
    out.text = status_heading(run, stopped, running) + index.value("words", "") + status_place(log_dir);
    return out;
}

}  // namespace gdnctl::loop::evolve
