#include "loop/engine/run_words.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/redact.h"
#include "loop/engine/journal.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace {

constexpr const char* k_word = "options";  // key in the records

Json json_of_words(const OptionWords& words, std::set<std::string>& masked) {
    Json json = Json::object();
    for (const auto& [option, values] : words) {
        Json& list = json[option] = Json::array();
        for (const std::string& value : values) {
            const std::string safe = redact(value);
            if (safe != value) masked.insert(option);
            list.push_back(safe);
        }
    }
    return json;
}

OptionWords words_of(const Json& json) {
    OptionWords words;
    for (const auto& [option, values] : json.items()) words[option] = values.get<std::vector<std::string>>();
    return words;
}

RunWords read_words(const Json& json) {
    RunWords words;
    words.cwd = json.at("cwd").get<std::string>();
    words.config_file = json.at("config").get<std::string>();
    words.target = json.at("target").get<std::string>();
    words.given = words_of(json.at("given"));
    words.configured = words_of(json.at("configured"));
    words.masked = json.at("masked").get<std::set<std::string>>();
    return words;
}

}  // namespace

std::string to_text(RunWords words) {
    Json json = {{"cwd", words.cwd}, {"config", words.config_file}, {"target", words.target}};
    json["given"] = json_of_words(words.given, words.masked);
    json["configured"] = json_of_words(words.configured, words.masked);
    json["masked"] = words.masked;
    return gdnctl::to_text(json);
}

Result<std::optional<RunWords>> words_of_run(const std::filesystem::path& journal) {
    std::optional<RunWords> none;
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(journal, std::size_t{256} << 20));
    if (!text) return none;
    GDNCTL_TRY_ASSIGN(const auto records, parse_records(*text, journal.string()));
    const Record* last = nullptr;
    for (const Record& record : records) {
        if (!record.word(k_word).empty()) last = &record;
    }
    if (last == nullptr) return none;
    const Json json = Json::parse(last->word(k_word), nullptr, false);
    try {
        RunWords words = read_words(json);
        words.run = records.front().word("run");
        return std::optional(std::move(words));
    } catch (const Json::exception&) {
        return fail(ErrorKind::config,
                    fmt::format("{}: the options in record {} cannot be read", journal.string(), last->seq),
                    "use the gdnctl that wrote it, or start a new run without --resume");
    }
}

}  // namespace gdnctl::loop
