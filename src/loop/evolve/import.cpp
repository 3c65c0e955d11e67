#include "loop/evolve/import.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/line_regex.h"
#include "core/text.h"
#include "loop/engine/lock.h"
#include "loop/evolve/contest.h"
#include "loop/evolve/driver.h"
#include "loop/evolve/plan.h"
#include "loop/evolve/verify.h"
#include "platform/clock.h"
#include "platform/fs.h"

namespace gdnctl::loop::evolve {

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
