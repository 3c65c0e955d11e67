#include "services/ray/client.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "platform/http_policy.h"
#include "platform/signals.h"

namespace gdnctl::ray {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds k_refused{3000};        // for a server that has not answered yet, or that gets few requests
constexpr milliseconds k_shortest{1000};       // minimum for a request, however little time is left
constexpr milliseconds k_agent_connect{1500};  // the agent may be unreachable

}  // namespace

Patience::Patience(Clock& clock, std::stop_token stop, std::optional<Clock::Monotonic> deadline)
    : m_clock(clock), m_stop(std::move(stop)), m_start(clock.monotonic()), m_policy(retry_policy()) {
    if (deadline) {
        m_policy.total = std::min(m_policy.total, std::chrono::duration_cast<milliseconds>(*deadline - m_start));
    }
}

bool Patience::wait(std::string_view reason, std::optional<milliseconds> limit) {
    RetryPolicy policy = m_policy;
    if (limit) policy.total = std::min(policy.total, *limit);
    const auto elapsed = std::chrono::duration_cast<milliseconds>(m_clock.monotonic() - m_start);
    const auto next = http::next_attempt(policy, ++m_attempts, elapsed);
    if (next.verdict != http::NextAttempt::Verdict::wait) return false;
    log::info("{}; trying again in {}", reason, format_duration(next.delay));
    m_stopped = !m_clock.sleep_for(next.delay, m_stop);
    return !m_stopped;
}

bool Client::wait(Patience& patience, const Error& error) const {
    const bool brief = is_connection_refused(error) && (!m_answered || m_config.one_shot);
    return patience.wait(error.text(), brief ? std::optional(k_refused) : std::nullopt);
}

// A token that Ray refuses stays refused, so the route is never asked for another one.
Status Client::authorize(HttpRequest& request) const {
    GDNCTL_TRY_ASSIGN(request.secret_headers, m_config.route->headers(false));
    return {};
}

void Client::set_deadline(std::optional<Clock::Monotonic> deadline) {
    m_deadline = deadline;
    m_config.route->set_deadline(deadline);
}

void Client::shorten(HttpRequest& request) const {
    if (!m_deadline) return;
    const auto left = std::chrono::ceil<milliseconds>(*m_deadline - m_config.clock->monotonic());
    const milliseconds most = std::max(left, k_shortest);
    for (milliseconds* limit : {&request.connect_timeout, &request.first_byte_timeout, &request.total_timeout}) {
        if (limit->count() == 0 || *limit > most) *limit = most;
    }
}

Result<HttpResponse> Client::try_once(const Call& call) {
    if (call.on_begin) call.on_begin();
    HttpRequest request;
    GDNCTL_TRY_ASSIGN(const std::string base, m_config.route->url());
    request.method = call.method;
    request.url = base + call.path;
    if (!call.body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    if (!call.body_file.empty()) request.headers.emplace_back("Content-Type", "application/octet-stream");
    GDNCTL_TRY(authorize(request));
    request.body = call.body;
    request.body_file = call.body_file;
    request.on_chunk = call.on_chunk;
    request.body_limit = call.body_limit;
    request.first_byte_timeout = call.first_byte;
    request.total_timeout = call.total;
    request.stop = m_config.stop;
    shorten(request);
    auto answer = m_config.http->send(request);
    m_answered = m_answered || answer.has_value();
    if (answer) return answer;
    Error error = std::move(answer).error();
    if (error.kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    // Our own limit for one request is not the user's time limit.
    if (error.kind == ErrorKind::timeout) error.kind = ErrorKind::infrastructure;
    return tl::unexpected(std::move(error));
}

Result<HttpResponse> Client::send(const Call& call, Tries tries) {
    Patience patience = this->patience();
    for (;;) {
        auto answer = try_once(call);
        const bool passing = answer ? http::is_worth_retrying(retry_policy(), call.method, answer->status, answer->body)
                                    : is_out_of_reach(answer.error());
        if (!passing || tries == Tries::one) return answer;
        const bool again =
            answer ? patience.wait(fmt::format("{} returned {}: {}", call.name(), answer->status, gist(answer->body)))
                   : wait(patience, answer.error());
        if (again) continue;
        if (patience.stopped()) return tl::unexpected(stopped_error());
        return answer;
    }
}

Result<HttpResponse> Client::send_ok(const Call& call, Tries tries) {
    GDNCTL_TRY_ASSIGN(HttpResponse answer, send(call, tries));
    if (answer.status != 200) return tl::unexpected(refuse(call, answer));
    return answer;
}

Result<HttpResponse> Client::get_range(const std::string& url, const std::string& range, std::size_t limit) {
    HttpRequest request;
    request.url = url;
    request.headers.emplace_back("Range", "bytes=" + range);
    request.headers.emplace_back("Accept-Encoding", "identity");  // offsets count the file's own bytes
    GDNCTL_TRY(authorize(request));
    request.body_limit = limit;
    request.connect_timeout = k_agent_connect;
    request.stop = m_config.stop;
    shorten(request);
    auto answer = m_config.http->send(request);
    if (!answer && answer.error().kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    return answer;
}

Error Client::refuse(const Call& call, const HttpResponse& answer) const {
    return refusal(call.name(), answer, m_config.token_hint);
}

using namespace std::chrono_literals;

namespace {

// If a record is deleted sooner after the job's end, it comes back as a ghost.
constexpr std::chrono::seconds k_settles{5};
constexpr std::size_t k_record_limit = std::size_t{8} << 20;  // for one job, with long strings shortened
// An end this long ago is certain, whatever the difference between the two clocks.
constexpr std::chrono::minutes k_long_ago{10};

std::string job_path(std::string_view id) { return "/api/jobs/" + text::percent_encode(id); }

Result<JobDetails> read_details(const Call& call, const std::string& body, std::string_view id) {
    auto job = text::is_valid_utf8(body) ? parse_job_details(body) : parse_job_details(text::repair_utf8(body));
    if (!job) {
        return fail(ErrorKind::infrastructure,
                    call.name() + " returned no job (" + job.error().message + "): " + gist(body),
                    "a proxy or a login page may be in between");
    }
    if (is_ghost(*job)) return fail(ErrorKind::remote_missing, job_message::does_not_exist(id), "it was deleted");
    if (job->submission_id.empty()) job->submission_id = id;
    return job;
}

}  // namespace

Result<ServerVersion> Dashboard::version() {
    Call call;
    call.path = "/api/version";
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, m_client.send_ok(call, Tries::patient));
    return parse_version(answer.body);
}

Result<JobDetails> Dashboard::details(std::string_view id, Tries tries) {
    Call call;
    call.path = job_path(id);
    StringCutter cutter;
    std::string record;
    call.on_chunk = [&](std::string_view piece) {
        record += cutter.feed(piece);
        return record.size() <= k_record_limit;
    };
    call.on_begin = [&] {
        cutter = {};
        record.clear();
    };
    GDNCTL_TRY(m_client.send_ok(call, tries));
    if (record.size() > k_record_limit) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("{} returned more than {} MiB", call.name(), k_record_limit >> 20));
    }
    GDNCTL_TRY_ASSIGN(JobDetails job, read_details(call, record, id));
    m_known.insert_or_assign(std::string(id), job);
    if (is_terminal(job.state)) m_ended.try_emplace(std::string(id), m_client.clock().monotonic());
    return job;
}

std::optional<JobDetails> Dashboard::known(std::string_view id) const {
    const auto it = m_known.find(id);
    return it == m_known.end() ? std::nullopt : std::optional(it->second);
}

Result<std::vector<JobDetails>> Dashboard::list() {
    Patience patience = m_client.patience();
    for (;;) {
        std::vector<JobDetails> jobs;
        std::size_t bytes = 0;
        ArraySplitter splitter([&](std::string_view text) {
            auto job = text::is_valid_utf8(text) ? parse_job_details(text) : parse_job_details(text::repair_utf8(text));
            if (job && !is_ghost(*job)) jobs.push_back(std::move(*job));
        });
        StringCutter cutter;
        std::string start;  // for the error, if the answer is not a list
        Call call;
        call.path = "/api/jobs/";
        call.total = 5min;
        call.on_chunk = [&](std::string_view piece) {
            constexpr std::size_t k_start = 4096;
            constexpr std::size_t k_most = std::size_t{256} << 20;
            if (start.size() < k_start) start += piece.substr(0, k_start - start.size());
            bytes += piece.size();
            splitter.feed(cutter.feed(piece));
            return bytes <= k_most;
        };
        auto answer = m_client.send(call, Tries::one);
        const bool passing = answer ? http::is_worth_retrying(retry_policy(), "GET", answer->status, answer->body)
                                    : is_out_of_reach(answer.error());
        if (passing && (answer ? patience.wait(gist(answer->body)) : m_client.wait(patience, answer.error()))) continue;
        if (patience.stopped()) return tl::unexpected(stopped_error());
        if (!answer) return tl::unexpected(std::move(answer).error());
        if (answer->status != 200) return tl::unexpected(m_client.refuse(call, *answer));
        if (!splitter.complete() || !text::trim(start).starts_with('[')) {
            return fail(ErrorKind::infrastructure, "GET /api/jobs/ returned no list: " + gist(start),
                        "a proxy or a login page may be in between");
        }
        sort_newest_first(jobs);
        return jobs;
    }
}

Result<bool> Dashboard::stop(std::string_view id) {
    Call call;
    call.method = "POST";
    call.path = job_path(id) + "/stop";
    call.first_byte = 30s;
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, m_client.send_ok(call, Tries::patient));
    return parse_flag(answer.body, "stopped");
}

Status Dashboard::remove(std::string_view id) {
    GDNCTL_TRY_ASSIGN(const JobDetails job, details(id, Tries::patient));
    const auto refused = [&] {
        return fail(ErrorKind::conflict,
                    "Attempted to delete job '" + std::string(id) + "', but it is in a non-terminal state",
                    "`gdnctl ray-stop --wait " + std::string(id) + "` ends it");
    };
    if (!is_terminal(job.state)) return refused();
    Clock& clock = m_client.clock();
    const bool long_ago = job.end_time && clock.wall() - *job.end_time > k_long_ago;
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(
        clock.monotonic() - m_ended.find(id)->second);  // details() has put it there
    if (!long_ago && since < k_settles && !clock.sleep_for(k_settles - since, m_client.config().stop)) {
        return tl::unexpected(stopped_error());
    }
    Call call;
    call.method = "DELETE";
    call.path = job_path(id);
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, m_client.send(call, Tries::patient));
    if (answer.status == 500 && answer.body.find("non-terminal state") != std::string::npos) return refused();
    if (answer.status != 200) return tl::unexpected(m_client.refuse(call, answer));
    GDNCTL_TRY(parse_flag(answer.body, "deleted"));
    m_known.erase(std::string(id));
    m_ended.erase(std::string(id));
    return {};
}

}  // namespace gdnctl::ray
