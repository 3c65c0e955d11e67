#include "services/git/setup_config.h"

#include <map>
#include <set>

#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::git {

namespace fs = std::filesystem;

namespace {

using Values = std::map<std::string, std::vector<std::string>>;

Values values_in(std::string_view list) {
    Values values;
    for (const auto item : text::split(list, '\0')) {
        if (item.empty()) continue;
        const auto end = item.find('\n');  // a key without '=' has no value
        values[std::string(item.substr(0, end))].emplace_back(end == std::string_view::npos ? "true"
                                                                                            : item.substr(end + 1));
    }
    return values;
}

// A branch that newly follows a remote of before, as after `git push -u` or `git checkout -b` meanwhile.
bool newly_follows(const std::string& key, const Values& before, const Values& now) {
    if (!key.starts_with("branch.") || before.contains(key)) return false;
    const std::string remote_key = key.substr(0, key.rfind('.')) + ".remote";
    if (before.contains(remote_key) || (key != remote_key && !key.ends_with(".merge"))) return false;
    const auto remote = now.find(remote_key);
    if (remote == now.end() || remote->second.size() != 1) return false;
    const std::string& name = remote->second.front();
    return name == "." || before.contains("remote." + name + ".url");
}

std::set<std::string> differing_keys(const Values& one, const Values& other) {
    std::set<std::string> keys;
    for (const auto& [key, values] : one) {
        const auto at = other.find(key);
        if (at == other.end() || at->second != values) keys.insert(key);
    }
    for (const auto& [key, values] : other) {
        if (!one.contains(key)) keys.insert(key);
    }
    return keys;
}

// Without the repository, whose configuration may be broken.
Result<ProcessResult> ask(const Calls& calls, const Words& words) {
    CallOptions elsewhere;
    elsewhere.env = {{"GIT_DIR", "/dev/null"},           {"GIT_COMMON_DIR", std::nullopt},
                     {"GIT_WORK_TREE", std::nullopt},    {"GIT_CONFIG_COUNT", std::nullopt},
                     {"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
    return calls.run(words, elsewhere);
}

// `copy` has the content afterwards. nullopt: git cannot read it.
Result<std::optional<Values>> values_of(const Calls& calls, const std::string& bytes, const fs::path& copy) {
    GDNCTL_TRY(atomic_replace(copy, bytes, 0600));
    GDNCTL_TRY_ASSIGN(const ProcessResult list, ask(calls, {"config", "--file", copy.string(), "--list", "-z"}));
    return list.ok() ? std::optional(values_in(list.out)) : std::nullopt;
}

}  // namespace

Result<std::optional<ConfigChoice>> choose_config(const Calls& calls, const std::optional<std::string>& before,
                                                  const std::string& found, const fs::path& copy) {
    GDNCTL_TRY_ASSIGN(const auto now, values_of(calls, found, copy));
    GDNCTL_TRY_ASSIGN(const auto then, values_of(calls, before.value_or(""), copy));
    std::error_code ignored;
    std::optional<ConfigChoice> choice;
    if (now && then) {
        choice.emplace();
        for (const auto& key : differing_keys(*then, *now)) {
            if (!newly_follows(key, *then, *now)) {
                choice->changed.push_back(key);
                continue;
            }
            for (const auto& value : now->at(key)) {
                GDNCTL_TRY(ask(calls, {"config", "--file", copy.string(), "--add", key, value}));
            }
        }
        GDNCTL_TRY_ASSIGN(choice->bytes, read_file(copy));
    }
    fs::remove(copy, ignored);
    return choice;
}

}  // namespace gdnctl::git
