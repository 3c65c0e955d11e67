#include "loop/engine/tpu_hold.h"

#include <algorithm>
#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr std::string_view k_active = "TPU allocation is active. Press Ctrl-C to release...";
constexpr std::string_view k_allocated = "TPU allocated successfully!";
constexpr milliseconds k_look{100};
constexpr seconds k_term_grace{15};
constexpr seconds k_failed_grace{5};
constexpr std::size_t k_tail_lines = 80;

constexpr std::string_view k_ready = "TPU allocation is active. Press Ctrl-C to release...";
constexpr milliseconds k_watch_pause{2000};

// What the user sees of the allocation on stderr.
log::Level shown_level(bool verbose) {
    if (verbose || log::enabled(log::Level::debug)) return log::Level::debug;
    return log::enabled(log::Level::info) ? log::Level::info : log::Level::warning;
}

// While one lives, what is said about the allocation goes to its log too; with --dev-tpu-verbose every request, command
// and detail, there and on stderr.
class Logged {
public:
    Logged(const std::filesystem::path& file, bool verbose)
        : m_out(file, std::ios::app),
          m_lines([this](std::string_view line) { m_out << line << std::endl; },
                  verbose ? log::Level::debug : log::Level::info, shown_level(verbose)) {}

private:
    std::ofstream m_out;
    log::Diverted m_lines;
};

void append(const std::filesystem::path& file, std::string_view text) {
    std::ofstream(file, std::ios::app) << redact(text) << '\n';
}

}  // namespace

std::string tail_of(const fs::path& file) {
    const auto text = read_file_if_exists(file, std::size_t{64} << 20);
    if (!text || !*text) return {};
    std::string tail;
    for (const std::string_view line : text::split(text::last_lines(text::trim(**text), k_tail_lines), '\n')) {
        tail += "\n  " + std::string(line);
    }
    return tail;
}

std::vector<std::string> allocator_argv(const HoldSettings& settings, std::string_view cluster) {
    const HoldOptions& options = settings.options;
    std::vector<std::string> words = settings.allocator;
    const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    add({"--cluster", std::string(cluster), "--tpu-name", options.name});
    if (options.verbose) add({"--verbose"});
    add({"allocate", "--sync-path", options.sync_path});
    if (!options.type.empty()) add({"--tpu-type", options.type});
    return words;
}

std::vector<std::string> hold_clusters(const HoldOptions& options) {
    std::vector<std::string> clusters = {options.cluster};
    for (const auto& one : options.fallback_clusters) {
        if (std::find(clusters.begin(), clusters.end(), one) == clusters.end()) clusters.push_back(one);
    }
    return clusters;
}

std::string AllocateLog::take(std::string_view line) {
    if (m_ready) return {};
    m_ready = line.find(k_active) != std::string_view::npos || line.find(k_allocated) != std::string_view::npos;
    std::string kept = redact(line) + "\n";
    if (m_ready) kept.append(k_became_active).append("\n");
    return kept;
}

// The program runs on a separate thread, which drains its output.
struct TpuHold::Child {
    std::atomic<pid_t> pid{0};
    std::atomic<bool> ready{false}, ended{false};
    std::string how;  // how it ended; read once `ended` is set
    std::stop_source stop;
    std::jthread thread;
};

TpuHold::TpuHold(HoldSettings settings, Process& process, Clock& clock, std::stop_token stop)
    : m_settings(std::move(settings)), m_process(process), m_clock(clock), m_stop(std::move(stop)) {
    std::error_code ignored;
    fs::remove(m_settings.log, ignored);
}

TpuHold::~TpuHold() { release(); }

bool TpuHold::active() const { return m_child && m_child->ready && !m_child->ended; }

milliseconds TpuHold::held() const {
    milliseconds sum = m_held;
    if (m_since) sum += std::chrono::duration_cast<milliseconds>(m_clock.monotonic() - *m_since);
    return sum;
}

Error TpuHold::failure(const std::string& cluster, int attempt, std::string_view what) const {
    return Error{ErrorKind::infrastructure,
                 fmt::format("dev TPU {} on {} (attempt {}): {}; log {}{}", m_settings.options.name, cluster, attempt,
                             what, m_settings.log.string(), tail_of(m_settings.log)),
                 {},
                 {}};
}

Status TpuHold::allocate(const std::string& cluster, int attempt) {
    m_child = std::make_unique<Child>();
    ProcessSpec spec;
    spec.argv = allocator_argv(m_settings, cluster);
    spec.cwd = m_settings.cwd;
    for (const auto& [name, value] : m_settings.environment) spec.env[name] = value;
    spec.merge_stderr = true;
    spec.grace = k_term_grace;
    spec.death_signal = SIGINT;  // makes it release the TPU, whatever happens to us
    spec.stop = m_child->stop.get_token();
    spec.on_start = [child = m_child.get()](pid_t pid) { child->pid = pid; };
    log::write_as_it_is(log::Level::info, fmt::format("$ {}", text::shell_join(spec.argv)));
    m_child->thread =
        std::jthread([child = m_child.get(), spec, file = m_settings.log, &process = m_process]() mutable {
            std::ofstream log_file(file, std::ios::app);
            AllocateLog kept;
            spec.on_stdout_line = [&](std::string_view line) {
                log_file << kept.take(line) << std::flush;
                if (kept.ready()) child->ready = true;
            };
            const auto result = process.run(spec);
            child->how = result ? describe_end(*result, spec) : result.error().text();
            child->ended = true;
        });
    Status ready = wait_until_ready(cluster, attempt);
    if (!ready) return ready;
    m_cluster = cluster;
    m_since = m_clock.monotonic();
    log::info("dev TPU {} is held on {}", m_settings.options.name, cluster);
    return {};
}

Status TpuHold::wait_until_ready(const std::string& cluster, int attempt) {
    const HoldOptions& options = m_settings.options;
    const auto deadline = m_clock.monotonic() + seconds(options.ready_timeout_s);
    while (!m_child->ready) {
        if (m_child->ended) {
            const std::string how = m_child->how;
            end_child(k_failed_grace);
            return tl::unexpected(failure(cluster, attempt, "the allocator " + how));
        }
        if (m_clock.monotonic() >= deadline) {
            end_child(std::min(seconds(options.stop_timeout_s), k_term_grace));
            return tl::unexpected(
                failure(cluster, attempt, fmt::format("not ready after {} s", options.ready_timeout_s)));
        }
        if (!m_clock.sleep_for(k_look, m_stop)) {
            end_child(seconds(options.stop_timeout_s));
            return tl::unexpected(stopped_error());
        }
    }
    return {};
}

Status TpuHold::acquire() {
    const HoldOptions& options = m_settings.options;
    std::vector<std::string> failures;
    for (std::int64_t attempt = 1; attempt <= options.allocate_attempts; ++attempt) {
        for (const auto& cluster : hold_clusters(options)) {
            Status got = allocate(cluster, static_cast<int>(attempt));
            if (got || got.error().kind != ErrorKind::infrastructure) return got;
            log::warning("{}", got.error().text());
            failures.push_back(cluster);
        }
        if (attempt == options.allocate_attempts) break;
        if (!m_clock.sleep_for(seconds(options.allocate_retry_sleep_s), m_stop)) return tl::unexpected(stopped_error());
    }
    return fail(ErrorKind::infrastructure,
                fmt::format("no dev TPU was available: tried {}", text::join(failures, ", ")),
                "see " + m_settings.log.string());
}

bool TpuHold::reacquire(std::string_view reason) {
    if (active()) return true;
    const auto now = m_clock.monotonic();
    if (m_tried && now - *m_tried < m_settings.reacquire_pause) return false;
    m_tried = now;
    log::warning("{}: allocating a dev TPU again", reason);
    release();
    const Status got = acquire();
    if (!got) log::warning("{}", got.error().text());
    return got.has_value();
}

void TpuHold::end_child(milliseconds grace) {
    if (!m_child) return;
    if (const auto info = process_info(m_child->pid); info && !m_child->ended) send_signal(info->id, SIGINT);
    const auto deadline = m_clock.monotonic() + grace;
    while (!m_child->ended && m_clock.monotonic() < deadline) m_clock.sleep_for(k_look, {});
    m_child->stop.request_stop();
    m_child->thread.join();
    m_child.reset();
}

void TpuHold::release() {
    if (!m_child) return;
    if (active()) log::info("releasing dev TPU {} on {}", m_settings.options.name, m_cluster);
    end_child(seconds(m_settings.options.stop_timeout_s));
    m_held = held();
    m_since.reset();
}

OwnHold::OwnHold(HoldSettings settings, Context& context) : m_settings(std::move(settings)), m_context(context) {
    std::error_code ignored;
    std::filesystem::remove(m_settings.log, ignored);
}

OwnHold::~OwnHold() { release(); }

milliseconds OwnHold::held() const {
    milliseconds sum = m_held;
    if (m_since) sum += std::chrono::duration_cast<milliseconds>(m_context.clock.monotonic() - *m_since);
    return sum;
}

HoldPlan OwnHold::plan() {
    const HoldOptions& options = m_settings.options;
    HoldPlan plan;
    plan.tpu_name = options.name;
    plan.tpu_type = options.type;
    plan.replaces_tree = true;
    plan.sync_path = (m_settings.cwd / options.sync_path).lexically_normal();
    plan.ssh_user = user_name(m_context.env);
    plan.ready_timeout = seconds(options.ready_timeout_s);
    plan.stop_timeout = seconds(options.stop_timeout_s);
    return plan;
}

Status OwnHold::allocate(const std::string& cluster, std::int64_t attempt) {
    DestinationOptions options;
    options.cluster = cluster;
    const auto held = [&]() -> Result<std::unique_ptr<Holding>> {
        const Logged logged(m_settings.log, m_settings.options.verbose);
        GDNCTL_TRY_ASSIGN(const gdnctl::JobDestination place, choose_destination(options, m_context));
        return hold_tpu(place, options, plan(), m_context);
    };
    auto holding = held();
    if (!holding) {
        Error error = std::move(holding).error();
        append(m_settings.log, "[gdnctl] " + error.text());
        error.message = fmt::format("dev TPU {} on {} (attempt {}): {}; log {}{}", m_settings.options.name, cluster,
                                    attempt, error.text(), m_settings.log.string(), tail_of(m_settings.log));
        error.context.clear();
        return tl::unexpected(std::move(error));
    }
    append(m_settings.log, fmt::format("[gdnctl] {}\n{}", k_ready, k_became_active));
    m_holding = std::move(*holding);
    m_lost = false;
    m_cluster = cluster;
    m_since = m_context.clock.monotonic();
    m_watch = std::jthread([this](std::stop_token stop) {
        while (m_context.clock.sleep_for(k_watch_pause, stop)) {
            const auto over = m_holding->lost();
            if (!over || stop.stop_requested()) continue;
            log::warning("{}", over->text());
            m_lost = true;
            return;
        }
    });
    log::info("dev TPU {} is held on {}", m_settings.options.name, cluster);
    return {};
}

Status OwnHold::acquire() {
    const HoldOptions& options = m_settings.options;
    std::vector<std::string> failures;
    Error last;
    for (std::int64_t attempt = 1; attempt <= options.allocate_attempts; ++attempt) {
        for (const auto& cluster : hold_clusters(options)) {
            Status got = allocate(cluster, attempt);
            if (got) return got;
            const ErrorKind kind = got.error().kind;
            if (kind == ErrorKind::interrupted || kind == ErrorKind::terminated || kind == ErrorKind::local_io)
                return got;
            last = std::move(got).error();
            log::warning("{}", last.text());
            failures.push_back(cluster);
        }
        if (attempt == options.allocate_attempts) break;
        if (!m_context.clock.sleep_for(seconds(options.allocate_retry_sleep_s), m_context.stop)) {
            return tl::unexpected(stopped_error());
        }
    }
    return fail(ErrorKind::infrastructure,
                fmt::format("no dev TPU was available: tried {}", text::join(failures, ", ")),
                last.hint.empty() ? "see " + m_settings.log.string() : last.hint);
}

bool OwnHold::reacquire(std::string_view reason) {
    if (active()) return true;
    const auto now = m_context.clock.monotonic();
    if (m_tried && now - *m_tried < m_settings.reacquire_pause) return false;
    m_tried = now;
    log::warning("{}: allocating a dev TPU again", reason);
    release();
    const Status got = acquire();
    if (!got) log::warning("{}", got.error().text());
    return got.has_value();
}

void OwnHold::release() {
    if (!m_holding) return;
    if (active()) log::info("releasing dev TPU {} on {}", m_settings.options.name, m_cluster);
    m_watch.request_stop();
    if (m_watch.joinable()) m_watch.join();
    const Status released = m_holding->release(seconds(m_settings.options.stop_timeout_s));
    if (!released) {
        log::warning("{}", released.error().text());
        if (!released.error().hint.empty()) log::warning("hint: {}", released.error().hint);
    } else if (!m_lost) {
        log::info("TPU allocation released.");
    }
    m_holding.reset();
    m_held = held();
    m_since.reset();
}

}  // namespace gdnctl::loop
