#include "loop/evolve/evaluate.h"

#include <cmath>
#include <random>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "loop/evolve/store.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/job/job.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

// One-sided .025 quantile of Student's t; good to 1 % from three degrees of freedom on.
double t_quantile(int df) {
    const double n = df;
    return 1.96 + 2.372 / n + 2.82 / (n * n) + 2.55 / (n * n * n);
}

double t_of(int pairs) { return pairs == 3 ? 6.965 : pairs == 5 ? 3.298 : pairs == 9 ? 2.306 : t_quantile(pairs - 1); }

Status take_pair(Evaluator& evaluator, const std::string& champion, const std::string& candidate, const fs::path& log,
                 Comparison& out) {
    double values[2] = {0, 0};
    // AB, BA, AB: what drifts is on both sides alike.
    const bool swapped = out.d.size() % 2 == 1;
    for (int turn = 0; turn < 2; ++turn) {
        const bool is_candidate = (turn == 1) != swapped;
        GDNCTL_TRY_ASSIGN(Launch launch,
                          evaluator.launch(LaunchKind::profile, is_candidate ? candidate : champion, log));
        out.device_s += launch.device_s;
        if (!launch.device.empty()) out.device = launch.device;
        if (!launch.ok || !(launch.value > 0)) {
            if (launch.ok) launch.reason = fmt::format("the profile measured {:g}", launch.value);
            launch.ok = false;
            out.champion_failed = !is_candidate;
            out.failed = std::move(launch);
            return {};
        }
        values[is_candidate ? 1 : 0] = launch.value;
    }
    out.d.push_back(pair_difference(values[0], values[1], evaluator.higher_is_better()));
    out.decided = true;
    return {};
}

}  // namespace

namespace {

constexpr std::string_view k_job_file = "job";

}  // namespace

Status stop_left_job(const fs::path& worktrees, const ConfigAt& config, Context& context) {
    const fs::path file = worktrees / k_job_file;
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(file));
    if (!text) return {};
    // "ID" or "ID CLUSTER"
    const auto words = text::split(text::trim(*text), ' ');
    const std::string id(words.front()), cluster(words.size() > 1 ? words.back() : std::string_view());
    const Status ended = OwnJobs(config, context).stop(id, {cluster, {}, {}}, context.cwd, true);
    if (!ended && context.stop.stop_requested()) return ended;
    if (!ended && ended.error().kind != ErrorKind::remote_missing) {
        log::warning("job {} of the interrupted run may still be running: {}", id, ended.error().message);
    }
    std::error_code ignored;
    fs::remove(file, ignored);
    return {};
}

JobEvaluator::JobEvaluator(const Store& store, const Target& target, const JobSettings& settings, Context& context)
    : m_store(store),
      m_target(target),
      m_options(settings.options),
      m_service(settings.config, context),
      m_jobs(target, settings.options, m_service),
      m_job_file(settings.worktrees / k_job_file),
      m_context(context) {
    // Whoever goes on after a kill stops the job by this name.
    m_jobs.name_jobs_by([this, run = settings.run](const JobOrder& order) -> Result<std::string> {
        std::random_device random;
        const char* kind = order.kind == JobKind::tests ? "test" : "profile";
        std::string id = make_submission_id(kind, run, m_context.clock.wall(), random());
        GDNCTL_TRY(make_private_directory(m_job_file.parent_path()));
        GDNCTL_TRY(atomic_replace(m_job_file, id + " " + order.site.cluster + "\n", 0600));
        return id;
    });
}

JobEvaluator::~JobEvaluator() {
    std::error_code ignored;
    fs::remove(m_job_file, ignored);
}

bool JobEvaluator::has(LaunchKind kind) const { return kind != LaunchKind::build || !m_target.validate.empty(); }

bool JobEvaluator::higher_is_better() const { return m_target.metric && !m_target.metric->lower_is_better; }

Result<Launch> JobEvaluator::launch(LaunchKind kind, const std::string& commit, const fs::path& log) {
    Launch out;
    GDNCTL_TRY(m_store.with_fresh_checkout(commit, [&](const fs::path& tree) -> Status {
        GDNCTL_TRY_ASSIGN(out, kind == LaunchKind::build ? build(tree, log) : job(kind, tree, log));
        return {};
    }));
    return out;
}

Result<Launch> JobEvaluator::build(const fs::path& tree, const fs::path& log) const {
    Launch out;
    out.ok = true;
    for (const std::string& command : m_target.validate) {
        ProcessSpec spec;
        spec.argv = {"bash", "-c", command};
        spec.cwd = tree;
        spec.stdout_file = log;
        spec.merge_stderr = true;
        spec.wall_limit = std::chrono::seconds(m_options.test_timeout_s);
        spec.stop = m_context.stop;
        GDNCTL_TRY_ASSIGN(const ProcessResult result, m_context.process.run(spec));
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        if (result.ok()) continue;
        out.ok = false;
        out.rc = result.exit_code;
        out.reason = result.end == ProcessResult::End::wall_limit
                         ? fmt::format("{}: took more than {} s", command, m_options.test_timeout_s)
                         : fmt::format("{}: exit code {}", command, result.exit_code);
        return out;
    }
    return out;
}

Result<Launch> JobEvaluator::job(LaunchKind kind, const fs::path& tree, const fs::path& log) {
    JobOrder order;
    order.kind = kind == LaunchKind::test ? JobKind::tests : JobKind::profile;
    if (!m_options.clusters.empty()) order.site.cluster = m_options.clusters.front();
    order.tree = tree;
    order.log = log;
    order.stop = m_context.stop;
    GDNCTL_TRY_ASSIGN(const JobEnd end, m_jobs.run(order));
    Launch out;
    out.rc = end.rc;
    out.device_s = static_cast<double>(end.report.duration_ms()) / 1e3;
    out.device = end.report.tpu.empty() ? end.report.cluster : end.report.tpu;
    if (end.failure) {
        const Outcome outcome = end.failure->outcome;
        out.infra = outcome == Outcome::infra || outcome == Outcome::environment;
        out.reason = end.failure->sign;
        return out;
    }
    out.ok = true;
    if (kind != LaunchKind::profile) return out;
    if (!end.report.metric_value) {
        out.ok = false;
        out.reason = "the profile printed no " + (m_target.metric ? m_target.metric->name : std::string("metric"));
        return out;
    }
    out.value = *end.report.metric_value;
    return out;
}

Result<Comparison> compare(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                           const PairRule& rule, const fs::path& log) {
    Comparison out;
    while (static_cast<int>(out.d.size()) < rule.cap) {
        out.decided = false;
        GDNCTL_TRY(take_pair(evaluator, champion, candidate, log, out));
        if (!out.decided) return out;
        out.look = judge_pairs(out.d, rule);
        if (out.look.verdict != PairVerdict::next) return out;
    }
    return out;
}

Result<Comparison> measure_pairs(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                                 int pairs, const fs::path& log) {
    Comparison out;
    for (int i = 0; i < pairs; ++i) {
        out.decided = false;
        GDNCTL_TRY(take_pair(evaluator, champion, candidate, log, out));
        if (!out.decided) return out;
    }
    out.look = judge_pairs(out.d, PairRule{});
    return out;
}

Gain gain_of(const PairLook& look) { return {look.mean, look.low, look.high, look.n}; }

NoiseVerdict judge_noise(double sd, double min_gain, double target_gain, int pairs) {
    const double needed = std::log1p(min_gain), wanted = std::log1p(target_gain);
    NoiseVerdict out;
    const double smallest = needed + t_of(pairs) * sd / std::sqrt(static_cast<double>(pairs));
    out.detectable_pct = to_percent(smallest);
    out.fits = smallest <= wanted;
    for (int n = 3; n <= 1000 && out.pairs_needed == 0; ++n) {
        if (needed + t_of(n) * sd / std::sqrt(static_cast<double>(n)) <= wanted) out.pairs_needed = n;
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
