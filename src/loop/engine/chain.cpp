#include "loop/engine/chain.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/log.h"
#include "platform/fs.h"
#include "platform/hash.h"

namespace gdnctl::loop {

namespace {

constexpr int k_version = 1;

Result<std::string> hash_of(std::string_view line) {
    if (line.empty()) return std::string(64, '0');
    return hash_hex(HashKind::sha256, line);
}

Status check_link(const Json& json, std::string_view previous, std::string_view name, std::size_t line) {
    // It is unknown how a newer version separates lines.
    if (json::integer(json, "v").value_or(-1) != k_version) return unknown_record(name, line, "its version");
    const auto seq = json::integer(json, "seq").value_or(-1);
    if (seq != static_cast<std::int64_t>(line)) {
        return damaged_journal(name, line, fmt::format("number {} instead of {}", seq, line));
    }
    GDNCTL_TRY_ASSIGN(const std::string wanted, hash_of(previous));
    const auto prev = json.find("prev");
    if (prev == json.end() || *prev != wanted) {
        return damaged_journal(name, line, "the line before it was changed");
    }
    return {};
}

}  // namespace

bool is_envelope(std::string_view key) {
    return key == "v" || key == "seq" || key == "ts" || key == "type" || key == "prev";
}

tl::unexpected<Error> unknown_record(std::string_view name, std::size_t line, std::string_view what) {
    return fail(ErrorKind::config, fmt::format("{}:{}: this gdnctl does not know {}", name, line, what),
                "it was written by a newer gdnctl: use that one, or another --log-dir");
}

tl::unexpected<Error> damaged_journal(std::string_view name, std::size_t line, std::string_view why) {
    return fail(ErrorKind::conflict, fmt::format("{}:{}: the journal is damaged: {}", name, line, why),
                "restore the file, or start a new run with another --log-dir");
}

namespace {

// Reads the lines of a journal one after the other.
class Chain {
public:
    Chain(std::string_view name, const UseRecord& use) : m_name(name), m_use(use) {}

    // `whole`: it ends with a newline; a line without one may be torn.
    Status take(std::string_view line, bool whole) {
        if (line.empty()) return {};
        const Json json = Json::parse(line, nullptr, false);
        if (!whole && !json.is_object()) return {};
        ++m_number;
        if (!json.is_object()) return damaged_journal(m_name, m_number, "not a JSON object");
        GDNCTL_TRY(check_link(json, m_previous, m_name, m_number));
        m_previous = line;
        if (m_problem) return {};
        if (Status used = m_use(json, m_number); !used) m_problem = std::move(used.error());
        return {};
    }

    Result<std::string> end() {
        if (m_problem) return tl::unexpected(std::move(*m_problem));
        return std::move(m_previous);
    }

private:
    std::string_view m_name;
    const UseRecord& m_use;
    std::string m_previous;
    std::optional<Error> m_problem;
    std::size_t m_number = 0;
};

}  // namespace

Result<std::string> read_chain(std::string_view text, std::string_view name, const UseRecord& use) {
    Chain chain(name, use);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        GDNCTL_TRY(chain.take(text.substr(at, end - at), end < text.size()));
        at = end + 1;
    }
    return chain.end();
}

Result<std::string> read_chain_file(const std::filesystem::path& path, const UseRecord& use) {
    const std::string name = path.string();
    Chain chain(name, use);
    std::ifstream file(path, std::ios::binary);
    std::error_code problem;
    if (!file && std::filesystem::exists(path, problem)) {
        return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    }
    for (std::string line; std::getline(file, line);) GDNCTL_TRY(chain.take(line, !file.eof()));
    if (file.bad()) return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    return chain.end();
}

Status check_never_begun(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::error_code problem;
    const bool lost =
        file && (file.peek() == '\0' || std::filesystem::exists(path.parent_path() / "state.json", problem));
    if (!lost) return {};
    return damaged_journal(path.string(), 1, "it was emptied");
}

Result<std::string> chain_line(std::uint64_t seq, std::string_view time, std::string_view type, const Json& facts,
                               std::string_view previous_line) {
    GDNCTL_TRY_ASSIGN(const std::string prev, hash_of(previous_line));
    Json json = {{"v", k_version}, {"seq", seq}, {"ts", time}, {"type", type}, {"prev", prev}};
    for (const auto& [key, value] : facts.items()) {
        if (!is_envelope(key)) json[key] = value;
    }
    return gdnctl::to_text(json);
}

Result<ChainJournal> ChainJournal::open(const std::filesystem::path& path, const UseRecord& use) {
    std::uint64_t records = 0;
    GDNCTL_TRY_ASSIGN(std::string last, read_chain_file(path, [&](const Json& record, std::size_t line) {
                          records = line;
                          return use(record, line);
                      }));
    if (last.empty()) GDNCTL_TRY(check_never_begun(path));
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(path));
    ChainJournal opened(path, std::move(journal));
    opened.m_last = std::move(last);
    opened.m_records = records;
    return opened;
}

Status ChainJournal::write_again(std::string_view text) {
    std::error_code problem;
    if (std::filesystem::exists(m_path, problem)) {
        return fail(ErrorKind::conflict, fmt::format("{} was replaced while in use", m_path.string()));
    }
    GDNCTL_TRY(make_private_directory(m_path.parent_path()));
    GDNCTL_TRY(atomic_replace(m_path, text, 0600));
    m_journal.reset();  // its lock would block us
    GDNCTL_TRY_ASSIGN(m_journal, Journal::open(m_path));
    log::warning("{} was removed while in use: rewrote it", m_path.string());
    return {};
}

Status ChainJournal::append(std::string_view type, const Json& facts, std::string_view time) {
    GDNCTL_TRY_ASSIGN(std::string line, chain_line(m_records + 1, time, type, facts, m_last));
    if (!m_journal) {
        return fail(ErrorKind::local_io,
                    fmt::format("cannot append to {}: it could not be rewritten", m_path.string()));
    }
    GDNCTL_TRY(m_journal->append(line));
    m_last = std::move(line);
    ++m_records;
    return {};
}

}  // namespace gdnctl::loop
