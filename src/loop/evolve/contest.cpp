#include "loop/evolve/contest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "core/json.h"
#include "core/line_regex.h"
#include "core/text.h"
#include "loop/engine/log_dir.h"
#include "loop/evolve/driver.h"
#include "loop/evolve/run.h"
#include "loop/evolve/verify.h"
#include "platform/clock.h"
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

namespace fs = std::filesystem;

namespace {

Result<std::string> only_kernel_file(const Store& store, const std::string& base) {
    GDNCTL_TRY_ASSIGN(const auto files, store.mutable_text(base));
    if (files.size() == 1) return files.begin()->first;
    return fail(ErrorKind::usage, fmt::format("the target's `kernel` names {} files", files.size()),
                "say which one is meant: --map 'REGEX=PATH'");
}

// The file that these attempts are about: the layout has one.
Result<std::string> changed_kernel_file(const Store& store, const State& state, const std::vector<int>& numbers) {
    GDNCTL_TRY_ASSIGN(const auto files, store.mutable_text(state.base));
    std::set<std::string> changed;
    for (const int number : numbers) {
        GDNCTL_TRY_ASSIGN(const auto changes, store.repository().diff(state.base, state.at(number).commit));
        for (const GitFileChange& change : changes) changed.insert(change.path);
    }
    if (changed.size() == 1) return *changed.begin();
    if (files.size() == 1) return files.begin()->first;
    if (numbers.empty()) return std::string();
    const std::vector<std::string> names(changed.begin(), changed.end());
    return fail(ErrorKind::usage,
                fmt::format("attempt {} and its ancestors change {} files, but this layout has one: {}",
                            numbers.front(), names.size(), text::join(names, ", ")),
                "export an attempt that changes one file; `gdnctl evolve diff base ID` shows what an attempt changes");
}

class Importer {
public:
    Importer(const std::vector<ContestStep>& steps, const GitCheckout& repository, const Store& store,
             EvolveJournal& journal, const EvolvePlan& plan, std::string place, const LineRegex* names, Clock& clock)
        : m_steps(steps),
          m_repository(repository),
          m_store(store),
          m_journal(journal),
          m_plan(plan),
          m_place(std::move(place)),
          m_names(names),
          m_clock(clock) {}

    Status add(std::size_t at) {
        const ContestStep& step = m_steps[at];
        if (m_names != nullptr && !m_names->matches(step.stem + ".py")) {
            return fail(ErrorKind::usage, fmt::format("--map does not match {}.py", step.stem));
        }
        const auto parent = contest_parent(m_steps, at);
        const int parent_number = parent ? static_cast<int>(*parent) + 1 : 0;
        const std::string& parent_commit = m_journal.state().at(parent_number).commit;
        const std::string_view status = contest_status(m_steps, at);
        const int number = static_cast<int>(at) + 1;
        const std::string message =
            fmt::format("Imported {}\n\nGdnctl-Run: {}\nGdnctl-Attempt: {}\n", step.stem, m_plan.run, number);
        GDNCTL_TRY_ASSIGN(const std::string commit,
                          m_repository.commit_files(parent_commit, {{m_place, step.kernel}}, message));
        GDNCTL_TRY_ASSIGN(const std::string key, m_store.mutable_key(commit));
        GDNCTL_TRY_ASSIGN(const std::string patch, m_repository.patch_id(parent_commit, commit));
        GDNCTL_TRY(m_store.pin(fmt::format("cand/{}", number), commit));
        GDNCTL_TRY(write_files(number, step, parent_commit, commit));
        Json inspirations = Json::array();
        for (const auto& stem : step.context) {
            const auto found =
                std::find_if(m_steps.begin(), m_steps.end(), [&](const ContestStep& s) { return s.stem == stem; });
            if (found == m_steps.end()) continue;
            const int other = static_cast<int>(found - m_steps.begin()) + 1;
            if (other < number)
                inspirations.push_back({{"attempt", other}, {"commit", m_journal.state().at(other).commit}});
        }
        return m_journal.add("import",
                             {{"attempt", number},
                              {"origin", step.stem + ".py"},
                              {"status", status},
                              {"speedup", step.metrics ? step.metrics->speedup : 0.0},
                              {"error", step.metrics ? step.metrics->error : std::string()},
                              {"commit", commit},
                              {"mutable_key", key},
                              {"patch_id", patch},
                              {"parents", {{{"attempt", parent_number}, {"commit", parent_commit}}}},
                              {"inspirations", inspirations}},
                             m_clock.wall());
    }

private:
    Status write_files(int number, const ContestStep& step, const std::string& parent,
                       const std::string& commit) const {
        const fs::path folder = m_plan.log_dir / attempt_folder(number);
        GDNCTL_TRY(make_private_directory(folder));
        GDNCTL_TRY(atomic_replace(folder / "prompt.md", step.prompt, 0600));
        GDNCTL_TRY(atomic_replace(folder / "response.txt", step.response, 0600));
        if (!step.trace.empty()) GDNCTL_TRY(atomic_replace(folder / "trace.json", step.trace, 0600));
        return m_store.write_patch(parent, commit, folder / "diff.patch");
    }
    const std::vector<ContestStep>& m_steps;
    const GitCheckout& m_repository;
    const Store& m_store;
    EvolveJournal& m_journal;
    const EvolvePlan& m_plan;
    std::string m_place;
    const LineRegex* m_names;
    Clock& m_clock;
};

}  // namespace

Result<ImportReport> import_contest(const fs::path& from, const std::optional<std::string>& map,
                                    const EvolveRequest& request, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto steps, read_contest(from));
    GDNCTL_TRY_ASSIGN(const GitCheckout repository, GitCheckout::open(context.cwd, context.process, context.clock));
    GDNCTL_TRY_ASSIGN(EvolvePlan plan, make_plan(request, repository, context.cwd, context));
    GDNCTL_TRY_ASSIGN(plan.base, base_commit("", repository));
    GDNCTL_TRY(complete_config(plan, request, request.target, repository));
    const Store store(repository, plan.run, path_rules(request.target), plan.worktrees, context.process, context.clock);
    std::string place;
    std::optional<LineRegex> names;
    if (map) {
        const auto equals = map->rfind('=');
        if (equals == std::string::npos) return fail(ErrorKind::usage, "--map: expected REGEX=PATH: " + *map);
        GDNCTL_TRY_ASSIGN(names, LineRegex::compile(map->substr(0, equals), "--map"));
        place = map->substr(equals + 1);
        if (!store.rules().is_mutable(place)) {
            return fail(ErrorKind::usage, fmt::format("--map: {} is not a file of the target's `kernel`", place));
        }
    } else {
        GDNCTL_TRY_ASSIGN(place, only_kernel_file(store, plan.base));
    }
    GDNCTL_TRY(repository.exclude(repository.root() / k_usual_root));
    GDNCTL_TRY(make_private_directory(plan.log_dir));
    GDNCTL_TRY_ASSIGN(const LoopLock lock,
                      LoopLock::acquire(plan.log_dir, repository.common_dir(), context.clock.wall()));
    GDNCTL_TRY_ASSIGN(EvolveJournal journal, EvolveJournal::open(plan.log_dir));
    GDNCTL_TRY(begin_run(journal, store, {plan.run, plan.loop_id, plan.seed, plan.base, plan.config, plan.evaluator},
                         context.clock.wall()));
    Importer importer(steps, repository, store, journal, plan, place, names ? &*names : nullptr, context.clock);
    for (std::size_t at = 0; at < steps.size(); ++at) GDNCTL_TRY(importer.add(at));
    GDNCTL_TRY(journal.add("stop", {{"reason", "imported"}, {"rc", 0}}, context.clock.wall()));
    return ImportReport{plan.run, steps[contest_best(steps)].stem, plan.log_dir, static_cast<int>(steps.size()),
                        static_cast<int>(journal.state().to_judge.size())};
}

Result<int> export_contest(const RunView& view, int attempt, const fs::path& to, const Target& target,
                           Context& context) {
    std::error_code problem;
    if (fs::exists(to, problem) && !fs::is_empty(to, problem)) {
        return fail(ErrorKind::conflict, fmt::format("--to: {} is not empty", to.string()), "name a new directory");
    }
    const std::array commits = {view.state.base, view.state.at(attempt).commit};
    GDNCTL_TRY_ASSIGN(const GitCheckout repository, repository_of(view.state, commits, context));
    const Store store(repository, view.state.run, path_rules(target), {}, context.process, context.clock);
    auto numbers = ancestry(view.state, attempt);
    numbers.pop_back();  // the base
    GDNCTL_TRY_ASSIGN(const std::string place, changed_kernel_file(store, view.state, numbers));
    std::reverse(numbers.begin(), numbers.end());
    GDNCTL_TRY(make_private_directory(to));
    int written = 0;
    for (const int number : numbers) {
        const Attempt& one = view.state.at(number);
        GDNCTL_TRY_ASSIGN(const auto files, store.mutable_text(one.commit));
        const auto kernel = files.find(place);
        if (kernel == files.end()) continue;
        const fs::path folder = view.log_dir / attempt_folder(number);
        const auto text = [&](const char* name) {
            const auto read = read_file_if_exists(folder / name);
            return read && *read ? **read : std::string();
        };
        ContestStep step;
        step.kernel = kernel->second;
        const bool ran =
            one.verdict == Verdict::kept || one.verdict == Verdict::tie || one.verdict == Verdict::rejected;
        step.metrics =
            ContestMetrics{ran, ran, ran ? std::exp(one.gain) : 0, one.verdict == Verdict::invalid ? one.reason : ""};
        step.prompt = text("prompt.md");
        step.response = text("response.txt");
        step.trace = text("trace.json");
        GDNCTL_TRY(write_contest_step(to, ++written, step, target.name));
    }
    return written;
}

}  // namespace gdnctl::loop::evolve
