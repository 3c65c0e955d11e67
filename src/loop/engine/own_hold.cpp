#include "loop/engine/own_hold.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/log_divert.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
    PlaceOptions options;
    options.cluster = cluster;
    const auto held = [&]() -> Result<std::unique_ptr<Holding>> {
        const Logged logged(m_settings.log, m_settings.options.verbose);
        GDNCTL_TRY_ASSIGN(const gdnctl::Place place, choose_place(options, m_context));
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
