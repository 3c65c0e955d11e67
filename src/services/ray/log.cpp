#include "services/ray/log.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/http_policy.h"
#include "platform/signals.h"
#include "services/job/job.h"

namespace gdnctl::ray {

void LastLines::feed(std::string_view piece) {
    while (!piece.empty()) {
        const std::size_t newline = piece.find('\n');
        const std::string_view part = piece.substr(0, newline == std::string_view::npos ? piece.size() : newline + 1);
        piece.remove_prefix(part.size());
        if (m_held.empty() || m_held.back().ends_with('\n')) m_held.emplace_back();
        m_held.back() += part;
        m_held_bytes += part.size();
        while (m_held.size() > m_lines || (m_held_bytes > m_bytes && m_held.size() > 1)) {
            m_held_bytes -= m_held.front().size();
            m_held.pop_front();
        }
        if (m_held_bytes > 2 * m_bytes && m_held.size() == 1) {
            m_held.front().erase(0, m_held_bytes - m_bytes);  // a single extremely long line: keep its end
            m_held_bytes = m_bytes;
        }
    }
}

std::string LastLines::take() {
    std::string out;
    for (const std::string& line : m_held) out += line;
    m_held.clear();
    m_held_bytes = 0;
    return out;
}

namespace {

// Knuth, Morris and Pratt: for each prefix the length of its longest border.
std::vector<std::size_t> borders_of(std::string_view pattern) {
    std::vector<std::size_t> border(pattern.size(), 0);
    for (std::size_t i = 1, length = 0; i < pattern.size(); ++i) {
        while (length > 0 && pattern[i] != pattern[length]) length = border[length - 1];
        if (pattern[i] == pattern[length]) ++length;
        border[i] = length;
    }
    return border;
}

char plain_escape(char c) {
    switch (c) {
        case 'n': return '\n';
        case 't': return '\t';
        case 'r': return '\r';
        case 'b': return '\b';
        case 'f': return '\f';
        case '"':
        case '\\':
        case '/': return c;
        default: return '\0';
    }
}

}  // namespace

Joint find_joint(std::string_view window, std::string_view text, std::size_t& next) {
    if (window.empty() || window.size() > text.size()) return Joint::absent;
    const std::vector<std::size_t> border = borders_of(window);
    Joint joint = Joint::absent;
    std::size_t matched = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        while (matched > 0 && (matched == window.size() || text[i] != window[matched])) matched = border[matched - 1];
        if (text[i] == window[matched]) ++matched;
        if (matched != window.size()) continue;
        if (joint == Joint::found) return Joint::ambiguous;
        joint = Joint::found;
        next = i + 1;
    }
    return joint;
}

std::size_t count_lines(std::string_view text) {
    const auto newlines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    return newlines + (text.empty() || text.back() == '\n' ? 0 : 1);
}

bool begins_in(std::string_view head, std::string_view piece) {
    if (piece.empty()) return false;
    for (std::size_t at = 0; at < head.size();) {
        const std::size_t common = std::min(piece.size(), head.size() - at);
        // The rest of the head is too short to tell.
        if (at > 0 && common < piece.size()) return false;
        if (head.substr(at, common) == piece.substr(0, common)) return true;
        const std::size_t newline = head.find('\n', at);
        if (newline == std::string_view::npos) return false;
        at = newline + 1;
    }
    return false;
}

std::uint64_t LogPosition::lines_with(std::string_view fresh) const {
    const std::string_view end = fresh.empty() ? std::string_view(m_window) : fresh;
    const bool unfinished = !end.empty() && end.back() != '\n';
    return m_newlines + static_cast<std::uint64_t>(std::count(fresh.begin(), fresh.end(), '\n')) + (unfinished ? 1 : 0);
}

void LogPosition::advance(std::string_view bytes) {
    if (bytes.empty()) return;
    m_newlines += static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    if (m_knows_start && m_head.size() < k_window) m_head += bytes.substr(0, k_window - m_head.size());
    if (m_window.ends_with('\r') && bytes.front() == '\n') ++m_pairs;
    for (std::size_t at = bytes.find("\r\n"); at != std::string_view::npos; at = bytes.find("\r\n", at + 2)) ++m_pairs;
    m_bytes += bytes.size();
    if (bytes.size() >= k_window) {
        m_window = bytes.substr(bytes.size() - k_window);
        return;
    }
    m_window += bytes;
    if (m_window.size() > k_window) m_window.erase(0, m_window.size() - k_window);
}

void LogsField::put(std::uint32_t c) {
    const auto byte = [this](std::uint32_t value) {
        m_decoded += static_cast<char>(static_cast<unsigned char>(value));
    };
    if (c < 0x80) {
        byte(c);
    } else if (c < 0x800) {
        byte(0xC0 | c >> 6);
        byte(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        byte(0xE0 | c >> 12);
        byte(0x80 | (c >> 6 & 0x3F));
        byte(0x80 | (c & 0x3F));
    } else {
        byte(0xF0 | c >> 18);
        byte(0x80 | (c >> 12 & 0x3F));
        byte(0x80 | (c >> 6 & 0x3F));
        byte(0x80 | (c & 0x3F));
    }
}

// Decodes a complete \uXXXX. The first half of a pair waits for the second; a single half becomes U+FFFD.
void LogsField::code_unit() {
    constexpr std::uint32_t k_replacement = 0xFFFD;
    const bool is_low = m_unit >= 0xDC00 && m_unit <= 0xDFFF;
    if (m_high != 0 && is_low) {
        put(0x10000 + ((m_high - 0xD800) << 10) + (m_unit - 0xDC00));
        m_high = 0;
        return;
    }
    if (m_high != 0) put(k_replacement);
    m_high = m_unit >= 0xD800 && m_unit <= 0xDBFF ? m_unit : 0;
    if (m_high == 0) put(is_low ? k_replacement : m_unit);
}

// The second half of a pair is missing.
void LogsField::code_unit_alone() {
    m_high = 0;
    put(0xFFFD);
}

void LogsField::step(char c) {
    switch (m_state) {
        case State::head: {
            constexpr std::size_t k_head_limit = 64;
            if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return;
            m_head += c;
            constexpr std::string_view k_wanted = "{\"logs\":\"";
            if (m_head == k_wanted) m_state = State::text;
            if (!k_wanted.starts_with(m_head) || m_head.size() > k_head_limit) m_state = State::bad;
            return;
        }
        case State::text:
            if (c == '\\') {
                m_state = State::escape;
                return;
            }
            if (m_high != 0) code_unit_alone();
            if (c == '"') {
                m_state = State::end;
            } else {
                m_decoded += c;
            }
            return;
        case State::escape:
            if (c == 'u') {
                m_state = State::hex;
                m_unit = 0;
                m_digits = 0;
                return;
            }
            if (m_high != 0) code_unit_alone();
            m_state = plain_escape(c) == '\0' ? State::bad : State::text;
            if (m_state == State::text) m_decoded += plain_escape(c);
            return;
        case State::hex: {
            const int value = text::hex_value(c);
            if (value < 0) {
                m_state = State::bad;
                return;
            }
            m_unit = m_unit << 4 | static_cast<std::uint32_t>(value);
            if (++m_digits < 4) return;
            code_unit();
            m_state = State::text;
            return;
        }
        case State::end:
        case State::bad: return;
    }
}

bool LogsField::feed(std::string_view piece) {
    m_decoded.clear();
    for (const char c : piece) {
        step(c);
        if (m_state == State::bad) break;
    }
    const bool wanted = m_decoded.empty() || m_out(m_decoded);
    return wanted && m_state != State::bad;
}

namespace {

constexpr std::uint64_t k_piece = std::uint64_t{4} << 20;
constexpr std::uint64_t k_tail_piece = std::uint64_t{64} << 10;

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view value) {
    constexpr std::string_view unit = "bytes ";
    if (!value.starts_with(unit)) return std::nullopt;
    value.remove_prefix(unit.size());
    const std::size_t slash = value.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto size = text::parse_int(value.substr(slash + 1));
    if (!size || *size < 0) return std::nullopt;
    ContentRange range;
    range.size = static_cast<std::uint64_t>(*size);
    const std::string_view span = value.substr(0, slash);
    if (span == "*") return range;
    const std::size_t dash = span.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = text::parse_int(span.substr(0, dash));
    const auto last = text::parse_int(span.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= *size) return std::nullopt;
    range.first = static_cast<std::uint64_t>(*first);
    return range;
}

Result<std::optional<AgentFile::Piece>> AgentFile::get(const std::string& range) {
    GDNCTL_TRY_ASSIGN(HttpResponse answer, m_client.get_range(m_url, range, 2 * k_piece));
    if (answer.status == 416) return std::optional<Piece>();
    const auto there = parse_content_range(answer.header("content-range").value_or(""));
    const bool fits = answer.status == 206 && there && there->first && !answer.body.empty() &&
                      *there->first + answer.body.size() <= there->size;
    if (!fits) {
        return fail(ErrorKind::infrastructure, fmt::format("{} returned {} for a byte range", m_url, answer.status));
    }
    return std::optional(Piece{*there->first, there->size, std::move(answer.body)});
}

Status AgentFile::read_from(std::uint64_t offset, const Out& out) {
    for (;;) {
        GDNCTL_TRY_ASSIGN(const auto piece, get(fmt::format("{}-{}", offset, offset + k_piece - 1)));
        if (!piece) return {};
        if (piece->first != offset) {
            return fail(ErrorKind::infrastructure, fmt::format("{} returned a different range than requested", m_url));
        }
        offset += piece->bytes.size();
        if (!out(piece->bytes) || offset >= piece->size) return {};
    }
}

Result<std::uint64_t> AgentFile::tail_offset(std::size_t lines) {
    std::uint64_t end = 0;  // end of the part that was not searched yet
    std::uint64_t size = 0;
    std::size_t found = 0;
    for (bool first = true; first || end > 0; first = false) {
        const std::uint64_t begin = end - std::min(end, k_piece);
        GDNCTL_TRY_ASSIGN(const auto piece,
                          get(first ? fmt::format("-{}", k_tail_piece) : fmt::format("{}-{}", begin, end - 1)));
        if (!piece) return 0;
        if (first) size = piece->first + piece->bytes.size();
        if (lines == 0) return size;
        for (std::size_t i = piece->bytes.size(); i > 0; --i) {
            const std::uint64_t at = piece->first + i - 1;
            if (piece->bytes[i - 1] != '\n' || at + 1 == size) continue;
            if (++found == lines) return at + 1;
        }
        end = piece->first;
    }
    return 0;
}

namespace {

// Reads a log again from its first byte.

// Skips what was passed on before. The rest is passed on as it arrives or, if only the last lines are wanted, held back
// until it is complete.
class FromStart {
public:
    static constexpr std::size_t k_held_limit = std::size_t{16} << 20;  // limit for a tail that is held back

    FromStart(std::uint64_t skip, std::optional<std::size_t> last_lines, JobLog::Sink deliver)
        : m_skip(skip),
          m_hold(last_lines),
          m_held(last_lines.value_or(0), k_held_limit),
          m_deliver(std::move(deliver)) {}

    bool feed(std::string_view piece) {
        const std::uint64_t before = m_seen;
        m_seen += piece.size();
        if (m_seen <= m_skip) return true;
        if (before < m_skip) piece.remove_prefix(static_cast<std::size_t>(m_skip - before));
        if (!m_hold) return m_deliver(piece);
        m_position.advance(piece);
        m_held.feed(piece);
        return true;
    }
    bool holds() const { return m_hold.has_value(); }
    std::string take_held() { return m_held.take(); }
    // The position after what is held back.
    LogPosition take_position() { return std::move(m_position); }

private:
    std::uint64_t m_skip, m_seen = 0;
    std::optional<std::size_t> m_hold;
    LastLines m_held;
    LogPosition m_position;
    JobLog::Sink m_deliver;
};

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
    const bool gone = answer.status == 500 && !http::is_worth_retrying(retry_policy(), "GET", 500, answer.body) &&
                      is_terminal(job.state);
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
