#include "jobs/submissions.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "platform/journal.h"

namespace gdnctl {

bool is_of_loop(std::string_view submission_id) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    constexpr std::size_t k_date = 8, k_all = 15;  // 20261129t053026, of an evolve run with a z
    for (std::string_view part : text::split(submission_id, '-')) {
        if (part.ends_with('z')) part.remove_suffix(1);
        if (part.size() != k_all || part[k_date] != 't') continue;
        if (std::count_if(part.begin(), part.end(), is_digit) == k_all - 1) return true;
    }
    return false;
}

std::vector<Submission> own_submissions(const std::filesystem::path& state_dir) {
    std::vector<Submission> found;
    const auto journal = read_journal(state_dir / "jobs.jsonl");
    if (!journal) return found;
    for (auto it = journal->records.rbegin(); it != journal->records.rend(); ++it) {
        const auto record = parse_json(*it, "jobs.jsonl");
        if (!record || !record->is_object()) continue;
        Submission one{json::text(*record, "submission_id"), json::text(*record, "backend"),
                       json::text(*record, "cluster"), json::text(*record, "address")};
        if (!one.id.empty() && !is_of_loop(one.id)) found.push_back(std::move(one));
    }
    return found;
}

Result<std::string> job_named(std::string id, const JobBackend& backend, const Context& context) {
    if (id != "last") return id;
    const JobPlace place = place_of(backend, id);
    for (const Submission& one : own_submissions(context.state_dir)) {
        if (one.backend == place.backend && one.cluster == place.cluster) return one.id;
    }
    return fail(
        ErrorKind::remote_missing,
        fmt::format("this machine has submitted no job to {}", place.cluster.empty() ? "this server" : place.cluster),
        "`gdnctl ray-list` lists the jobs");
}

}  // namespace gdnctl
