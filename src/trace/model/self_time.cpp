#include <algorithm>
#include <cmath>

#include "trace/model/model.h"

namespace gdnctl::trace {

namespace {

struct OpenEvent {
    std::size_t at;
    Ps end;
    bool has_flop_child;
};

// Gives the time from `from` to `to` to the open events, the last started first, and drops those that have ended.
Ps give_time(std::vector<OpenEvent>& open, std::vector<Event>& events, Ps from, Ps to) {
    while (!open.empty() && from < to) {
        const OpenEvent& top = open.back();
        if (top.end <= from) {
            open.pop_back();
            continue;
        }
        const Ps until = std::min(top.end, to);
        events[top.at].self += until - from;
        from = until;
    }
    return std::max(from, to);
}

}  // namespace

void sort_events(std::vector<Event>& events) {
    const auto earlier = [](const Event& a, const Event& b) {
        return a.start != b.start ? a.start < b.start : a.duration > b.duration;
    };
    if (!std::is_sorted(events.begin(), events.end(), earlier)) {
        std::stable_sort(events.begin(), events.end(), earlier);
    }
}

void set_self_times(std::vector<Event>& events, const std::vector<Op>& ops, std::vector<OpTime>& times) {
    std::vector<OpenEvent> open;
    Ps now = events.empty() ? 0 : events.front().start;
    for (std::size_t i = 0; i < events.size(); ++i) {
        Event& event = events[i];
        event.self = 0;
        give_time(open, events, now, event.start);
        now = event.start;
        while (!open.empty() && open.back().end <= now) open.pop_back();
        if (flops_of(ops[event.op]).value_or(0) > 0) {
            for (auto parent = open.rbegin(); parent != open.rend() && !parent->has_flop_child; ++parent) {
                parent->has_flop_child = true;
                if (parent->end >= event.start + event.duration) times[events[parent->at].op].has_flop_child = true;
            }
        }
        open.push_back({i, event.start + event.duration, false});
    }
    Ps last = now;
    for (const OpenEvent& one : open) last = std::max(last, one.end);
    give_time(open, events, now, last);
}

Ps round_ps(double ps) { return std::llrint(ps); }

double quantile(std::vector<double> values, double q) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double at = q * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(at);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

double median_deviation(const std::vector<double>& values) {
    const double median = quantile(values, 0.5);
    std::vector<double> distances;
    distances.reserve(values.size());
    for (const double value : values) distances.push_back(value < median ? median - value : value - median);
    return quantile(std::move(distances), 0.5);
}

}  // namespace gdnctl::trace
