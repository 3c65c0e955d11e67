// gdnctl ray-list: list the jobs of a backend.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/given_up.h"
#include "jobs/place.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_list {

struct Options {
    PlaceOptions place;
    bool mine = false;
    std::optional<JobState> status;
    std::int64_t limit = 50;
};

namespace {

using MaybeState = std::optional<JobState>;
constexpr std::array<cli::Choice<MaybeState>, 5> k_states = {{{"PENDING", JobState::pending},
                                                              {"RUNNING", JobState::running},
                                                              {"STOPPED", JobState::stopped},
                                                              {"SUCCEEDED", JobState::succeeded},
                                                              {"FAILED", JobState::failed}}};

bool is_mine(const JobDetails& job, const Env& env) {
    const auto it = job.metadata.find("user");
    return it != job.metadata.end() && it->second == user_name(env);
}

struct Row {
    std::string status, submitted, duration, kind, id;
};

// An id may contain any character; in a table it stays on one line.
std::string on_one_line(std::string_view id) {
    std::string shown;
    for (const char c : text::visible(id)) {
        if (c == '\n' || c == '\t') {
            shown += c == '\n' ? "\\n" : "\\t";
        } else {
            shown += c;
        }
    }
    return shown;
}

Row row_of(const JobDetails& job, const Clock& clock) {
    const auto kind = job.metadata.find("kind");
    Row row{text::visible(status_of(job)), "-", "-", kind == job.metadata.end() ? "-" : kind->second,
            on_one_line(job.submission_id)};
    if (job.start_time) {
        row.submitted = local_time(*job.start_time);
        row.duration = format_duration(
            std::max(job.end_time.value_or(clock.wall()) - *job.start_time, std::chrono::milliseconds(0)));
    }
    return row;
}

// Columns are as wide as their contents. The id comes last, is never cut, and should end within 100 columns.
std::string table_of(const std::vector<JobDetails>& jobs, const Clock& clock) {
    std::vector<Row> rows = {{"STATUS", "SUBMITTED", "DURATION", "KIND", "ID"}};
    for (const JobDetails& job : jobs) rows.push_back(row_of(job, clock));
    const auto width_of = [&](std::string Row::* column) {
        std::size_t most = 0;
        for (const Row& row : rows) most = std::max(most, (row.*column).size());
        return most;
    };
    const std::size_t status = width_of(&Row::status), submitted = width_of(&Row::submitted),
                      duration = width_of(&Row::duration), kind = width_of(&Row::kind);
    std::string table;
    for (const Row& row : rows) {
        table += fmt::format("{:<{}}  {:<{}}  {:>{}}  {:<{}}  {}\n", row.status, status, row.submitted, submitted,
                             row.duration, duration, row.kind, kind, row.id);
    }
    return table;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists jobs, newest first. Times are local, with their offset from UTC; the duration counts from the "
        "submission.");
    args.flag(options.mine, {.names = "--mine", .help = "list only your own jobs"});
    args.option(options.status, k_states,
                {.names = "--status", .value = "STATUS", .help = "list only jobs in this state"});
    args.option(options.limit, {.names = "--limit", .value = "N", .help = "list at most N jobs"});
    describe_place(args, options.place);
    args.example("gdnctl ray-list --cluster local --status RUNNING");
    args.see_also("ray-wait");
    args.see_also("ray-logs");
    args.see_also("ray-stop");
    args.check([&options]() -> Status {
        if (options.limit < 1) return fail(ErrorKind::usage, "--limit: expected 1 or more");
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options.place, true, context));
    GDNCTL_TRY_ASSIGN(auto jobs, backend->list());
    see_to_given_up(*backend, context);
    std::erase_if(jobs, [&](const JobDetails& job) {
        return (options.mine && !is_mine(job, context.env)) || (options.status && job.state != *options.status);
    });
    const auto found = jobs.size();
    if (found > static_cast<std::size_t>(options.limit)) jobs.resize(static_cast<std::size_t>(options.limit));
    if (context.global.json) {
        Json list = Json::array();
        for (const JobDetails& job : jobs) {
            Json item;
            put_job(item, place_of(*backend, job.submission_id), job, classify(job));
            list.push_back(std::move(item));
        }
        Json out;
        out["schema"] = "gdnctl.ray-list/1";
        out["jobs"] = std::move(list);
        print_json(out, context, -1);
        return ExitCode::ok;
    }
    if (jobs.empty()) {
        log::info("no jobs");
        return ExitCode::ok;
    }
    context.terminal.out(table_of(jobs, context.clock));
    if (jobs.size() < found) log::info("{} more; --limit shows them", found - jobs.size());
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::ray_list

namespace gdnctl::commands {

constinit const cli::Command k_ray_list_row =
    cli::make<&ray_list::describe, &ray_list::run>("ray-list", "Jobs", "list jobs", Tier::http);

}  // namespace gdnctl::commands
