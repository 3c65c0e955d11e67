#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "oracle/flashinfer/fields.h"

namespace gdnctl::oracle::flashinfer {

namespace {

bool is_c(std::string_view path) { return path.ends_with(".c") || path.ends_with(".h"); }

// Sources are written into a folder of ours under these names.
Status check_path(const std::string& path, const Place& at) {
    const std::filesystem::path p(path);
    const bool climbs = std::any_of(p.begin(), p.end(), [](const auto& part) { return part == ".."; });
    if (p.is_absolute() || climbs || !p.has_filename() || path.find('\0') != std::string::npos) {
        return at.bad(fmt::format("path '{}' is not a file below the solution's folder", path));
    }
    return {};
}

Status parse_entry(const Json& spec, const Place& at, Solution& solution) {
    GDNCTL_TRY_ASSIGN(const std::string entry, at.text(spec, "entry_point"));
    const std::size_t colons = entry.find("::");
    const bool once = colons != std::string::npos && entry.find("::", colons + 2) == std::string::npos;
    if (!once || colons == 0 || colons + 2 == entry.size()) {
        return at.bad(fmt::format("entry_point '{}' is not of the form FILE::FUNCTION", entry));
    }
    solution.entry_file = entry.substr(0, colons);
    solution.entry_function = entry.substr(colons + 2);
    return {};
}

Status parse_sources(const Json& object, const Place& at, Solution& solution) {
    GDNCTL_TRY_ASSIGN(const Json* sources, at.array(object, "sources"));
    std::set<std::string> paths;
    for (const Json& value : *sources) {
        const Place here = at.in(fmt::format("source {}", solution.sources.size() + 1));
        GDNCTL_TRY(here.must_be_object(value));
        SourceFile source;
        GDNCTL_TRY_ASSIGN(source.path, here.text(value, "path"));
        GDNCTL_TRY_ASSIGN(source.content, here.text(value, "content"));
        GDNCTL_TRY(check_path(source.path, here));
        if (!paths.insert(source.path).second) return here.bad(fmt::format("'{}' appears twice", source.path));
        solution.sources.push_back(std::move(source));
    }
    if (solution.sources.empty()) return at.bad("'sources' is empty");
    if (!paths.contains(solution.entry_file)) {
        return at.bad(fmt::format("the entry point's file '{}' is not among the sources", solution.entry_file));
    }
    return {};
}

}  // namespace

Result<Solution> parse_solution(std::string_view text, std::string_view what) {
    GDNCTL_TRY_ASSIGN(const Json object, parse_json(text, what));
    const Place at(what);
    GDNCTL_TRY(at.must_be_object(object));
    Solution s;
    GDNCTL_TRY_ASSIGN(s.name, at.text(object, "name"));
    GDNCTL_TRY_ASSIGN(s.definition, at.text(object, "definition"));
    GDNCTL_TRY_ASSIGN(s.author, at.text(object, "author"));
    GDNCTL_TRY_ASSIGN(const Json* spec, at.object(object, "spec"));
    const Place in_spec = at.in("spec");
    GDNCTL_TRY_ASSIGN(s.language, in_spec.text(*spec, "language"));
    GDNCTL_TRY_ASSIGN(const Json* hardware, in_spec.array(*spec, "target_hardware"));
    if (hardware->empty()) return in_spec.bad("'target_hardware' is empty");
    GDNCTL_TRY_ASSIGN(s.binding, in_spec.text_or(*spec, "binding", ""));
    GDNCTL_TRY_ASSIGN(s.destination_passing, in_spec.flag_or(*spec, "destination_passing_style", true));
    GDNCTL_TRY(parse_entry(*spec, in_spec, s));
    GDNCTL_TRY(parse_sources(object, at, s));
    return s;
}

Status check_runnable(const Solution& s) {
    const auto refuse = [&](const std::string& why) {
        return fail(ErrorKind::bad_input, fmt::format("solution '{}' cannot be run here: {}", s.name, why),
                    "solutions in C can: docs/flashinfer-bench.md");
    };
    if (s.language != "c" && s.language != "cpp") return refuse(fmt::format("it is written in {}", s.language));
    for (const SourceFile& source : s.sources) {
        if (!is_c(source.path)) return refuse(fmt::format("its source {} is not C", source.path));
    }
    if (!s.entry_file.ends_with(".c")) return refuse(fmt::format("its entry point is in {}", s.entry_file));
    if (!s.binding.empty() && s.binding != "tvm-ffi") return refuse(fmt::format("its binding is {}", s.binding));
    if (!s.destination_passing) return refuse("it returns its outputs (destination_passing_style is false)");
    return {};
}

}  // namespace gdnctl::oracle::flashinfer
