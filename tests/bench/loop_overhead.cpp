// What a loop adds to an iteration on a repository of 10,000 files: base, collect, landing, log commit, the records.
// The budget is 0.2 s beyond the agent's own time.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include "loop/engine/journal.h"
#include "loop/engine/transaction.h"
#include "platform/clock.h"
#include "platform/process.h"

namespace fs = std::filesystem;
using namespace gdnctl;

namespace {

constexpr int k_files = 10'000;

template <class T>
T must(Result<T> value) {
    if (!value) {
        fmt::print(stderr, "{}\n", value.error().text());
        std::abort();
    }
    return std::move(*value);
}
void must(const Status& status) {
    if (!status) {
        fmt::print(stderr, "{}\n", status.error().text());
        std::abort();
    }
}

void sh(const fs::path& folder, const std::string& command) {
    ProcessSpec spec;
    spec.argv = {"sh", "-c", command};
    spec.cwd = folder;
    if (!must(system_process().run(spec)).ok()) std::abort();
}

// A folder with a repository, gone at the end.
struct World {
    World() : folder(fs::temp_directory_path() / fmt::format("gdnctl-bench-{}", getpid())) {
        setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
        fs::create_directories(folder / "repo");
        for (int i = 0; i < k_files; ++i) {
            const fs::path file = folder / "repo" / fmt::format("d{}/f{}.c", i % 100, i);
            fs::create_directories(file.parent_path());
            std::ofstream(file) << fmt::format("int value_{};\n", i);
        }
        std::ofstream(folder / "repo" / "log.md") << "# Log\n";
        sh(folder / "repo",
           "git init -q -b main . && git config user.name b && git config user.email b@example.org && "
           "git add -A && git commit -q -m base");
    }
    ~World() {
        std::error_code problem;
        fs::remove_all(folder, problem);
    }
    fs::path folder;
};

void run(benchmark::State& state, loop::Isolation isolation) {
    const World world;
    loop::TransactionSettings settings;
    settings.run = "bench";
    settings.isolation = isolation;
    settings.slot = world.folder / "state" / "slot";
    settings.log_paths = {"log.md"};
    const auto files = must(loop::Artefacts::open(world.folder / "logs"));
    auto git = must(loop::Transactions::open(world.folder / "repo", settings, files, std::nullopt, system_process(),
                                             system_clock()));
    auto journal = must(loop::LoopJournal::open(files.folder() / "journal.jsonl"));
    int n = 0;
    for ([[maybe_unused]] auto _ : state) {
        ++n;
        const loop::Base base = must(git.begin(n, false));
        must(journal.append({loop::RecordType::base, n, {{"sha", base.sha}}}, system_clock().wall()));
        state.PauseTiming();  // the agent's own time
        std::ofstream(git.workdir() / "d7" / "f7.c") << fmt::format("int changed_{};\n", n);
        sh(git.workdir(), "git commit -q -am change");
        state.ResumeTiming();
        const loop::Candidate candidate = must(git.collect(n, base));
        must(journal.append({loop::RecordType::candidate, n, {{"head", candidate.head}}}, system_clock().wall()));
        must(git.accept(base, candidate, false));
        must(git.commit_log(n, base.branch, {{"log.md", fmt::format("# Log\nentry {}\n", n)}}, "Log\n", false));
        must(journal.append({loop::RecordType::iteration_end, n}, system_clock().wall()));
    }
}

void BM_iteration_in_a_slot(benchmark::State& state) { run(state, loop::Isolation::worktree); }
void BM_iteration_in_place(benchmark::State& state) { run(state, loop::Isolation::inplace); }
BENCHMARK(BM_iteration_in_a_slot)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(20);
BENCHMARK(BM_iteration_in_place)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(20);

}  // namespace
