#include "trace/report/export.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"

namespace gdnctl::trace {

namespace {

// Spreads events that come in order of start, longer ones first, over lanes in which they nest.
class Lanes {
public:
    std::size_t place(Ps start, Ps end) {
        if (m_last < m_open.size() && fits(m_last, start, end)) return push(m_last, end);
        while (!m_free_at.empty() && m_free_at.top().first <= start) {
            const std::size_t lane = m_free_at.top().second;
            m_free_at.pop();
            if (!fits(lane, start, end)) continue;  // it was used again since
            return push(lane, end);
        }
        m_open.emplace_back();
        return push(m_open.size() - 1, end);
    }

private:
    bool fits(std::size_t lane, Ps start, Ps end) {
        auto& open = m_open[lane];
        while (!open.empty() && open.back() <= start) open.pop_back();
        return open.empty() || open.back() >= end;
    }
    std::size_t push(std::size_t lane, Ps end) {
        if (m_open[lane].empty()) m_free_at.emplace(end, lane);
        m_open[lane].push_back(end);
        return m_last = lane;
    }

    std::vector<std::vector<Ps>> m_open;  // ends of the open events, the outermost first
    using FreeAt = std::pair<Ps, std::size_t>;
    std::priority_queue<FreeAt, std::vector<FreeAt>, std::greater<>> m_free_at;
    std::size_t m_last = 0;
};

std::string json_string(const std::string& text) { return to_text(Json(text)); }

// Picoseconds as microseconds, exactly.
std::string micros(Ps ps) {
    const bool negative = ps < 0;
    const auto value = negative ? ~static_cast<std::uint64_t>(ps) + 1 : static_cast<std::uint64_t>(ps);
    std::string text = fmt::format("{}{}.{:06}", negative ? "-" : "", value / 1'000'000, value % 1'000'000);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
    return text;
}

class ChromeWriter {
public:
    ChromeWriter(RawTrace& trace, const std::function<bool(std::string_view)>& out) : m_trace(trace), m_out(out) {
        m_ops.resize(trace.ops.size());
    }

    std::int64_t write() {
        m_text = R"({"displayTimeUnit":"ns","traceEvents":[)";
        for (std::size_t i = 0; i < m_trace.planes.size() && m_going; ++i) {
            Plane& plane = m_trace.planes[i];
            const auto pid = static_cast<std::int64_t>(i) + 1;
            event(fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", pid,
                              json_string(plane.name)));
            std::int64_t tid = 1;
            for (std::size_t k = 0; k < plane.lines.size() && m_going; ++k) tid += write_line(plane.lines[k], pid, tid);
        }
        m_text += "\n]}\n";
        flush();
        return m_count;
    }

private:
    void event(std::string_view text) {
        m_text += m_first ? "\n" : ",\n";
        m_first = false;
        m_text += text;
        constexpr std::size_t k_piece = std::size_t{1} << 20;
        if (m_text.size() > k_piece) flush();
    }
    void flush() {
        m_going = m_going && m_out(m_text);
        m_text.clear();
    }

    // What is the same for all events of an operation: its name and arguments.
    const std::string& op_text(std::uint32_t index) {
        std::string& text = m_ops[index];
        if (!text.empty()) return text;
        const Op& op = m_trace.ops[index];
        text = fmt::format(R"("name":{})", json_string(op.name));
        std::string args;
        const auto add = [&args](std::string_view key, const std::string& value) {
            if (!value.empty()) args += fmt::format(R"({}"{}":{})", args.empty() ? "" : ",", key, json_string(value));
        };
        add("hlo_module", op.program);
        add("hlo_category", op.category);
        add("tf_op", op.tf_op);
        add("source", op.source);
        add("long_name", op.text);
        if (!args.empty()) text += R"(,"args":{)" + args + "}";
        return text;
    }

    // Returns the number of threads that it takes.
    std::int64_t write_line(Line& line, std::int64_t pid, std::int64_t first_tid) {
        std::stable_sort(line.events.begin(), line.events.end(), [](const Event& a, const Event& b) {
            return a.start != b.start ? a.start < b.start : a.duration > b.duration;
        });
        Lanes lanes;
        std::int64_t threads = 0;
        for (const Event& one : line.events) {
            const std::size_t lane = lanes.place(one.start, one.start + one.duration);
            const std::int64_t tid = first_tid + static_cast<std::int64_t>(lane);
            if (tid >= first_tid + threads) {
                event(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})", pid,
                                  tid, json_string(line.name)));
                ++threads;
            }
            event(fmt::format(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},{}}})", pid, tid, micros(one.start),
                              micros(one.duration), op_text(one.op)));
            ++m_count;
            if (!m_going) break;
        }
        return threads;
    }

    RawTrace& m_trace;
    const std::function<bool(std::string_view)>& m_out;
    std::vector<std::string> m_ops;
    std::string m_text;
    bool m_first = true, m_going = true;
    std::int64_t m_count = 0;
};

}  // namespace

std::int64_t export_chrome(RawTrace& trace, const std::function<bool(std::string_view)>& out) {
    return ChromeWriter(trace, out).write();
}

}  // namespace gdnctl::trace
