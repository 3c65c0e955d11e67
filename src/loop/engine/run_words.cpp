#include "loop/engine/run_words.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/redact.h"
#include "loop/engine/chain.h"

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
    std::string run, last;
    std::size_t at = 0;
    const auto use = [&](const Json& record, std::size_t line) -> Status {
        if (line == 1) run = json::text(record, "run");
        if (std::string options = json::text(record, k_word); !options.empty()) {
            last = std::move(options);
            at = line;
        }
        return {};
    };
    GDNCTL_TRY_ASSIGN(const std::string last_line, read_chain_file(journal, use));
    if (last_line.empty()) GDNCTL_TRY(check_never_begun(journal));
    if (last.empty()) return std::optional<RunWords>();
    const Json json = Json::parse(last, nullptr, false);
    try {
        RunWords words = read_words(json);
        words.run = std::move(run);
        return std::optional(std::move(words));
    } catch (const Json::exception&) {
        return fail(ErrorKind::config, fmt::format("{}: the options in record {} cannot be read", journal.string(), at),
                    "use the gdnctl that wrote it, or start a new run without --resume");
    }
}

}  // namespace gdnctl::loop
