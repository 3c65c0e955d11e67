// Where the entries of records are placed in a log.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

const char* name_of(Difference::Kind kind) {
    switch (kind) {
        case Difference::Kind::missing: return "missing";
        case Difference::Kind::stale: return "stale";
        case Difference::Kind::edited: return "edited";
        case Difference::Kind::orphan: return "orphan";
        case Difference::Kind::unmarked: return "unmarked";
        case Difference::Kind::imported: return "imported";
        case Difference::Kind::unclosed: return "unclosed";
    }
    return "unknown";
}

bool Placement::complete() const {
    return std::all_of(differences.begin(), differences.end(), [](const Difference& d) { return d.settled; });
}

std::string entry_digest(std::string_view entry_text) {
    const auto marker = entry_text.find("<!-- gdnctl:begin ");
    std::string_view own = entry_text.substr(0, marker);
    while (!own.empty() && std::string_view(" \t\r\n").find(own.back()) != std::string_view::npos) own.remove_suffix(1);
    return block_digest(own);
}

namespace {

std::string with_newlines(std::string_view text, std::string_view newline) {
    std::string out;
    for (const char c : text) {
        if (c == '\n') {
            out += newline;
        } else if (c != '\r') {
            out += c;
        }
    }
    return out;
}

struct Insertion {
    std::size_t offset;
    std::size_t length;
    std::string text;
};

class Placer {
public:
    Placer(const Document& document, std::span<const Json> current, std::span<const Json> all,
           const PlaceOptions& options)
        : m_document(document), m_current(current), m_options(options), m_blocks(find_blocks(document.text)) {
        // Every id of a chain of corrections maps to the current record.
        std::map<std::string, std::string> root;
        for (const Json& record : all) {
            const auto known = root.find(replaced_id(record));
            root.emplace(id_of(record), known == root.end() ? id_of(record) : known->second);
        }
        std::map<std::string, std::size_t> by_root;
        for (std::size_t i = 0; i < current.size(); ++i) {
            const auto known = root.find(id_of(current[i]));
            by_root[known == root.end() ? id_of(current[i]) : known->second] = i;
        }
        for (const auto& [id, first] : root) {
            if (const auto at = by_root.find(first); at != by_root.end()) m_record_of[id] = at->second;
        }
        m_placed.resize(current.size());
        m_claimed.resize(document.entries.size());
        if (document.kind == Template::experiment) m_experiments = parse_experiments(document);
    }

    Placement run() {
        for (const GeneratedBlock& block : m_blocks) place_block(block);
        for (std::size_t i = 0; i < m_document.entries.size(); ++i) {
            if (block_of(m_document.entries[i]) != nullptr) m_claimed[i] = true;
        }
        std::vector<std::size_t> missing;
        for (std::size_t i = 0; i < m_current.size(); ++i) {
            if (!m_placed[i] && !stands_by_hand(m_current[i])) missing.push_back(i);
        }
        std::stable_sort(missing.begin(), missing.end(), [&](std::size_t a, std::size_t b) {
            return iteration_of(m_current[a]).before(iteration_of(m_current[b]));
        });
        for (const std::size_t i : missing) insert(m_current[i]);
        return {apply(), std::move(m_differences)};
    }

private:
    std::string expected(const Json& record) const {
        return with_newlines(render_block(record, m_options.render), m_document.newline());
    }

    std::size_t offset(std::string_view part) const { return m_document.offset(part); }

    void differ(Difference::Kind kind, const Json* record, std::string id, std::string_view what, bool settled) {
        Difference difference;
        difference.kind = kind;
        difference.id = std::move(id);
        if (record != nullptr) difference.iteration = iteration_of(*record);
        const std::string name = record == nullptr ? fmt::format("block {}", difference.id)
                                 : is_experiment(*record)
                                     ? fmt::format("experiment \"{}\"", json::text(*record, "title"))
                                     : fmt::format("iteration {}", difference.iteration.text());
        difference.message = fmt::format("{}: {}", name, what);
        difference.settled = settled;
        m_differences.push_back(std::move(difference));
    }

    void place_block(const GeneratedBlock& block) {
        const std::string id(block.id);
        const auto known = m_record_of.find(id);
        const Json* record = known == m_record_of.end() ? nullptr : &m_current[known->second];
        if (!block.closed) {
            differ(Difference::Kind::unclosed, record, id,
                   fmt::format("the begin marker in line {} has no end", block.line), false);
            if (record != nullptr) m_placed[known->second] = true;
            return;
        }
        if (record == nullptr || m_placed[known->second]) {
            differ(Difference::Kind::orphan, record, id,
                   record == nullptr ? "there is no such record" : "its entry appears here a second time", false);
            return;
        }
        m_placed[known->second] = true;
        std::string wanted = expected(*record);
        wanted.resize(wanted.size() - m_document.newline().size());
        if (with_newlines(block.whole, "\n") == with_newlines(wanted, "\n")) return;
        const bool edited = !block.intact();
        const bool write = !edited || m_options.overwrite_edited;
        if (!edited && m_options.only_missing && id_of(*record) != m_options.rewrite_id) return;
        if (edited) {
            differ(Difference::Kind::edited, record, id, "its generated entry was changed by hand", write);
        } else {
            differ(Difference::Kind::stale, record, id, "its entry does not match the record", true);
        }
        if (write) m_edits.push_back({offset(block.whole), block.whole.size(), std::move(wanted)});
    }

    const GeneratedBlock* block_of(const EntryHead& entry) const {
        for (const GeneratedBlock& block : m_blocks) {
            if (block.whole.data() <= entry.heading.data() &&
                entry.heading.data() < block.whole.data() + block.whole.size()) {
                return &block;
            }
        }
        return nullptr;
    }

    // Whether an entry outside the markers belongs to this record: imported, or also written by hand.
    bool stands_by_hand(const Json& record) {
        if (is_experiment(record)) return experiment_stands_by_hand(record);
        const IterationNumber iteration = iteration_of(record);
        const std::string digest = json::text_at(record, "/raw/digest");
        std::optional<std::size_t> same_number;
        for (std::size_t i = 0; i < m_document.entries.size(); ++i) {
            const EntryHead& entry = m_document.entries[i];
            if (m_claimed[i] || entry.number != iteration.number || entry.suffix != iteration.suffix) continue;
            if (is_import(record) && entry_digest(entry.text) == digest) {
                m_claimed[i] = true;
                return true;
            }
            if (!same_number) same_number = i;
        }
        if (!same_number) return false;
        m_claimed[*same_number] = true;
        if (is_import(record)) {
            differ(Difference::Kind::imported, &record, id_of(record), "its entry changed after it was imported",
                   false);
        } else {
            differ(Difference::Kind::unmarked, &record, id_of(record),
                   fmt::format("line {} has a hand-written entry of the same number",
                               m_document.entries[*same_number].line),
                   false);
        }
        return true;
    }

    bool experiment_stands_by_hand(const Json& record) {
        const std::string heading = json::text_at(record, "/raw/heading");
        bool found = false;
        for (const ExperimentEntry& entry : m_experiments) {
            if (heading.empty() || entry.heading.text != heading) continue;
            if (entry_digest(entry.text) == json::text_at(record, "/raw/digest")) return true;
            found = true;
        }
        if (found) {
            differ(Difference::Kind::imported, &record, id_of(record), "its entry changed after it was imported",
                   false);
        }
        return found;
    }

    std::size_t start_of(const EntryHead& entry) const {
        const GeneratedBlock* block = block_of(entry);
        return block != nullptr ? offset(block->whole) : offset(entry.heading);
    }

    // Where a new entry belongs: after the last one with a lower number.
    std::size_t position_for(const Json& record) const {
        const auto& entries = m_document.entries;
        if (is_experiment(record) || entries.empty()) return end_of_section();
        const IterationNumber wanted = iteration_of(record);
        std::size_t next = 0;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (!wanted.before({entries[i].number, std::string(entries[i].suffix)})) next = i + 1;
        }
        if (next < entries.size()) return start_of(entries[next]);
        return offset(entries.back().text) + entries.back().text.size();
    }

    // End of `## Iterations`, or of the file.
    std::size_t end_of_section() const {
        LineCursor cursor(m_document.text);
        BlockTracker tracker;
        Line line;
        bool inside = false;
        while (cursor.next(line)) {
            if (tracker.inside(line.text)) continue;
            if (inside && !tracker.underlined().first.empty()) return offset(tracker.underlined().first);
            const bool section = line.text.starts_with("# ") || line.text.starts_with("## ");
            if (inside && section) return offset(line.text);
            if (text::trim(line.text) == "## Iterations") inside = true;
        }
        return m_document.bytes.size();
    }

    void insert(const Json& record) {
        if (m_document.unclosed) {  // the entry would be hidden, and reported as missing the next time
            differ(Difference::Kind::missing, &record, id_of(record),
                   fmt::format("its entry is missing, and the {} of line {} would hide it", m_document.unclosed->what,
                               m_document.unclosed->line.number),
                   false);
            return;
        }
        differ(Difference::Kind::missing, &record, id_of(record), "its entry is missing", true);
        m_edits.push_back({position_for(record), 0, expected(record)});
    }

    std::string apply() {
        std::stable_sort(m_edits.begin(), m_edits.end(),
                         [](const Insertion& a, const Insertion& b) { return a.offset < b.offset; });
        const std::string_view bytes = m_document.bytes;
        const std::string_view newline = m_document.newline();
        std::string text;
        std::size_t done = 0;
        for (const Insertion& edit : m_edits) {
            text += bytes.substr(done, edit.offset - done);
            done = edit.offset + edit.length;
            if (edit.length == 0) pad(text, newline);
            text += edit.text;
            if (edit.length == 0 && done < bytes.size()) text += newline;
        }
        text += bytes.substr(done);
        return text;
    }

    // A blank line before an inserted entry.
    static void pad(std::string& text, std::string_view newline) {
        if (text.empty()) return;
        if (!text.ends_with(newline)) text += newline;
        const std::string_view before = std::string_view(text).substr(0, text.size() - newline.size());
        if (!before.empty() && !before.ends_with(newline)) text += newline;
    }

    const Document& m_document;
    std::span<const Json> m_current;
    const PlaceOptions& m_options;
    std::vector<GeneratedBlock> m_blocks;
    std::vector<ExperimentEntry> m_experiments;
    std::map<std::string, std::size_t> m_record_of;  // any id of a chain -> index into m_current
    std::vector<bool> m_placed;                      // by record
    std::vector<bool> m_claimed;                     // by entry
    std::vector<Insertion> m_edits;
    std::vector<Difference> m_differences;
};

}  // namespace

Result<Placement> place_records(std::string_view log, std::span<const Json> current, std::span<const Json> all,
                                const PlaceOptions& options) {
    GDNCTL_TRY_ASSIGN(const auto document, parse_document(log));
    return Placer(document, current, all, options).run();
}

namespace {

constexpr std::string_view k_label = "- Commit:";

// The last commit bullet of an entry, outside fenced code.
std::optional<Line> last_commit_line(const EntryHead& entry) {
    LineCursor cursor(entry.text, entry.line);
    BlockTracker tracker;
    Line line;
    std::optional<Line> last;
    while (cursor.next(line)) {
        if (!tracker.inside(line.text) && text::trim(line.text).starts_with(k_label)) last = line;
    }
    return last;
}

}  // namespace

Result<Stamp> stamp_last_entry(std::string_view log, std::string_view sha) {
    GDNCTL_TRY_ASSIGN(const auto document, parse_document(log));
    Stamp stamp;
    if (document.entries.empty()) {
        stamp.reason = "the log has no entry";
        return stamp;
    }
    const EntryHead& entry = document.entries.back();
    const auto line = last_commit_line(entry);
    if (!line) {
        stamp.reason = fmt::format("the last entry (line {}) has no `- Commit:`", entry.line);
        return stamp;
    }
    const std::string_view trimmed = text::trim(line->text);
    const std::string_view value = text::trim(trimmed.substr(k_label.size()));
    if (value != "this commit" && value != "(pending)") {
        stamp.reason = fmt::format("line {} already says `{}`", line->number, trimmed);
        return stamp;
    }
    for (const GeneratedBlock& block : find_blocks(document.text)) {
        const bool inside =
            line->text.data() >= block.whole.data() && line->text.data() < block.whole.data() + block.whole.size();
        if (inside) stamp.record_id = block.id;
    }
    const std::size_t begin = document.offset(line->text);
    const std::string_view indent = line->text.substr(0, line->text.find('-'));
    stamp.text =
        fmt::format("{}{}{} {}{}", log.substr(0, begin), indent, k_label, sha, log.substr(begin + line->text.size()));
    if (!document.final_newline) stamp.text += document.newline();
    stamp.line = line->number;
    stamp.stamped = true;
    return stamp;
}

}  // namespace gdnctl::runlog
