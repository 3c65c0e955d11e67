#include "loop/memory/ledger_keep.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/log.h"
#include "loop/engine/resume.h"
#include "loop/report/model.h"

namespace gdnctl::loop {

namespace {

std::span<const Record> records_of_iteration(std::span<const Record> records, int iteration) {
    const auto of_it = [&](const Record& record) { return record.iteration == iteration; };
    const auto first = std::find_if(records.begin(), records.end(), of_it);
    const auto last = std::find_if(records.rbegin(), records.rend(), of_it);
    if (first == records.end()) return {};
    // A `resume` in between belongs to the iteration, so that the time without work is not counted.
    return {first, last.base()};
}

}  // namespace

Result<std::optional<KnownIteration>> known_iteration(const std::filesystem::path& log_dir,
                                                      const GitCheckout& repository, std::span<const Record> records,
                                                      int iteration) {
    KnownIteration known;
    known.own = records_of_iteration(records, iteration);
    const RunView run = view_of(known.own);
    if (run.iterations.empty()) return std::optional<KnownIteration>();
    known.view = run.iterations.front();
    IterationView& view = known.view;
    const Record* candidate = last_of(known.own, RecordType::candidate);
    if (candidate != nullptr && !candidate->word("base").empty()) view.base = candidate->word("base");
    LedgerFacts& facts = known.facts;
    facts.run = records.front().word("run");
    facts.total = state_of(records).total;
    if (!view.head.empty() && !view.base.empty() && view.head != view.base) {
        GDNCTL_TRY_ASSIGN(facts.commits, repository.commits(view.base, view.head));
        GDNCTL_TRY_ASSIGN(const auto changes, repository.diff(view.base, view.head));
        for (const auto& change : changes) facts.files.push_back(change.path);
        GDNCTL_TRY_ASSIGN(facts.patch_id, patch_id(repository, view.base, view.head));
    }
    auto report = read_agent_report(log_dir, iteration);
    if (!report) log::warning("ignoring the agent's report: {}", report.error().text());
    if (report) facts.report = std::move(*report);
    GDNCTL_TRY_ASSIGN(auto measured, read_measured(log_dir, records));
    if (measured) known.measured = std::make_shared<const MeasuredRun>(std::move(*measured));
    facts.measured = known.measured.get();
    return std::optional(std::move(known));
}

Status keep_in_ledger(const std::filesystem::path& log_dir, const GitCheckout& repository,
                      std::span<const Record> records, int iteration) {
    GDNCTL_TRY_ASSIGN(const auto known, known_iteration(log_dir, repository, records, iteration));
    return known ? append_ledger(log_dir, iteration_record(known->own, known->facts)) : Status();
}

}  // namespace gdnctl::loop
