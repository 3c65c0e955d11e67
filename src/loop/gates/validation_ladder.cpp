#include "loop/gates/validation_ladder.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/log_timed.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace {

// For "any number": one hour at the default pause. After that the candidate is parked, and the run ends when this
// happens three times in a row; budgets are not checked in here.
constexpr std::int64_t k_most_passes = 30;

JobEnd no_place(std::string sign) {
    JobEnd end;
    end.rc = 1;
    end.failure = Failure{Outcome::environment, sign};
    end.summary = std::move(sign);
    return end;
}

}  // namespace

JobSite Ladder::held_site() const { return {m_world.held->cluster(), m_world.held->name(), {}}; }

Result<JobEnd> Ladder::run(const JobSite& site) {
    GDNCTL_TRY_ASSIGN(JobEnd end, m_world.run(site));
    if (end.failure && end.failure->outcome == Outcome::timeout && ++m_time_limits > 1) end.retryable = false;
    return end;
}

// Another place would give the same result.
bool Ladder::is_final(const JobEnd& end) const { return !end.failure || (!end.retryable && !end.site_is_unknown); }

bool Ladder::get_back(const char* why) {
    const std::string reason = fmt::format("{} {}", to_text(m_kind), why);
    log::info("{}; re-acquiring it", reason);
    return m_world.held->reacquire(reason);
}

Result<JobEnd> Ladder::try_held() {
    if (!m_world.held->active() && !get_back("starting without an active held dev TPU")) {
        return no_place("the held dev TPU is not available");
    }
    GDNCTL_TRY_ASSIGN(JobEnd end, run(held_site()));
    if (is_final(end) || !get_back("failed on the held dev TPU")) return end;
    return run(held_site());
}

Result<JobEnd> Ladder::try_clusters() {
    JobEnd last = no_place(fmt::format("no valid Ray clusters remain for {}.", to_text(m_kind)));
    for (auto site = m_clusters.begin(); site != m_clusters.end();) {
        GDNCTL_TRY_ASSIGN(JobEnd end, run(*site));
        if (is_final(end)) return end;
        if (end.site_is_unknown) {
            log::warning("{}: {}; not trying it again", to_text(*site), end.failure->sign);
            site = m_clusters.erase(site);
            continue;
        }
        last = std::move(end);
        ++site;
    }
    if (m_clusters.empty())
        log::write_as_it_is(log::Level::error, fmt::format("no valid Ray clusters remain for {}.", to_text(m_kind)));
    return last;
}

Result<JobEnd> Ladder::pass() {
    if (m_world.held != nullptr) {
        GDNCTL_TRY_ASSIGN(JobEnd end, try_held());
        const bool nowhere = end.log.empty() && end.failure && end.failure->outcome == Outcome::environment;
        if (is_final(end) && !nowhere) return end;
    }
    GDNCTL_TRY_ASSIGN(JobEnd end, try_clusters());
    const bool nowhere = m_clusters.empty();
    if (m_world.held == nullptr || (is_final(end) && !nowhere)) return end;
    if (!get_back("Ray fallback failed")) return end;
    return run(held_site());
}

Result<JobEnd> Ladder::climb(std::int64_t attempts, std::chrono::seconds pause) {
    for (std::int64_t attempt = 1;; ++attempt) {
        GDNCTL_TRY_ASSIGN(JobEnd end, pass());
        if (!end.failure || !end.retryable || attempt >= (attempts < 0 ? k_most_passes : attempts)) return end;
        if (m_world.asked_to_stop && m_world.asked_to_stop()) return end;
        log::warning("{} failed (attempt {}{}): {}; again in {} s", to_text(m_kind), attempt,
                     attempts < 0 ? "" : fmt::format("/{}", attempts), end.failure->sign, pause.count());
        if (!m_world.clock.sleep_for(pause, m_world.stop)) return tl::unexpected(stopped_error());
    }
}

std::vector<std::string> cluster_order(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::vector<std::string>& discovered) {
    std::vector<std::string> order;
    const auto add = [&order](const std::string& name) {
        if (!name.empty() && std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
    };
    if (!options.clusters.empty()) {
        for (const std::string& name : options.clusters) add(name);
        return order;
    }
    if (!hold.on && !options.cluster_auto) return {""};
    add(active);
    add(hold.cluster);
    for (const std::string& name : hold.fallback_clusters) add(name);
    if (options.cluster_auto) {
        for (const std::string& name : discovered) add(name);
    }
    return order;
}

std::vector<std::string> gate_clusters(const ValidationOptions& options, const HoldOptions& hold,
                                       const std::string& active, const std::filesystem::path& root) {
    std::vector<std::string> exclude = options.cluster_exclude;
    if (exclude.empty()) exclude = {"vllm", "big-run"};
    const auto found =
        options.cluster_auto ? discover_clusters(root, options.profile.tpu, exclude) : std::vector<std::string>();
    return cluster_order(options, hold, active, found);
}

}  // namespace gdnctl::loop
