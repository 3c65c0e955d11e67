#include "services/ray/log_reader.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/percent.h"
#include "core/text.h"
#include "platform/signals.h"
#include "services/ray/agent_file.h"
#include "services/ray/from_start.h"
#include "services/ray/log_join.h"

namespace gdnctl::ray {

namespace {

using std::chrono::seconds;

constexpr std::size_t k_look_limit = std::size_t{8} << 20;  // for a look at the end of the log
constexpr std::size_t k_most_lines = 1'000'000;
constexpr int k_tries_of_a_way = 3;

class LogReader final : public JobLog {
public:
    LogReader(std::shared_ptr<Dashboard> dashboard, std::string id, const LogStart& start)
        : m_dashboard(std::move(dashboard)),
          m_client(m_dashboard->client()),
          m_id(std::move(id)),
          m_file("job-driver-" + text::percent_encode(m_id) + ".log"),
          m_start(start),
          // A single look takes one request through the dashboard; only a follower gains from the agent.
          m_way(start.follow ? Way::agent : Way::file) {}

    Result<std::size_t> pump(const Sink& sink) override;

private:
    enum class Way { agent, file, whole };

    Status one_round(const JobDetails& job);
    Status from_agent(const std::string& base);
    Status from_file(const JobDetails& job);
    Status from_whole(const JobDetails& job);
    Status without_file(const JobDetails& job);
    Status read_all(const JobDetails& job, std::optional<std::size_t> hold);
    Status read_tail(const JobDetails& job, std::size_t lines);
    Status look_at_end(const JobDetails& job);
    enum class Joined { yes, not_found, doubtful };
    Result<Joined> join(const JobDetails& job, const std::string& look, std::size_t lines);
    Result<bool> is_all(const JobDetails& job, std::string_view fresh);
    Call file_call(const JobDetails& job, std::string_view lines) const;
    Status judge(const JobDetails& job, const Call& call, const Result<HttpResponse>& answer);
    bool deliver(std::string_view bytes);
    bool hand_over(std::string_view bytes);
    void release(FromStart& again);

    std::shared_ptr<Dashboard> m_dashboard;
    Client& m_client;
    std::string m_id, m_file;
    LogStart m_start;
    Way m_way;
    bool m_begun = false;  // the start was found, and something after it may have been passed on
    bool m_agent_asked = false, m_agent_worked = false;
    bool m_file_works = true;
    int m_agent_failures = 0, m_file_failures = 0;
    LogPosition m_position;
    std::size_t m_new_lines = 0;  // in the last look
    bool m_end_is_sure = false;
    const Sink* m_sink = nullptr;
    std::size_t m_handed = 0;  // in this pump
    bool m_enough = false;
};

bool LogReader::deliver(std::string_view bytes) {
    m_position.advance(bytes);
    return hand_over(bytes);
}

// Skips what lies before the position.
bool LogReader::hand_over(std::string_view bytes) {
    if (bytes.empty()) return !m_enough;
    m_handed += bytes.size();
    if (!(*m_sink)(bytes)) m_enough = true;
    return !m_enough;
}

// The log is complete, so its last lines may be passed on.
void LogReader::release(FromStart& again) {
    if (!again.holds()) return;
    m_position = again.take_position();
    hand_over(again.take_held());
}

Result<std::size_t> LogReader::pump(const Sink& sink) {
    m_sink = &sink;
    m_handed = 0;
    m_enough = false;
    auto job = m_dashboard->known(m_id);
    if (!job) {
        GDNCTL_TRY_ASSIGN(job, m_dashboard->details(m_id, Tries::patient));
    }
    if (!is_terminal(job->state) && !job->driver_node_id) return std::size_t{0};
    Patience patience = m_client.patience();
    for (;;) {
        Status read = one_round(*job);
        if (read || m_enough) return m_handed;
        // A follower calls again, so what has arrived by now is enough.
        if (m_start.follow && m_handed > 0 && is_out_of_reach(read.error())) return m_handed;
        if (m_start.follow || !is_out_of_reach(read.error())) return tl::unexpected(std::move(read).error());
        if (m_client.wait(patience, read.error())) continue;
        if (patience.stopped()) return tl::unexpected(stopped_error());
        return tl::unexpected(std::move(read).error());
    }
}

Status LogReader::one_round(const JobDetails& job) {
    if (m_way == Way::agent) {
        std::optional<std::string> base;
        if (job.driver_agent_http_address) {
            base = m_client.config().route->agent_url(*job.driver_agent_http_address);
        }
        if (base) {
            m_agent_asked = true;
            Status read = from_agent(*base);
            if (read) {
                m_agent_worked = true;
                m_agent_failures = 0;
                return {};
            }
            if (!is_out_of_reach(read.error()) && read.error().kind != ErrorKind::bad_input) return read;
            log::debug("log of {}: {}", m_id, read.error().text());
            if (m_file_works && m_agent_worked && ++m_agent_failures < k_tries_of_a_way) return from_file(job);
        }
        m_way = m_file_works ? Way::file : Way::whole;
    }
    if (m_way == Way::file && job.driver_node_id) return from_file(job);
    return from_whole(job);
}

// Used when the dashboard does not serve the file: tries the agent if it was not tried yet, else reads the whole log.
Status LogReader::without_file(const JobDetails& job) {
    m_file_works = false;
    m_way = m_agent_asked ? Way::whole : Way::agent;
    return one_round(job);
}

Status LogReader::from_agent(const std::string& base) {
    AgentFile file(m_client, base + "/logs/" + m_file);
    if (!m_begun && m_start.tail) {
        GDNCTL_TRY_ASSIGN(const std::uint64_t offset, file.tail_offset(*m_start.tail));
        m_position.jump(offset);
    }
    m_begun = true;
    return file.read_from(m_position.bytes(), [this](std::string_view bytes) { return deliver(bytes); });
}

Call LogReader::file_call(const JobDetails& job, std::string_view lines) const {
    Call call;
    call.path = fmt::format("/api/v0/logs/file?node_id={}&filename={}&lines={}",
                            text::percent_encode(job.driver_node_id.value_or("")), m_file, lines);
    call.total = seconds(0);
    return call;
}

Status LogReader::from_file(const JobDetails& job) {
    if (m_begun) {
        if (!m_start.follow && m_start.tail) return {};
        return m_position.bytes() == 0 ? read_all(job, {}) : look_at_end(job);
    }
    if (m_start.tail && !m_start.follow) {
        // Zero lines would mean a thousand.
        if (*m_start.tail > 0) GDNCTL_TRY(read_tail(job, *m_start.tail));
        m_begun = true;
        return {};
    }
    return read_all(job, m_start.tail);
}

// Interprets an answer of the dashboard other than the log.
Status LogReader::judge(const JobDetails& job, const Call& call, const Result<HttpResponse>& answer) {
    if (!answer) return tl::unexpected(answer.error());
    if (answer->status == 200) {
        m_file_failures = 0;
        return {};
    }
    const auto says = [&](std::string_view text) { return answer->body.find(text) != std::string::npos; };
    const bool over = is_terminal(job.state);
    if (answer->status == 401 || answer->status == 403) return tl::unexpected(m_client.refuse(call, *answer));
    if (says("Agent for node id")) {
        if (!over) return fail(ErrorKind::infrastructure, "the log's node does not answer: " + gist(answer->body));
        return fail(ErrorKind::remote_missing, "logs are gone with the node: " + gist(answer->body),
                    "`gdnctl ray-wait " + m_id + "` still shows how the job ended");
    }
    if (says("file is not found at")) {
        if (!over) return {};
        m_way = Way::whole;
        return from_whole(job);
    }
    const bool passing = answer->status >= 502 || says("Cannot connect to host");
    // With a token, the dashboard of Ray 2.52 does not show it to its own agents.
    const bool never = answer->status < 500 || says("UNAUTHENTICATED");
    if (never || (!passing && ++m_file_failures >= k_tries_of_a_way)) return without_file(job);
    return tl::unexpected(m_client.refuse(call, *answer));
}

// Reads the whole file and skips what was passed on before; `hold`: passes on only its last lines.
Status LogReader::read_all(const JobDetails& job, std::optional<std::size_t> hold) {
    Call call = file_call(job, "-1");
    FromStart again(m_position.bytes(), hold, [this](std::string_view piece) { return deliver(piece); });
    call.on_chunk = [&](std::string_view piece) { return again.feed(piece); };
    const Way way = m_way;
    GDNCTL_TRY(judge(job, call, m_client.send(call, Tries::one)));
    if (m_way != way) return {};
    m_begun = true;
    release(again);
    return {};
}

// Reads the last lines in one request. Passes them on only once complete, since a retry may see others.
Status LogReader::read_tail(const JobDetails& job, std::size_t lines) {
    Call call = file_call(job, std::to_string(std::min(lines, k_most_lines)));
    std::string tail;
    bool direct = false;
    call.on_chunk = [&](std::string_view piece) {
        if (direct) return deliver(piece);
        tail += piece;
        if (tail.size() <= FromStart::k_held_limit) return true;
        direct = true;
        return deliver(tail);
    };
    const auto answer = m_client.send(call, Tries::one);
    if (direct && !answer) {
        Error error = answer.error();
        error.kind = ErrorKind::bad_input;  // once started, there is no way to know where to continue
        return tl::unexpected(std::move(error));
    }
    GDNCTL_TRY(judge(job, call, answer));
    if (!direct && m_way == Way::file) deliver(tail);
    return {};
}

// Whether the log has as many lines as were passed on plus those of `fresh`, judging by where a look with one more line
// begins. The end alone does not show it: after a second copy of a long text, it looks the same.
Result<bool> LogReader::is_all(const JobDetails& job, std::string_view fresh) {
    if (!m_position.knows_start()) return true;
    constexpr std::size_t k_sample = 4096;
    std::string start;
    Call call = file_call(job, std::to_string(m_position.lines_with(fresh) + 1));
    call.on_chunk = [&](std::string_view piece) {
        start += piece.substr(0, k_sample - start.size());
        return start.size() < k_sample;
    };
    GDNCTL_TRY(judge(job, call, m_client.send(call, Tries::one)));
    return begins_in(m_position.head(), start);
}

// Tries to find the position in `look`, the log's last `lines` lines, and passes on what is new.
Result<LogReader::Joined> LogReader::join(const JobDetails& job, const std::string& look, std::size_t lines) {
    const std::string& window = m_position.window();
    std::size_t next = 0;
    if (count_lines(look) < lines) {
        // This is the whole file. If it is shorter than what was passed on, it is another one.
        if (look.size() < m_position.bytes()) return Joined::yes;
        next = static_cast<std::size_t>(m_position.bytes());
        if (!std::string_view(look).substr(0, next).ends_with(window)) {
            return fail(ErrorKind::infrastructure, "the log of job " + m_id + " was replaced while it was being read");
        }
    } else {
        // A shorter window could match in the wrong place.
        if (window.size() < k_window || find_joint(window, look, next) != Joint::found) return Joined::not_found;
        const bool last_look = is_terminal(job.state) && !m_end_is_sure;
        if (next < look.size() || last_look) {
            const Way way = m_way;
            GDNCTL_TRY_ASSIGN(const bool all, is_all(job, std::string_view(look).substr(next)));
            if (m_way != way) return Joined::yes;
            if (!all) return Joined::doubtful;
            m_end_is_sure = is_terminal(job.state);
        }
    }
    m_new_lines = count_lines(std::string_view(look).substr(next));
    deliver(std::string_view(look).substr(next));
    return Joined::yes;
}

Status LogReader::look_at_end(const JobDetails& job) {
    // Several windows, so that text which repeats at shorter distances is recognised as ambiguous.
    std::size_t lines = 4 * count_lines(m_position.window()) + 50 + 2 * m_new_lines;
    for (; lines <= k_most_lines; lines *= 8) {
        Call call = file_call(job, std::to_string(lines));
        std::string look;
        bool too_long = false;
        call.on_chunk = [&](std::string_view piece) {
            too_long = look.size() + piece.size() > k_look_limit;
            if (!too_long) look += piece;
            return !too_long;
        };
        const auto answer = m_client.send(call, Tries::one);
        const Way way = m_way;
        GDNCTL_TRY(judge(job, call, answer));
        if (m_way != way || answer->status != 200) return {};
        if (too_long) break;
        GDNCTL_TRY_ASSIGN(const Joined joined, join(job, look, lines));
        if (joined == Joined::yes) return {};
        if (joined == Joined::doubtful) break;
        std::size_t next = 0;
        // More of a text that repeats does not help.
        if (find_joint(m_position.window(), look, next) == Joint::ambiguous) break;
    }
    return read_all(job, {});
}

Status LogReader::from_whole(const JobDetails& job) {
    Call call;
    call.path = "/api/jobs/" + text::percent_encode(m_id) + "/logs";
    call.total = seconds(0);
    call.first_byte = seconds(60);  // the dashboard first reads all of it
    // This interface returns line ends as one byte.
    FromStart again(m_position.folded_bytes(), m_begun ? std::nullopt : m_start.tail,
                    [this](std::string_view piece) { return deliver(piece); });
    LogsField field([&](std::string_view piece) { return again.feed(piece); });
    call.on_chunk = [&](std::string_view piece) { return field.feed(piece); };
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, m_client.send(call, Tries::one));
    if (answer.status == 200) {
        if (!m_enough && !field.complete()) {
            return fail(ErrorKind::infrastructure, call.name() + " returned no log",
                        "a proxy or a login page may be in between");
        }
        m_way = Way::whole;
        m_begun = true;
        release(again);
        return {};
    }
    if (answer.body.find("UnicodeDecodeError") != std::string::npos) {
        return fail(
            ErrorKind::remote_missing,
            "the log of job " + m_id + " contains a byte that is not UTF-8, and its node does not provide raw bytes",
            "`gdnctl ray-wait " + m_id + "` still shows how the job ended");
    }
    const bool gone = answer.status == 500 && !is_passing("GET", 500, answer.body) && is_terminal(job.state);
    if (gone) {
        return fail(ErrorKind::remote_missing, "logs are gone with the node: " + gist(answer.body),
                    "`gdnctl ray-wait " + m_id + "` still shows how the job ended");
    }
    return tl::unexpected(m_client.refuse(call, answer));
}

}  // namespace

std::unique_ptr<JobLog> make_log_reader(std::shared_ptr<Dashboard> dashboard, std::string id, const LogStart& start) {
    return std::make_unique<LogReader>(std::move(dashboard), std::move(id), start);
}

}  // namespace gdnctl::ray
