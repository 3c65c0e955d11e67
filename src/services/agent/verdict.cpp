#include "services/agent/verdict.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "services/agent/codex_events.h"

namespace gdnctl::codex {

namespace {

using std::chrono::milliseconds;

constexpr std::chrono::minutes k_margin{1};

constexpr double k_day_ms = 24.0 * 3'600'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Lower-case words after the last `lead`, without blanks, commas and brackets; a full stop only inside a word.
std::vector<std::string> words_after(std::string_view message, std::string_view lead) {
    std::string lower = text::to_lower(message);
    const std::size_t at = lower.rfind(lead);
    if (at == std::string::npos) return {};
    lower.erase(0, at + lead.size());
    for (char& c : lower) {
        if (c == ',' || c == '\n' || c == '\r' || c == '\t' || c == '(' || c == ')') c = ' ';
    }
    std::vector<std::string> words;
    for (std::string_view word : text::split(lower, ' ')) {
        while (word.ends_with('.') && word != "a.m." && word != "p.m.") word.remove_suffix(1);
        if (!word.empty()) words.emplace_back(word);
    }
    return words;
}

// The point in time that words give, in local time: "4:07 pm", "17:45", "nov 24th 2026 4:07 pm", "2026-11-24 16:07".
class TimeOfWords {
public:
    explicit TimeOfWords(WallTime now) : m_now(now) {
        const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
        localtime_r(&seconds, &m_parts);
        m_parts.tm_sec = 0;
    }

    std::optional<WallTime> read(const std::vector<std::string>& words) {
        for (const std::string& word : words) {
            if (!take(word)) break;
        }
        if (!m_hour) return std::nullopt;
        if (m_half != ' ' && (*m_hour < 1 || *m_hour > 12)) return std::nullopt;
        m_parts.tm_hour = m_half == ' ' ? *m_hour : *m_hour % 12 + (m_half == 'p' ? 12 : 0);
        if (m_month.has_value() != m_day.has_value()) return std::nullopt;
        const bool dated = m_month.has_value();
        if (dated) {
            m_parts.tm_mon = *m_month;
            m_parts.tm_mday = *m_day;
            if (m_year) m_parts.tm_year = *m_year - 1900;
        }
        auto at = moment();
        constexpr std::chrono::hours k_half_day{12}, k_half_year{24 * 182};
        // Codex gives the date of another day. Without one, the nearest moment of that time is meant.
        if (at && !dated && !m_tomorrow && *at + k_half_day < m_now) {
            ++m_parts.tm_mday;
            at = moment();
        }
        if (at && dated && !m_year && *at + k_half_year < m_now) {
            ++m_parts.tm_year;
            at = moment();
        }
        return at;
    }

private:
    bool take(std::string_view word) {
        if (word == "on" || word == "at" || word == "by" || word == "today") return true;
        if (word == "tomorrow") {
            m_parts.tm_mday += m_tomorrow ? 0 : 1;
            m_tomorrow = true;
            return true;
        }
        if (word == "am" || word == "a.m." || word == "pm" || word == "p.m.") {
            if (!m_hour) return false;
            m_half = word.front();
            return true;
        }
        if (word == "utc" || word == "gmt" || word == "z") {
            m_utc = true;
            return true;
        }
        return is_digit(word.front()) ? take_number(word) : take_month(word);
    }

    bool take_month(std::string_view word) {
        constexpr std::array<std::string_view, 12> k_months = {"january",   "february", "march",    "april",
                                                               "may",       "june",     "july",     "august",
                                                               "september", "october",  "november", "december"};
        constexpr std::size_t k_shortest = 3;
        const auto found = std::find_if(k_months.begin(), k_months.end(),
                                        [&](std::string_view name) { return name.starts_with(word); });
        if (found == k_months.end() || word.size() < k_shortest || m_month) return false;
        m_month = static_cast<int>(found - k_months.begin());
        if (m_bare) m_day = std::exchange(m_hour, std::nullopt);  // "24 nov"
        m_bare = false;
        return true;
    }

    // "4:07", "4:07pm", "3pm", "24th", "24", "2026", "2026-11-24", "2026-11-24t16:07:00z"
    bool take_number(std::string_view word) {
        if (word.size() >= 10 && word[4] == '-' && word[7] == '-') {
            m_year = number(word.substr(0, 4), 1970, 9999);
            const auto month = number(word.substr(5, 2), 1, 12);
            m_day = number(word.substr(8, 2), 1, 31);
            if (!m_year || !month || !m_day) return false;
            m_month = *month - 1;
            return word.size() == 10 || (word[10] == 't' && take_clock(word.substr(11)));
        }
        const std::string_view rest = word.substr(std::min(word.find_first_not_of("0123456789"), word.size()));
        const std::string_view digits = word.substr(0, word.size() - rest.size());
        if (rest.starts_with(':') || rest == "am" || rest == "pm") return take_clock(word);
        const bool ordinal = rest == "st" || rest == "nd" || rest == "rd" || rest == "th";
        if (!ordinal && !rest.empty()) return false;
        if (digits.size() == 4 && !ordinal) {
            m_year = number(digits, 1970, 9999);
            return m_year.has_value();
        }
        // "nov 24"; another bare number is an hour, if am or pm follows, or the day of a month that follows.
        if (ordinal || (m_month && !m_day)) {
            m_day = number(digits, 1, 31);
            return m_day.has_value();
        }
        m_hour = number(digits, 1, 31);
        m_parts.tm_min = 0;
        m_bare = m_hour.has_value();
        return m_bare;
    }

    bool take_clock(std::string_view word) {
        if (word.ends_with('z')) {
            m_utc = true;
            word.remove_suffix(1);
        }
        if (word.ends_with("am") || word.ends_with("pm")) {
            m_half = word[word.size() - 2];
            word.remove_suffix(2);
        }
        const auto fields = text::split(word, ':');
        if (fields.size() > 3) return false;
        m_hour = number(fields[0], 0, 23);
        const auto minute = fields.size() > 1 ? number(fields[1], 0, 59) : std::optional(0);
        if (!m_hour || !minute) {
            m_hour.reset();
            return false;
        }
        m_parts.tm_min = *minute;
        m_bare = false;
        return true;
    }

    static std::optional<int> number(std::string_view digits, int low, int high) {
        const auto value = text::parse_int(digits);
        if (!value || *value < low || *value > high) return std::nullopt;
        return static_cast<int>(*value);
    }

    std::optional<WallTime> moment() {
        if (m_bare && m_half == ' ') return std::nullopt;
        std::tm parts = m_parts;
        parts.tm_isdst = -1;
        const std::time_t seconds = m_utc ? timegm(&parts) : std::mktime(&parts);
        if (seconds == -1) return std::nullopt;
        m_parts.tm_mday = parts.tm_mday;
        m_parts.tm_mon = parts.tm_mon;
        m_parts.tm_year = parts.tm_year;
        return WallTime(std::chrono::seconds(seconds));
    }

    WallTime m_now;
    std::tm m_parts{};
    std::optional<int> m_month, m_day, m_year, m_hour;
    char m_half = ' ';
    bool m_utc = false, m_bare = false, m_tomorrow = false;
};

// In milliseconds; 0: not a unit of time.
double unit_of(std::string_view word) {
    constexpr std::array<std::pair<std::string_view, double>, 6> k_short = {
        {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", k_day_ms}, {"w", 7 * k_day_ms}}};
    for (const auto& [name, scale] : k_short) {
        if (word == name) return scale;
    }
    if (word.ends_with('s')) word.remove_suffix(1);
    constexpr std::array<std::pair<std::string_view, double>, 10> k_long = {{{"millisecond", 1},
                                                                             {"sec", 1000},
                                                                             {"second", 1000},
                                                                             {"min", 60'000},
                                                                             {"minute", 60'000},
                                                                             {"hr", 3'600'000},
                                                                             {"hour", 3'600'000},
                                                                             {"day", k_day_ms},
                                                                             {"week", 7 * k_day_ms},
                                                                             {"month", 30 * k_day_ms}}};
    for (const auto& [name, scale] : k_long) {
        if (word == name) return scale;
    }
    return 0;
}

// "3 days 4 hours", "1h2m3s", "1.5s", "about an hour": milliseconds; nullopt: none.
std::optional<double> duration_of(const std::vector<std::string>& words) {
    std::optional<double> sum;
    std::optional<double> count;  // the number before a unit
    for (const std::string& word : words) {
        if (word == "and" || word == "about" || word == "approximately") continue;
        if (word == "a" || word == "an") {
            count = 1;
            continue;
        }
        std::string_view rest = word;
        while (!rest.empty()) {
            if (is_digit(rest.front())) {
                if (count) return sum;
                const std::size_t digits = std::min(rest.find_first_not_of("0123456789."), rest.size());
                count = text::parse_double(rest.substr(0, digits));
                if (!count) return sum;
                rest.remove_prefix(digits);
                continue;
            }
            const std::size_t letters = std::min(rest.find_first_of("0123456789"), rest.size());
            const double unit = count ? unit_of(rest.substr(0, letters)) : 0;
            if (unit == 0) return sum;
            sum = sum.value_or(0) + *count * unit;
            count.reset();
            rest.remove_prefix(letters);
        }
    }
    return sum;
}

}  // namespace

std::optional<WallTime> reset_time_in(std::string_view message, WallTime now) {
    std::optional<WallTime> at;
    for (const std::string_view lead : {"try again in ", "resets in ", "reset in "}) {
        const auto wait = duration_of(words_after(message, lead));
        constexpr double k_longest = 366 * k_day_ms;
        if (!at && wait) at = now + milliseconds(static_cast<std::int64_t>(std::min(*wait, k_longest)));
    }
    for (const std::string_view lead : {"try again at ", "try again after ", "try again on ", "resets at ", "resets ",
                                        "reset at ", "available at "}) {
        if (!at) at = TimeOfWords(now).read(words_after(message, lead));
    }
    if (!at || *at + k_margin <= now) return std::nullopt;
    return *at + k_margin;
}

std::optional<milliseconds> retry_after_in(std::string_view message) {
    constexpr double k_longest = 7 * k_day_ms;
    const auto wait = duration_of(words_after(message, "try again in "));
    if (!wait) return std::nullopt;
    return milliseconds(static_cast<std::int64_t>(std::min(*wait, k_longest)));
}

namespace {

constexpr int k_panic = 101;

AgentClass class_of_status(int status) {
    if (status == 401 || status == 403) return AgentClass::authentication;
    if (status == 429) return AgentClass::rate_limit;
    return status >= 500 ? AgentClass::server_error : AgentClass::configuration;
}

// The number after `lead`, if there is one.
std::optional<int> number_after(std::string_view text, std::string_view lead) {
    const std::size_t at = text.find(lead);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(at + lead.size());
    const auto number = text::parse_int(rest.substr(0, rest.find_first_not_of("0123456789")));
    if (!number || *number > 999) return std::nullopt;
    return static_cast<int>(*number);
}

// Apostrophes may be typographic, plain or missing.
std::string plain(std::string_view message) {
    std::string text;
    for (std::size_t i = 0; i < message.size(); ++i) {
        if (message.substr(i).starts_with("\xe2\x80\x99")) {
            i += 2;
        } else if (message[i] != '\'') {
            text += message[i];
        }
    }
    return text::to_lower(text);
}

// For a status of 400, the message is the body of the answer.
std::optional<AgentClass> class_of_body(std::string_view message) {
    message = text::trim(message);
    if (!message.starts_with('{')) return std::nullopt;
    const auto body = parse_json(message, "answer");
    if (!body) return std::nullopt;
    const std::string code = json::text(json::field(*body, "error"), "code");
    if (code == "context_length_exceeded") return AgentClass::context_full;
    if (code == "invalid_prompt") return AgentClass::invalid_prompt;
    return json::field(*body, "error").is_object() || json::field(*body, "detail").is_string()
               ? std::optional(AgentClass::configuration)
               : std::nullopt;
}

struct Phrase {
    std::string_view words;
    AgentClass kind;
};
// In this order, because a server's message may quote words of a later row.
constexpr std::array<Phrase, 30> k_phrases = {{
    {"thread/resume failed", AgentClass::thread_missing},
    {"hit your usage limit", AgentClass::usage_limit},
    {"usage_limit_reached", AgentClass::usage_limit},
    {"quota exceeded", AgentClass::quota},
    {"check your plan and billing", AgentClass::quota},
    {"to use codex with your chatgpt plan", AgentClass::quota},
    {"usage limit", AgentClass::usage_limit},
    {"experiencing high demand", AgentClass::server_error},
    {"stream disconnected before completion", AgentClass::stream_cut},
    {"rate limit", AgentClass::rate_limit},
    {"at capacity", AgentClass::overloaded},
    {"ran out of room in the model", AgentClass::context_full},
    {"context window", AgentClass::context_full},
    {"connection failed", AgentClass::unreachable},
    {"error sending request", AgentClass::unreachable},
    {"missing environment variable", AgentClass::configuration},
    {"incomplete response returned", AgentClass::incomplete},
    {"invalid prompt", AgentClass::invalid_prompt},
    {"invalid_prompt", AgentClass::invalid_prompt},
    {"usage policy", AgentClass::invalid_prompt},
    {"model_not_found", AgentClass::configuration},
    {"does not exist or you do not have access", AgentClass::configuration},
    {"model not found", AgentClass::configuration},
    {"model does not exist", AgentClass::configuration},
    {"model is not supported", AgentClass::configuration},
    {"not logged in", AgentClass::authentication},
    {"codex login", AgentClass::authentication},
    {"log in again", AgentClass::authentication},
    {"sign in again", AgentClass::authentication},
    {"unauthorized", AgentClass::authentication},
}};

// Credits come back with the next period, or are bought: the text is also seen where only a window is used up.
bool says_credits_are_gone(std::string_view text) {
    if (text.find("spend cap") != std::string_view::npos) return true;
    if (text.find("credit") == std::string_view::npos) return false;
    for (const std::string_view word :
         {"out of credit", "ran out of", "run out of", "no credit", "no more credit", "used up", "used all", "depleted",
          "exhausted", "insufficient", "not enough credit", "too low"}) {
        if (text.find(word) != std::string_view::npos) return true;
    }
    return false;
}

// What other programs print, in lower case: names of their libraries' errors, and the system's words.
constexpr std::array<Phrase, 52> k_provider_phrases = {{
    {"usage limit", AgentClass::usage_limit},
    {"usage_limit", AgentClass::usage_limit},
    {"hour limit reached", AgentClass::usage_limit},
    {"weekly limit reached", AgentClass::usage_limit},
    {"session limit reached", AgentClass::usage_limit},
    {"insufficient_quota", AgentClass::usage_limit},
    {"exceeded your current quota", AgentClass::usage_limit},
    {"quota exceeded", AgentClass::usage_limit},
    {"rate limit", AgentClass::rate_limit},
    {"ratelimit", AgentClass::rate_limit},
    {"rate_limit", AgentClass::rate_limit},
    {"too many requests", AgentClass::rate_limit},
    {"error code: 429", AgentClass::rate_limit},
    {"overloaded", AgentClass::overloaded},
    {"at capacity", AgentClass::overloaded},
    {"internal server error", AgentClass::server_error},
    {"internalservererror", AgentClass::server_error},
    {"bad gateway", AgentClass::server_error},
    {"service unavailable", AgentClass::server_error},
    {"serviceunavailable", AgentClass::server_error},
    {"gateway timeout", AgentClass::server_error},
    {"gateway time-out", AgentClass::server_error},
    {"error code: 50", AgentClass::server_error},
    {"error code: 52", AgentClass::server_error},
    {"high demand", AgentClass::server_error},
    {"temporarily unavailable", AgentClass::server_error},
    {"stream disconnected", AgentClass::stream_cut},
    {"connection error", AgentClass::unreachable},
    {"connectionerror", AgentClass::unreachable},
    {"connecterror", AgentClass::unreachable},
    {"connecttimeout", AgentClass::unreachable},
    {"connection refused", AgentClass::unreachable},
    {"connection reset", AgentClass::unreachable},
    {"connection aborted", AgentClass::unreachable},
    {"connection failed", AgentClass::unreachable},
    {"connection timed out", AgentClass::unreachable},
    {"failed to connect", AgentClass::unreachable},
    {"unable to connect", AgentClass::unreachable},
    {"error sending request", AgentClass::unreachable},
    {"apitimeouterror", AgentClass::unreachable},
    {"request timed out", AgentClass::unreachable},
    {"fetch failed", AgentClass::unreachable},
    {"socket hang up", AgentClass::unreachable},
    {"could not resolve host", AgentClass::unreachable},
    {"name or service not known", AgentClass::unreachable},
    {"failure in name resolution", AgentClass::unreachable},
    {"network is unreachable", AgentClass::unreachable},
    {"no route to host", AgentClass::unreachable},
    {"getaddrinfo", AgentClass::unreachable},
    {"econnre", AgentClass::unreachable},
    {"etimedout", AgentClass::unreachable},
    {"max retries exceeded", AgentClass::unreachable},
}};

AgentClass class_of_text(std::string_view message) {
    if (const auto kind = class_of_body(message)) return *kind;
    const std::string text = plain(message);
    if (const auto status = number_after(text, "unexpected status ")) return class_of_status(*status);
    if (const auto status = number_after(text, "last status: ")) return class_of_status(*status);
    if (says_credits_are_gone(text)) return AgentClass::usage_limit;
    for (const Phrase& phrase : k_phrases) {
        if (text.find(phrase.words) != std::string::npos) return phrase.kind;
    }
    return AgentClass::failed;
}

void explain(Verdict& verdict, AgentClass kind, std::string_view reason) {
    verdict.kind = kind;
    verdict.action = action_of(kind);
    const auto line = text::trim(reason);
    verdict.reason = redact(text::repair_utf8(line.substr(0, line.find('\n'))));
    if (kind == AgentClass::configuration) verdict.stop_reason = "codex-config";
    if (kind == AgentClass::authentication) verdict.stop_reason = "codex-auth";
    if (kind == AgentClass::quota) verdict.stop_reason = "codex-quota";
}

// Sets when a retry makes sense.
void add_times(Verdict& verdict, const Evidence& evidence) {
    if (verdict.kind == AgentClass::rate_limit || verdict.kind == AgentClass::overloaded) {
        verdict.retry_after = retry_after_in(evidence.failure);
    }
    if (verdict.kind != AgentClass::usage_limit) return;
    verdict.not_before = reset_time_in(evidence.failure, evidence.now);
    if (verdict.not_before) return;
    constexpr double k_used_up = 95;
    for (const auto& window : evidence.rate_windows) {
        if (window.used_percent < k_used_up || !window.resets_at || *window.resets_at <= evidence.now) continue;
        verdict.not_before = std::max(verdict.not_before.value_or(*window.resets_at), *window.resets_at);
    }
    if (verdict.not_before) *verdict.not_before += std::chrono::minutes(1);
}

bool is_ours_to_end(AgentClass kind) { return kind != AgentClass::stopped && kind != AgentClass::thread_missing; }

void judge_end(Verdict& verdict, const Evidence& evidence) {
    const int code = evidence.exit_code;
    const std::string exited = fmt::format("exited with code {}", code);
    const std::string& complaint = evidence.first_complaint.empty() ? exited : evidence.first_complaint;
    // codex states why it rejects something. A program that says nothing is another one, and may have failed for any
    // reason.
    const bool said = !evidence.first_complaint.empty();
    if (code == 2 && said) return explain(verdict, AgentClass::configuration, complaint);
    if (said && code > 0 && code != k_panic && !evidence.thread_started && !evidence.turn_failed &&
        evidence.failure.empty()) {
        const AgentClass kind = class_of_text(evidence.first_complaint);
        return explain(verdict, kind == AgentClass::failed ? AgentClass::configuration : kind, complaint);
    }
    if (evidence.turn_failed || (!evidence.events && code == 1 && !evidence.failure.empty())) {
        const std::string& why = evidence.failure.empty() ? complaint : evidence.failure;
        return explain(verdict, class_of_failure(evidence.failure, evidence.info), why);
    }
    if (code < 0) {
        return explain(verdict, AgentClass::crashed,
                       fmt::format("was killed by signal {} ({})", -code, strsignal(-code)));
    }
    if (code == k_panic) return explain(verdict, AgentClass::crashed, complaint);
    if (code == 0 && evidence.turn_completed) {
        verdict.exit_status = 0;
        return explain(verdict, AgentClass::ok, "");
    }
    if (code == 0) return explain(verdict, AgentClass::protocol, "ended well without having completed its turn");
    if (evidence.turn_completed) {
        return explain(verdict, AgentClass::protocol, fmt::format("completed its turn, then {}", exited));
    }
    if (evidence.aborted) return explain(verdict, AgentClass::stopped, "was interrupted by someone else");
    if (evidence.info || !evidence.failure.empty()) {
        return explain(verdict, class_of_failure(evidence.failure, evidence.info), evidence.failure);
    }
    explain(verdict, AgentClass::failed, complaint);
}

}  // namespace

AgentClass class_of_failure(std::string_view message, const std::optional<ErrorInfo>& info) {
    const AgentClass by_text = class_of_text(message);
    if (!info || info->name == "other") return by_text;
    const auto status = info->http_status;
    if (info->name == "http_connection_failed" || info->name == "response_too_many_failed_attempts" ||
        info->name == "response_stream_connection_failed") {
        return status ? class_of_status(*status) : AgentClass::unreachable;
    }
    // Three causes share this name; waiting helps with only one.
    if (info->name == "usage_limit_exceeded") {
        const bool again = plain(message).find("try again") != std::string::npos;
        return again || by_text == AgentClass::usage_limit ? AgentClass::usage_limit : AgentClass::quota;
    }
    constexpr std::array<Phrase, 8> k_names = {{{"model_not_found", AgentClass::configuration},
                                                {"bad_request", AgentClass::configuration},
                                                {"unauthorized", AgentClass::authentication},
                                                {"internal_server_error", AgentClass::server_error},
                                                {"rate_limit_exceeded", AgentClass::rate_limit},
                                                {"server_overloaded", AgentClass::overloaded},
                                                {"context_window_exceeded", AgentClass::context_full},
                                                {"invalid_prompt", AgentClass::invalid_prompt}}};
    for (const Phrase& row : k_names) {
        if (row.words == info->name) return row.kind;
    }
    return by_text;
}

AgentAction action_of(AgentClass kind) {
    switch (kind) {
        case AgentClass::ok: return AgentAction::proceed;
        case AgentClass::configuration:
        case AgentClass::authentication:
        case AgentClass::quota: return AgentAction::stop_loop;
        case AgentClass::usage_limit: return AgentAction::wait_until;
        case AgentClass::rate_limit:
        case AgentClass::overloaded:
        case AgentClass::unreachable: return AgentAction::back_off;
        case AgentClass::context_full:
        case AgentClass::thread_missing: return AgentAction::fresh_thread;
        case AgentClass::incomplete: return AgentAction::retry_once;
        case AgentClass::server_error:
        case AgentClass::stream_cut:
        case AgentClass::hang:
        case AgentClass::wall_limit:
        case AgentClass::crashed:
        case AgentClass::protocol:
        case AgentClass::failed: return AgentAction::retry;
        case AgentClass::invalid_prompt:
        case AgentClass::token_limit:
        case AgentClass::compaction_limit:
        case AgentClass::request_limit:
        case AgentClass::stopped: return AgentAction::count;
    }
    return AgentAction::count;
}

std::optional<Verdict> provider_trouble(std::string_view last_lines, WallTime now) {
    const auto lines = text::split(last_lines, '\n');
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
        const std::string words = plain(*line);
        std::optional<AgentClass> kind;
        if (says_credits_are_gone(words)) kind = AgentClass::usage_limit;
        for (const Phrase& phrase : k_provider_phrases) {
            if (!kind && words.find(phrase.words) != std::string::npos) kind = phrase.kind;
        }
        if (!kind) continue;
        Verdict verdict;
        explain(verdict, *kind, *line);
        verdict.explained = true;
        Evidence evidence;
        evidence.failure = *line;
        evidence.now = now;
        add_times(verdict, evidence);
        return verdict;
    }
    return std::nullopt;
}

Verdict judge(const Evidence& evidence) {
    constexpr int k_our_limit = 124;
    constexpr int k_interrupted = 130;
    constexpr int k_signal_base = 128;
    Verdict verdict;
    const int code = evidence.exit_code;
    verdict.exit_status = code < 0 ? k_signal_base - code : std::max(code, 1);
    if (evidence.our_doing) {
        explain(verdict, *evidence.our_doing, evidence.our_reason);
        if (is_ours_to_end(verdict.kind)) verdict.exit_status = k_our_limit;
        if (verdict.kind == AgentClass::stopped) verdict.exit_status = k_interrupted;
        return verdict;
    }
    judge_end(verdict, evidence);
    verdict.explained = verdict.kind != AgentClass::ok && !evidence.failure.empty();
    add_times(verdict, evidence);
    return verdict;
}

}  // namespace gdnctl::codex
