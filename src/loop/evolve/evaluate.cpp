#include "loop/evolve/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <sys/utsname.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/metric.h"
#include "loop/evolve/store.h"
#include "loop/gates/traces.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/job/job.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_json = "json:";

// The object that counts. Errors: those of JsonObjects::last().
Result<Json> object_that_counts(std::string_view text, std::string_view nonce, bool& has_nonce) {
    JsonObjects objects;
    objects.feed(text);
    objects.finish();
    std::optional<Result<Json>> plain;
    const auto& found = objects.found();
    for (auto it = found.rbegin(); it != found.rend(); ++it) {
        auto json = parse_log_object(*it);
        // What is broken at the end of the log, or has the nonce, was to be the result.
        const bool meant = it == found.rbegin() || (!nonce.empty() && it->text.find(nonce) != std::string::npos);
        if (!json && meant) return json;
        const auto said = json ? json->find("nonce") : Json::iterator();
        if (!json || said == json->end()) {
            if (!plain) plain = std::move(json);
            continue;
        }
        if (nonce.empty() || *said != nonce) continue;
        has_nonce = true;
        return json;
    }
    if (plain) return std::move(*plain);
    return fail(ErrorKind::nothing_done, "the log contains no JSON object");
}

const Json* at(const Json& json, std::string_view from) {
    if (!from.starts_with(k_json)) return nullptr;
    const Json::json_pointer pointer(std::string(from.substr(k_json.size())));
    return json.contains(pointer) ? &json.at(pointer) : nullptr;
}

void read_shapes(const Json& there, ProfileResult& out) {
    double sum = 0;
    std::size_t index = 0;
    for (const auto& [name, one] : there.items()) {
        if (!one.is_number() || !(one.get<double>() > 0)) {
            out.shapes.clear();
            return;
        }
        const std::string key = there.is_array() ? std::to_string(index++) : name;
        out.shapes[key] = one.get<double>();
        sum += std::log(one.get<double>());
    }
    if (!out.shapes.empty()) out.value = std::exp(sum / static_cast<double>(out.shapes.size()));
}

// One-sided .025 quantile of Student's t; good to 1 % from three degrees of freedom on.
double t_quantile(int df) {
    const double n = df;
    return 1.96 + 2.372 / n + 2.82 / (n * n) + 2.55 / (n * n * n);
}

double t_of(int pairs) { return pairs == 3 ? 6.965 : pairs == 5 ? 3.298 : pairs == 9 ? 2.306 : t_quantile(pairs - 1); }

Status measure_pair(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                    const fs::path& log, Comparison& out) {
    double values[2] = {0, 0}, walls[2] = {0, 0};
    std::map<std::string, double> shapes[2];
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
        walls[is_candidate ? 1 : 0] = launch.wall_ms;
        out.nonce = out.nonce || launch.nonce;
        out.unseen = out.unseen || launch.unseen;
        if (is_candidate && launch.roofline > 0) out.rooflines.push_back(launch.roofline);
        shapes[is_candidate ? 1 : 0] = std::move(launch.shapes);
    }
    out.d.push_back(pair_difference(values[0], values[1], evaluator.higher_is_better()));
    if (walls[0] > 0 && walls[1] > 0) out.wall.push_back(pair_difference(walls[0], walls[1], false));
    for (const auto& [name, of_champion] : shapes[0]) {
        const auto there = shapes[1].find(name);
        if (there == shapes[1].end()) continue;
        out.shapes[name].push_back(pair_difference(of_champion, there->second, evaluator.higher_is_better()));
    }
    out.decided = true;
    return {};
}

constexpr std::string_view k_job_file = "job";

// The words of a test that checks relations instead of cases.
std::vector<std::string> relation_words(const std::vector<std::string>& test) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < test.size(); ++i) {
        const bool of_cases = test[i] == "--vectors" || test[i] == "--case" || test[i] == "--dtype";
        if (of_cases) ++i;
        if (!of_cases && test[i] != "--slow") out.push_back(test[i]);
    }
    out.emplace_back("--metamorphic");
    return out;
}

// What a launch added to its log, at most the last 64 MiB.
Result<std::string> text_from(const fs::path& log, std::uintmax_t offset) {
    constexpr std::uintmax_t k_most = std::uintmax_t{64} << 20U;
    std::ifstream file(log, std::ios::binary);
    if (!file) return std::string();
    file.seekg(0, std::ios::end);
    const auto size = static_cast<std::uintmax_t>(file.tellg());
    offset = std::min(offset, size);
    if (size - offset > k_most) offset = size - k_most;
    std::string text(size - offset, '\0');
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file) return fail(ErrorKind::local_io, fmt::format("cannot read {}", log.string()));
    return text;
}

}  // namespace

bool says_unseen(std::string_view text) {
    constexpr std::string_view k_line = "shapes: unseen";
    for (const std::string_view line : text::split(text, '\n')) {
        if (text::trim(line) == k_line) return true;
    }
    return text.find(R"("shapes":"unseen")") != std::string_view::npos ||
           text.find(R"("shapes": "unseen")") != std::string_view::npos;
}

ProfileResult read_profile(std::string_view text, const Target& target, std::string_view nonce) {
    ProfileResult out;
    out.unseen = says_unseen(text);
    out.has_op = target.kernel_op.empty() || text.find(target.kernel_op) != std::string_view::npos;
    const std::string from = target.metric ? target.metric->from : std::string();
    if (!from.starts_with(k_json) && target.floor.empty()) return out;
    const auto object = object_that_counts(text, nonce, out.nonce);
    if (!object) {
        out.lack = object.error().message;
        return out;
    }
    if (const Json* floor = at(*object, target.floor); floor != nullptr && floor->is_number())
        out.floor = floor->get<double>();
    const Json* there = at(*object, from);
    if (there == nullptr) {
        out.lack = fmt::format("the result has no {}", from.starts_with(k_json) ? from.substr(k_json.size()) : from);
    } else if (there->is_number()) {
        out.value = there->get<double>();
    } else if (there->is_structured()) {
        read_shapes(*there, out);
    }
    if (there != nullptr && !out.value) out.lack = from.substr(k_json.size()) + " of the result is not a number";
    return out;
}

ProfileChecks check_profile(const ProfileResult& result, double value, const Target& target) {
    ProfileChecks out{"skip", "skip", {}, false, 0};
    if (result.floor && *result.floor > 0 && result.shapes.empty()) {
        const bool lower = !target.metric || target.metric->lower_is_better;
        out.impossible = lower ? value < *result.floor : value > *result.floor;
        if (value > 0) out.roofline = lower ? *result.floor / value : value / *result.floor;
        out.floor = out.impossible ? "fail" : "pass";
        if (out.impossible) {
            out.problem = fmt::format("{:g} is better than is physically possible ({:g})", value, *result.floor);
        }
    }
    if (!target.kernel_op.empty()) {
        out.kernel_op = result.has_op ? "pass" : "fail";
        if (!result.has_op) {
            out.problem = fmt::format("{} is not in the profile: another kernel did the work", target.kernel_op);
        }
    }
    return out;
}

std::string local_device() {
    utsname names{};
    const std::string host = std::string(k_local_device) + (::uname(&names) == 0 ? names.nodename : "this machine");
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with("model name")) continue;
        return host + ", " + std::string(text::trim(std::string_view(line).substr(line.find(':') + 1)));
    }
    return host;
}

Status stop_left_job(const fs::path& worktrees, const ConfigAt& config, Context& context) {
    const fs::path file = worktrees / k_job_file;
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(file));
    if (!text) return {};
    // "ID" or "ID CLUSTER"
    const auto words = text::split(text::trim(*text), ' ');
    const std::string id(words.front()), cluster(words.size() > 1 ? words.back() : std::string_view());
    const Status ended = InProcessJobs(config, context).stop(id, {cluster, {}, {}}, context.cwd, true);
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
    // After a kill, the next session stops the job by this name.
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

bool JobEvaluator::has(LaunchKind kind) const {
    if (kind == LaunchKind::build) return !m_target.validate.empty();
    if (kind != LaunchKind::oracle && kind != LaunchKind::relations) return true;
    if (kind == LaunchKind::oracle && has_oracle()) return true;
    const std::vector<std::string> words = m_target.test ? m_target.test->argv : std::vector<std::string>();
    const bool verifies = words.size() > 3 && words[0] == "gdnctl" && words[1] == "oracle" && words[2] == "verify";
    return verifies && (kind == LaunchKind::oracle || words[3] == "gdn");
}

bool JobEvaluator::higher_is_better() const { return m_target.metric && !m_target.metric->lower_is_better; }

Result<Launch> JobEvaluator::launch(LaunchKind kind, const std::string& commit, const fs::path& log) {
    Launch out;
    // Drawn now that the commit is fixed, and written down nowhere.
    std::random_device random;
    const std::uint64_t seed = m_conditions.seed.value_or((std::uint64_t{random()} << 21U) ^ random());
    const EnvList env = {{"GDNCTL_EVAL_SEED", std::to_string(seed)},
                         {"GDNCTL_EVAL_SHAPES", m_conditions.unseen ? "unseen" : "seen"},
                         {"GDNCTL_EVAL_NONCE", random_hex(24)}};
    GDNCTL_TRY(m_store.with_fresh_checkout(commit, [&](const fs::path& tree) -> Status {
        GDNCTL_TRY_ASSIGN(out, kind == LaunchKind::build ? build(tree, log, env) : job(kind, tree, log, env));
        return {};
    }));
    return out;
}

Result<Launch> JobEvaluator::build(const fs::path& tree, const fs::path& log, const EnvList& env) const {
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
        spec.env["GDNCTL_AGENT"] = "0";  // not for an agent, although the loop's mark says so
        for (const auto& [name, value] : env) spec.env[name] = value;
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

Result<Launch> JobEvaluator::job(LaunchKind kind, const fs::path& tree, const fs::path& log, EnvList env) {
    JobOrder order;
    order.kind = kind == LaunchKind::profile ? JobKind::profile : JobKind::tests;
    if (kind == LaunchKind::relations) order.argv = relation_words(m_target.test->argv);
    if (kind == LaunchKind::oracle && has_oracle()) order.oracle = TestSelection::Oracle::alone;
    const std::string nonce = env.back().second;
    order.env = std::move(env);
    if (!m_options.clusters.empty()) order.site.cluster = m_options.clusters.front();
    order.tree = tree;
    order.log = log;
    order.stop = m_context.stop;
    std::error_code absent;
    const std::uintmax_t before = fs::file_size(log, absent);
    GDNCTL_TRY_ASSIGN(JobEnd end, m_jobs.run(order));
    GDNCTL_TRY_ASSIGN(const std::string text, text_from(log, absent ? 0 : before));
    Launch out;
    out.rc = end.rc;
    out.device_s = static_cast<double>(end.report.duration_ms()) / 1e3;
    // A target that takes no settings is given no TPU either, whatever the report says.
    out.device = end.report.backend == "local" ? local_device()
                 : end.report.tpu.empty()      ? end.report.cluster
                                               : end.report.tpu;
    out.oracle = std::move(end.oracle);
    if (end.failure) {
        const Outcome outcome = end.failure->outcome;
        out.infra = outcome == Outcome::infra || outcome == Outcome::environment;
        out.reason = end.failure->sign;
        return out;
    }
    out.ok = true;
    out.unseen = says_unseen(text);
    if (kind == LaunchKind::profile && m_target.metric && m_target.metric->from_trace()) read_device_time(end, out);
    drop_trace(end);
    if (!out.ok) return out;
    if (kind == LaunchKind::profile) read_result(text, nonce, end.report.metric_value, out);
    return out;
}

// A trace that cannot be read says nothing of the candidate.
void JobEvaluator::read_device_time(JobEnd& end, Launch& out) const {
    Measurement m = measurement_of(end.report, end.evidence, {m_target.metric->name, {}, {}});
    add_trace(m, end, m_target, std::nullopt);
    end.report.metric_value = m.value;
    if (!m.wall_ms.empty()) out.wall_ms = m.wall_ms.front();
    out.ok = m.value.has_value();
    out.infra = !out.ok;
    if (!out.ok) out.reason = m.warnings.empty() ? "the profile left no trace" : m.warnings.back();
}

void JobEvaluator::read_result(std::string_view text, std::string_view nonce, std::optional<double> of_job,
                               Launch& out) const {
    const ProfileResult result = read_profile(text, m_target, nonce);
    const bool json = m_target.metric && m_target.metric->from.starts_with("json:");
    const std::optional<double> value = json ? result.value : of_job;
    out.nonce = result.nonce;
    out.shapes = result.shapes;
    if (m_needs_nonce && json && !result.nonce) {
        out.reason = "the result does not have this launch's nonce: the evaluator did not print it";
    } else if (!value) {
        out.reason = fmt::format("the profile printed no {}{}{}",
                                 m_target.metric ? m_target.metric->name : std::string("metric"),
                                 result.lack.empty() ? "" : ": ", result.lack);
    } else {
        const ProfileChecks checks = check_profile(result, *value, m_target);
        out.value = *value;
        out.floor = checks.floor;
        out.kernel_op = checks.kernel_op;
        out.impossible = checks.impossible;
        out.roofline = checks.roofline;
        out.reason = checks.problem;
    }
    out.ok = out.reason.empty();
}

std::optional<double> Comparison::roofline() const {
    if (rooflines.empty()) return std::nullopt;
    return std::accumulate(rooflines.begin(), rooflines.end(), 0.0) / static_cast<double>(rooflines.size());
}

bool Comparison::is_slower_by_wall() const { return wall.size() == d.size() && judge_pairs(wall, {}).high < 0; }

Result<Comparison> compare(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                           const PairRule& rule, const fs::path& log) {
    Comparison out;
    while (static_cast<int>(out.d.size()) < rule.cap) {
        out.decided = false;
        if (evaluator.on_step) evaluator.on_step(pair_at_work(out.d, rule.cap));
        GDNCTL_TRY(measure_pair(evaluator, champion, candidate, log, out));
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
        if (evaluator.on_step) evaluator.on_step(pair_at_work(out.d, pairs));
        GDNCTL_TRY(measure_pair(evaluator, champion, candidate, log, out));
        if (!out.decided) return out;
    }
    out.look = judge_pairs(out.d, PairRule{});
    return out;
}

std::string slower_shape(const Comparison& pairs, double share) {
    for (const auto& [name, d] : pairs.shapes) {
        if (d.size() == pairs.d.size() && judge_pairs(d, PairRule{}).high < -std::log1p(share)) return name;
    }
    return {};
}

Gain gain_of(const PairLook& look) { return {look.mean, look.low, look.high, look.n}; }

NoiseVerdict judge_noise(double sd, double min_gain, double target_gain, int pairs) {
    const double needed = std::log1p(min_gain), wanted = std::log1p(target_gain);
    NoiseVerdict out;
    const double smallest = needed + t_of(pairs) * sd / std::sqrt(static_cast<double>(pairs));
    out.detectable_pct = to_percent(smallest);
    out.fits = smallest <= wanted;
    out.possible = needed < wanted;
    for (int n = 3; n <= 1000 && out.pairs_needed == 0; ++n) {
        if (needed + t_of(n) * sd / std::sqrt(static_cast<double>(n)) <= wanted) out.pairs_needed = n;
    }
    return out;
}

std::string noise_hint(const NoiseVerdict& noise, double min_gain, double target_gain, int pairs) {
    constexpr int k_most_pairs = 9;  // of --perf-pairs
    if (!noise.possible) {
        return fmt::format("--target-gain-pct {:g} must exceed --perf-min-improvement-pct {:g}", target_gain * 100,
                           min_gain * 100);
    }
    if (noise.pairs_needed > pairs && noise.pairs_needed <= k_most_pairs) {
        return fmt::format("{} pairs would be needed for --target-gain-pct {:g}: pass --perf-pairs {}",
                           noise.pairs_needed, target_gain * 100, noise.pairs_needed <= 5 ? 5 : k_most_pairs);
    }
    return fmt::format("{} pairs would be needed for --target-gain-pct {:g}; make the profile longer or quieter",
                       noise.pairs_needed == 0 ? std::string("more than 1000") : std::to_string(noise.pairs_needed),
                       target_gain * 100);
}

Result<CheatCheck> check_cheats(Evaluator& evaluator, const std::string& commit, const std::filesystem::path& log) {
    CheatCheck out;
    out.checks = {{"relations", "skip"}, {"floor", "skip"}, {"kernel_op", "skip"}, {"nonce", "skip"}};
    out.end.ok = true;
    double device_s = 0;
    const bool relations = evaluator.has(LaunchKind::relations), profile = evaluator.checks_profile();
    out.skipped = !relations && !profile;
    if (relations) {
        GDNCTL_TRY_ASSIGN(out.end, evaluator.launch(LaunchKind::relations, commit, log));
        device_s += out.end.device_s;
        out.checks["relations"] = out.end.ok ? "pass" : out.end.infra ? "skip" : "fail";
    }
    if (out.end.ok && profile) {
        GDNCTL_TRY_ASSIGN(out.end, evaluator.launch(LaunchKind::profile, commit, log));
        device_s += out.end.device_s;
        if (!out.end.floor.empty()) out.checks["floor"] = out.end.floor;
        if (!out.end.kernel_op.empty()) out.checks["kernel_op"] = out.end.kernel_op;
        if (out.end.nonce) out.checks["nonce"] = "pass";
    }
    out.end.device_s = device_s;
    return out;
}

std::vector<std::string> cheat_hints(const std::map<std::string, std::string>& files) {
    constexpr std::array<std::string_view, 18> k_words = {
        "clock_gettime", "gettimeofday", "rdtsc",    "perf_counter", "usleep",     "nanosleep",
        "time.sleep",    "getenv",       "environ",  "dlopen",       "dlsym",      "/proc/",
        "pthread_",      "std::thread",  "data_ptr", "id(",          "LD_PRELOAD", "GDNCTL_"};
    std::vector<std::string> out;
    for (const auto& [path, text] : files) {
        for (const std::string_view word : k_words) {
            if (text.find(word) != std::string::npos) out.push_back(path + ": " + std::string(word));
        }
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
