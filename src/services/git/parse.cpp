#include "services/git/parse.h"

#include "core/text.h"

namespace gdnctl::git {

namespace {

// Takes the part before the NUL from the front of `text`.
std::optional<std::string_view> take(std::string_view& text) {
    const auto end = text.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end + 1);
    return part;
}

// What follows the n-th blank.
std::optional<std::string_view> after_words(std::string_view line, int n) {
    while (n-- > 0) {
        const auto at = line.find(' ');
        if (at == std::string_view::npos) return std::nullopt;
        line.remove_prefix(at + 1);
    }
    return line;
}

}  // namespace

std::optional<std::vector<GitStatusEntry>> parse_status(std::string_view text) {
    using Kind = GitStatusEntry::Kind;
    std::vector<GitStatusEntry> entries;
    while (!text.empty()) {
        const auto line = take(text);
        if (!line || line->size() < 3) return std::nullopt;
        const char type = line->front();
        if (type == '#') continue;
        // Fields before the path: `1 XY sub mH mI mW hH hI`; a rename adds its score; a conflict has four modes and
        // three ids.
        const int words = type == '1' ? 8 : type == '2' ? 9 : type == 'u' ? 10 : type == '?' || type == '!' ? 1 : 0;
        if (words == 0) return std::nullopt;
        const auto path = after_words(*line, words);
        if (!path || path->empty()) return std::nullopt;
        GitStatusEntry entry;
        entry.path = *path;
        entry.kind = type == 'u'   ? Kind::conflict
                     : type == '?' ? Kind::untracked
                     : type == '!' ? Kind::ignored
                                   : Kind::tracked;
        if (type == '2' && !take(text)) return std::nullopt;  // its old path
        entries.push_back(std::move(entry));
    }
    return entries;
}

std::optional<std::vector<GitFileChange>> parse_raw_diff(std::string_view text) {
    std::vector<GitFileChange> changes;
    while (!text.empty()) {
        const auto facts = take(text);
        const auto path = facts ? take(text) : std::nullopt;
        if (!path || !facts->starts_with(':')) return std::nullopt;
        const auto words = text::split(facts->substr(1), ' ');
        if (words.size() != 5 || words[4].size() != 1) return std::nullopt;
        GitFileChange change;
        change.path = *path;
        change.status = words[4][0];
        change.old_mode = words[0];
        change.new_mode = words[1];
        change.old_object = words[2];
        change.new_object = words[3];
        changes.push_back(std::move(change));
    }
    return changes;
}

std::vector<GitWorktree> parse_worktrees(std::string_view text) {
    std::vector<GitWorktree> found;
    bool usable = true;
    while (const auto line = take(text)) {
        if (line->starts_with("worktree ")) {
            if (!usable) found.pop_back();
            usable = true;
            found.push_back({std::filesystem::path(std::string(line->substr(9))), {}, {}});
        } else if (found.empty()) {
            continue;
        } else if (line->starts_with("HEAD ")) {
            found.back().head = line->substr(5);
        } else if (line->starts_with("branch ")) {
            found.back().branch = line->substr(7);
        } else if (*line == "bare" || line->starts_with("prunable")) {
            usable = false;
        }
    }
    if (!usable) found.pop_back();
    return found;
}

std::optional<std::vector<std::optional<std::string>>> parse_batch(std::string_view text, std::size_t count) {
    std::vector<std::optional<std::string>> objects;
    while (objects.size() < count) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) return std::nullopt;
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        if (line.ends_with(" missing")) {
            objects.emplace_back();
            continue;
        }
        const auto size = text::parse_int(line.substr(line.rfind(' ') + 1));
        if (!size || *size < 0 || static_cast<std::size_t>(*size) >= text.size()) return std::nullopt;
        const auto bytes = static_cast<std::size_t>(*size);
        const bool folder = line.find(" tree ") != std::string_view::npos;
        objects.push_back(folder ? std::nullopt : std::optional(std::string(text.substr(0, bytes))));
        text.remove_prefix(bytes + 1);
    }
    return objects;
}

std::vector<std::string> parse_listed_paths(std::string_view words) {
    std::vector<std::string> paths;
    for (const auto line : text::split(words, '\n')) {
        if (line.size() > 1 && line.front() == '\t') paths.emplace_back(line.substr(1));
    }
    return paths;
}

}  // namespace gdnctl::git
