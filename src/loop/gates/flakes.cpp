#include "loop/gates/flakes.h"

#include <algorithm>

#include "core/json.h"
#include "platform/fs.h"
#include "platform/journal.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_flakes_limit = std::size_t{64} << 20;

}  // namespace

Status append_flake(const std::filesystem::path& log_dir, FlakeSighting sighting, WallTime now) {
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(log_dir / "flakes.jsonl"));
    const Json line = {{"v", 1},
                       {"ts", format_iso8601(now)},
                       {"run", sighting.run},
                       {"iteration", sighting.iteration},
                       {"test", sighting.test},
                       {"passed_alone", sighting.passed_alone},
                       {"max_abs", sighting.max_abs ? Json(*sighting.max_abs) : Json()},
                       {"limit", sighting.limit ? Json(*sighting.limit) : Json()}};
    return journal.append(gdnctl::to_text(line));
}

std::vector<FlakeSighting> parse_flakes(std::string_view text) {
    std::vector<FlakeSighting> list;
    for (const std::string& record : parse_journal(text).records) {
        const Json line = Json::parse(record, nullptr, false);
        if (!line.is_object() || json::text(line, "test").empty()) continue;
        FlakeSighting one;
        one.test = json::text(line, "test");
        one.run = json::text(line, "run");
        one.time = json::text(line, "ts");
        one.iteration = static_cast<int>(json::integer(line, "iteration").value_or(one.iteration));
        one.passed_alone = json::boolean(line, "passed_alone").value_or(false);
        one.max_abs = json::number(line, "max_abs");
        one.limit = json::number(line, "limit");
        list.push_back(std::move(one));
    }
    return list;
}

Result<std::vector<FlakeSighting>> read_flakes(const std::filesystem::path& log_dir) {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(log_dir / "flakes.jsonl", k_flakes_limit));
    return parse_flakes(text ? std::string_view(*text) : std::string_view());
}

std::vector<FlakeView> flake_table(std::span<const FlakeSighting> sightings) {
    std::vector<FlakeView> table;
    for (const FlakeSighting& one : sightings) {
        auto at =
            std::find_if(table.begin(), table.end(), [&](const FlakeView& view) { return view.test == one.test; });
        if (at == table.end()) {
            at = table.insert(table.end(), FlakeView{});
            at->test = one.test;
            at->first = one.time;
        }
        ++at->seen;
        at->passed_alone += one.passed_alone ? 1 : 0;
        if (one.max_abs && (!at->largest || *one.max_abs > *at->largest)) at->largest = one.max_abs;
        at->last = one.time;
    }
    std::stable_sort(table.begin(), table.end(), [](const auto& a, const auto& b) { return a.seen > b.seen; });
    return table;
}

}  // namespace gdnctl::loop
