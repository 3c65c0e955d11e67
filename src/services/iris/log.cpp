// The log of an Iris job.
#include "core/log.h"

#include <algorithm>
#include <deque>

#include "platform/signals.h"
#include "services/iris/answers.h"
#include "services/iris/client.h"

namespace gdnctl::iris {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t k_page_lines = 2000;
constexpr std::size_t k_page_bytes = std::size_t{16} << 20;
constexpr std::size_t k_line_bytes = std::size_t{64} << 20;  // of a page of one line
constexpr std::size_t k_kept_bytes = std::size_t{32} << 20;  // of the last lines of a log
constexpr std::chrono::milliseconds k_quiet{2000};           // after the end: no line for this long is the end
constexpr std::chrono::milliseconds k_late{15000};           // after the end, no line is waited for longer

class IrisLog final : public JobLog {
public:
    IrisLog(std::shared_ptr<Client> client, std::string name, std::shared_ptr<const JobFacts> facts,
            const LogStart& start)
        : m_client(std::move(client)),
          m_source(std::move(name) + "/"),
          m_facts(std::move(facts)),
          m_tail(start.tail),
          m_follow(start.follow),
          m_tries(start.follow ? Tries::one : Tries::patient) {}

    Result<std::size_t> pump(const Sink& sink) override {
        std::size_t passed = 0;
        if (m_tail) {
            GDNCTL_TRY_ASSIGN(const std::string text, last_lines(*m_tail));
            m_tail.reset();
            passed += text.size();
            if ((!text.empty() && !sink(text)) || !m_follow) return passed;
        }
        for (;;) {
            bool wanted = true;
            GDNCTL_TRY_ASSIGN(const std::size_t lines, next_page([&](const std::string& line) {
                                  passed += line.size();
                                  wanted = sink(line) && wanted;
                              }));
            if (!wanted) return passed;
            if (lines > 0) continue;
            if (!more_may_come()) return passed;
            GDNCTL_TRY(wait());
        }
    }

private:
    using Take = std::function<void(const std::string& line)>;

    Status wait() {
        constexpr std::chrono::milliseconds k_pause{250};
        if (m_client->clock().sleep_for(k_pause, m_client->route().stop())) return {};
        return tl::unexpected(stopped_error());
    }

    // A job's last lines reach the log server after its end.
    bool more_may_come() const {
        if (!m_facts->ended) return false;
        const auto now = m_client->clock().monotonic();
        return now - *m_facts->ended < k_late && now - std::max(m_last_line, *m_facts->ended) < k_quiet;
    }

    Json request(std::size_t lines) const {
        Json out;
        out["source"] = m_source;
        out["matchScope"] = "MATCH_SCOPE_PREFIX";
        out["maxLines"] = lines;
        if (!m_facts->cluster.empty()) out["cluster"] = m_facts->cluster;
        return out;
    }

    Result<LogPage> fetch(const Json& request, std::size_t most_bytes) {
        Call call;
        call.method = "FetchLogs";
        call.body = to_text(request);
        call.body_limit = most_bytes;
        GDNCTL_TRY_ASSIGN(Json answer, m_client->ask(call, m_tries));
        return parse_log_page(std::move(answer));
    }

    // Passes on the lines after the cursor, and returns their number. Where they are long, fewer at a time.
    Result<std::size_t> next_page(const Take& take) {
        for (;;) {
            Json wanted = request(m_page);
            wanted["cursor"] = m_cursor;
            auto page = fetch(wanted, m_page > 1 ? k_page_bytes : k_line_bytes);
            if (!page && page.error().kind == ErrorKind::bad_input && m_page > 1) {
                m_page = std::max<std::size_t>(m_page / 4, 1);
                continue;
            }
            if (!page) return tl::unexpected(std::move(page).error());
            m_page = std::min(m_page * 2, k_page_lines);
            return pass(*page, take);
        }
    }

    std::size_t pass(const LogPage& page, const Take& take) {
        for (const LogLine& line : page.lines) {
            if (line.attempt > m_attempt) {
                m_attempt = line.attempt;
                log::info("attempt {} began", m_attempt + 1);
            }
            take(line.text + "\n");
        }
        if (!page.cursor.empty() && page.cursor != m_cursor) {
            m_cursor = page.cursor;
            m_last_line = m_client->clock().monotonic();
        }
        return page.lines.size();
    }

    // The last `count` lines as of now; the log goes on after them.
    Result<std::string> last_lines(std::size_t count) {
        std::deque<std::string> kept;
        std::size_t bytes = 0;
        const Take keep = [&](const std::string& line) {
            kept.push_back(line);
            bytes += line.size();
            while (kept.size() > count || (bytes > k_kept_bytes && kept.size() > 1)) {
                bytes -= kept.front().size();
                kept.pop_front();
            }
        };
        bool whole = count > k_page_lines;
        if (!whole) {
            Json wanted = request(std::max<std::size_t>(count, 1));
            wanted["tail"] = true;
            for (;;) {
                const auto page = fetch(wanted, k_page_bytes);
                whole = !page && page.error().kind == ErrorKind::bad_input;
                if (!page && !whole) return tl::unexpected(page.error());
                if (page) pass(*page, keep);
                // The last lines of a job that has just ended may still be on their way.
                if (whole || m_follow || !more_may_come()) break;
                GDNCTL_TRY(wait());
                kept.clear();
                bytes = 0;
            }
        }
        while (whole) {
            GDNCTL_TRY_ASSIGN(const std::size_t lines, next_page(keep));
            whole = lines > 0;
        }
        std::string text;
        for (const std::string& line : kept) text += line;
        return text;
    }

    std::shared_ptr<Client> m_client;
    std::string m_source;
    std::shared_ptr<const JobFacts> m_facts;
    std::optional<std::size_t> m_tail;
    bool m_follow;
    Tries m_tries;
    std::string m_cursor = "0";
    std::size_t m_page = k_page_lines;
    std::int64_t m_attempt = 0;
    Clock::Monotonic m_last_line{};
};

}  // namespace

std::unique_ptr<JobLog> make_log(std::shared_ptr<Client> client, std::string name,
                                 std::shared_ptr<const JobFacts> facts, const LogStart& start) {
    return std::make_unique<IrisLog>(std::move(client), std::move(name), std::move(facts), start);
}

}  // namespace gdnctl::iris
