#include "loop/evolve/contest.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_no_op = "No-op tuning step";

std::optional<int> small_number(std::string_view digits) {
    int value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = problem == std::errc{} && end == digits.data() + digits.size() && !digits.empty();
    return whole && digits.front() != '-' ? std::optional(value) : std::nullopt;
}

std::string text_of(const fs::path& file) {
    const auto text = read_file_if_exists(file);
    return text && *text ? **text : std::string();
}

std::tuple<bool, bool, double> score_of(const ContestStep& step) {
    if (!step.metrics) return {false, false, 0};
    const bool correct = step.metrics->compiled && step.metrics->correct;
    return {step.metrics->compiled, correct, correct ? step.metrics->speedup : 0};
}

// Ids are numbers of steps or names.
void read_context(const fs::path& file, std::vector<std::string>& stems) {
    const Json log = Json::parse(text_of(file), nullptr, false);
    if (!log.is_object() || !log.contains("context") || !log["context"].is_object()) return;
    for (const char* list : {"recent", "elite"}) {
        const auto ids = log["context"].find(list);
        if (ids == log["context"].end() || !ids->is_array()) continue;
        for (const auto& id : *ids) {
            if (id.is_number_integer()) stems.push_back(fmt::format("proposal_{}", id.get<std::int64_t>()));
            if (id.is_string()) stems.push_back(id.get<std::string>());
        }
    }
}

}  // namespace

std::optional<ContestStep> contest_name(std::string_view file_name) {
    if (!file_name.ends_with(".py")) return std::nullopt;
    ContestStep step;
    step.stem = std::string(file_name.substr(0, file_name.size() - 3));
    const auto parts = text::split(step.stem, '_');
    if (parts.size() < 2 || parts.size() > 3 || (parts[0] != "proposal" && parts[0] != "tune")) return std::nullopt;
    if (parts.size() == 2 && parts[0] != "proposal") return std::nullopt;
    const auto large = small_number(parts[1]);
    const auto small = parts.size() == 3 ? small_number(parts[2]) : std::optional(0);
    if (!large || !small) return std::nullopt;
    step.large = *large;
    step.small = *small;
    return step;
}

Result<ContestMetrics> parse_contest_metrics(std::string_view json) {
    GDNCTL_TRY_ASSIGN(const Json parsed, parse_json(json, "metrics"));
    if (!parsed.is_object()) return fail(ErrorKind::bad_input, "metrics: not an object");
    ContestMetrics out;
    out.compiled = json::boolean(parsed, "compiled").value_or(false);
    out.correct = json::boolean(parsed, "correct").value_or(false);
    out.speedup = json::number(parsed, "speedup").value_or(0);
    out.error = json::text(parsed, "error");
    return out;
}

Result<std::vector<ContestStep>> read_contest(const fs::path& folder) {
    std::error_code problem;
    if (!fs::is_directory(folder, problem)) {
        return fail(ErrorKind::usage, fmt::format("--from: no such directory: {}", folder.string()));
    }
    std::vector<ContestStep> steps;
    for (const auto& entry : fs::directory_iterator(folder, problem)) {
        auto step = contest_name(entry.path().filename().string());
        if (!step) continue;
        GDNCTL_TRY_ASSIGN(step->kernel, read_file(entry.path()));
        const auto beside = [&](std::string_view ending) { return folder / (step->stem + std::string(ending)); };
        if (auto metrics = parse_contest_metrics(text_of(beside("_metrics.json")))) step->metrics = std::move(*metrics);
        step->prompt = text_of(beside("_prompt.txt"));
        if (step->prompt.empty()) step->prompt = text_of(beside(".txt"));
        step->response = text_of(beside("_response.txt"));
        step->trace = text_of(beside("_trace.json"));
        read_context(beside("_log.json"), step->context);
        steps.push_back(std::move(*step));
    }
    if (steps.empty()) {
        return fail(ErrorKind::usage, fmt::format("--from: {} has no proposal_*.py", folder.string()),
                    "name the folder of one task, such as outputs/RUN/gdn_decode");
    }
    // By their numbers: 10 comes after 9.
    std::sort(steps.begin(), steps.end(), [](const ContestStep& a, const ContestStep& b) {
        return std::tie(a.large, a.small, a.stem) < std::tie(b.large, b.small, b.stem);
    });
    return steps;
}

std::optional<std::size_t> contest_parent(const std::vector<ContestStep>& steps, std::size_t at) {
    const ContestStep& step = steps[at];
    if (step.small == 0 || at == 0) return std::nullopt;
    // The step before, or the evolve proposal that it refines.
    const ContestStep& before = steps[at - 1];
    return before.large == step.large ? std::optional(at - 1) : std::nullopt;
}

std::string_view contest_status(const std::vector<ContestStep>& steps, std::size_t at) {
    const ContestStep& step = steps[at];
    if (!step.metrics) return "unevaluated";
    const auto parent = contest_parent(steps, at);
    if (parent && steps[*parent].kernel == step.kernel && step.metrics->error.starts_with(k_no_op)) return "noop";
    if (!step.metrics->compiled) return "compile_failed";
    return step.metrics->correct ? "ok" : "incorrect";
}

std::size_t contest_best(const std::vector<ContestStep>& steps) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < steps.size(); ++i) {
        if (score_of(steps[i]) > score_of(steps[best])) best = i;
    }
    return best;
}

Status write_contest_step(const fs::path& folder, int number, const ContestStep& step, std::string_view task) {
    const std::string stem = number == 1 ? std::string("proposal_0_1") : fmt::format("tune_0_{}", number);
    GDNCTL_TRY(atomic_replace(folder / (stem + ".py"), step.kernel));
    const ContestMetrics metrics = step.metrics.value_or(ContestMetrics{});
    const Json json = {{"compiled", metrics.compiled},
                       {"correct", metrics.correct},
                       {"speedup", metrics.speedup},
                       {"latency_ms", nullptr},
                       {"task_id", task},
                       {"error", metrics.error.empty() ? Json() : Json(metrics.error)},
                       {"stats", nullptr}};
    GDNCTL_TRY(atomic_replace(folder / (stem + "_metrics.json"), gdnctl::to_text(json, 2) + "\n"));
    GDNCTL_TRY(atomic_replace(folder / (stem + "_prompt.txt"), step.prompt));
    GDNCTL_TRY(atomic_replace(folder / (stem + "_response.txt"), step.response));
    if (!step.trace.empty()) GDNCTL_TRY(atomic_replace(folder / (stem + "_trace.json"), step.trace));
    return {};
}

}  // namespace gdnctl::loop::evolve
