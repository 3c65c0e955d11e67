// Records as foreign bytes: the journal, a record rendered into a log, an entry imported, rendered and read again.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "runlog/history/append.h"
#include "runlog/history/summary.h"
#include "runlog/import/import.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"
#include "runlog/render/render.h"

using namespace gdnctl;
using namespace gdnctl::runlog;

namespace {

void use_records(std::string_view jsonl, std::string_view log) {
    const auto lines = parse_records(jsonl, "fuzz");
    if (!lines) return;
    const auto current = current_records(lines->records);
    const auto placement = place_records(log, current, lines->records);
    if (!placement) return;
    if (placement->complete()) {
        const auto again = place_records(placement->text, current, lines->records);
        require(again && again->text == placement->text);  // placing is idempotent
    }
    const auto history = history_of(log, lines->records);
    if (!history) return;
    const auto objective = choose_objective(*history, {});
    summary_text(summarize(*history, objective));
    require(context_pack(*history, objective, 512).size() <= 512);
}

void use_log(std::string_view log) {
    const auto imported = import_log(log, {}, WallTime{});
    if (!imported) return;
    for (const Json& record : imported->records) {
        require(bool(check_record(record, "imported")));
        render_block(record);
    }
    const auto again = import_log(log, imported->records, WallTime{});
    require(again && again->records.empty());  // importing twice adds nothing
    const auto stamp = stamp_last_entry(log, "0123456789abcdef0123456789abcdef01234567");
    if (stamp && stamp->stamped) {
        const auto twice = stamp_last_entry(stamp->text, "deadbeef");
        require(twice && !twice->stamped);
    }
}

}  // namespace

FUZZ(records) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    // Records, a line of four dashes, a log.
    const auto cut = bytes.find("\n----\n");
    const std::string_view jsonl = bytes.substr(0, cut);
    const std::string_view log = cut == std::string_view::npos ? bytes : bytes.substr(cut + 6);
    use_records(jsonl, log);
    use_log(log);
    if (const auto job = parse_json(jsonl, "job")) {
        Json record = empty_record("x", {1, ""}, WallTime{});
        if (add_job(record, *job)) render_block(record);
    }
    return 0;
}
