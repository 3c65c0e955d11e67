// gdnctl lint-log
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"
#include "runlog/parse/log.h"

namespace gdnctl::commands::lint_log {

enum class Scope { last_entry, all };
enum class Format { text, json, github, sarif, automatic };

struct Options {
    std::optional<std::string> log_file;
    Scope scope = Scope::last_entry;
    bool allow_pending = false;
    bool allow_this_commit = false;
    bool allow_non_monotonic = false;
    Format format = Format::text;
    std::optional<std::string> output;
    bool strict = false;
    std::vector<std::string> rules;
    std::optional<std::string> rules_file;
    bool fix = false;
    bool fix_unsafe = false;
    bool diff = false;
    std::optional<std::string> repo;
    bool no_git = false;
    runlog::TemplateChoice log_template = runlog::TemplateChoice::automatic;
    std::optional<std::string> records;
    std::optional<std::string> since;
};

}  // namespace gdnctl::commands::lint_log
