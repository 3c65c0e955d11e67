#include "cli/option_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/home_folder.h"

namespace gdnctl::cli {

namespace {

// The word that stands for a value on the command line; nullopt: none does.
std::optional<std::string> word_of(const ConfigValue& value, bool is_flag) {
    if (const bool* truth = std::get_if<bool>(&value.value)) {
        if (!is_flag) return std::nullopt;
        return *truth ? "true" : "false";
    }
    if (is_flag) return std::nullopt;
    if (const auto* number = std::get_if<std::int64_t>(&value.value)) return std::to_string(*number);
    if (const auto* number = std::get_if<double>(&value.value)) return fmt::format("{}", *number);
    if (const std::string* text = value.as_string()) return *text;
    return std::nullopt;
}

Result<std::vector<std::string>> words_of(const OptionDef& option, const ConfigValue& value, std::string_view path) {
    const bool is_flag = option.kind == OptionDef::Kind::flag;
    std::vector<std::string> words;
    const ConfigArray* items = option.kind == OptionDef::Kind::list ? value.as_array() : nullptr;
    for (const ConfigValue& item : items != nullptr ? std::span(*items) : std::span(&value, 1)) {
        auto word = word_of(item, is_flag);
        if (!word) {
            const std::string_view wanted = is_flag                                ? "true or false"
                                            : option.kind == OptionDef::Kind::list ? "a string or a list of strings"
                                                                                   : "a string or a number";
            return fail(ErrorKind::config, fmt::format("{}: '{}' must be {}", item.origin.text(), path, wanted));
        }
        words.push_back(std::move(*word));
    }
    return words;
}

tl::unexpected<Error> unknown_key(const Args& command, std::string_view name, const std::string& key,
                                  const ConfigValue& value) {
    std::vector<std::string> known;
    for (const OptionDef& option : command.options()) known.emplace_back(option_key(option));
    const auto meant = text::nearest(key, known);
    return fail(ErrorKind::config, fmt::format("{}: unknown key '{}.{}'", value.origin.text(), name, key),
                meant ? fmt::format("did you mean `{}`?", *meant)
                      : fmt::format("`gdnctl {} --help` lists the options; a key is an option without `--`", name));
}

}  // namespace

std::string with_home(const OptionDef& option, std::string_view word, std::string_view home) {
    const bool is_kernel = option.complete == Complete::kernel || option.complete == Complete::timed_kernel;
    const bool is_path = option.complete == Complete::file || option.complete == Complete::directory;
    if (!is_path && !is_kernel) return std::string(word);
    const std::size_t colon = is_kernel ? word.find(':') : std::string_view::npos;
    const std::size_t start = colon == std::string_view::npos ? 0 : colon + 1;
    return std::string(word.substr(0, start)) + expand_home(word.substr(start), home);
}

std::string_view option_key(const OptionDef& option) {
    const std::string_view name = option.canonical();
    return name.substr(std::min(name.size(), name.find_first_not_of('-')));
}

Status assign_option_table(const Args& command, const ConfigTable& table, std::string_view name, std::string_view home,
                           const std::function<bool(const OptionDef&)>& is_given) {
    for (const auto& [key, value] : table) {
        const auto& options = command.options();
        const auto option = std::find_if(options.begin(), options.end(),
                                         [&wanted = key](const OptionDef& one) { return option_key(one) == wanted; });
        if (option == options.end()) return unknown_key(command, name, key, value);
        const std::string path = fmt::format("{}.{}", name, key);
        GDNCTL_TRY_ASSIGN(const auto words, words_of(*option, value, path));
        for (const std::string& given : words) {
            const std::string word = with_home(*option, given, home);
            command.add_given({option->canonical(), word, value.origin.text(), false});
            if (is_given(*option)) continue;
            if (const Status done = option->assign(word); !done) {
                return fail(ErrorKind::config,
                            fmt::format("{}: invalid value '{}' for '{}': {}", value.origin.text(), word, path,
                                        done.error().message),
                            done.error().hint);
            }
        }
    }
    return {};
}

}  // namespace gdnctl::cli
