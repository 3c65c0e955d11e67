#include "runlog/lint/lint_records.h"

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "runlog/records/gain.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::runlog {

namespace {

RecordFacts facts_of(const Json& record) {
    RecordFacts facts;
    facts.id = id_of(record);
    const IterationNumber iteration = iteration_of(record);
    facts.number = iteration.number;
    facts.suffix = iteration.suffix;
    facts.outcome = json::text(record, "outcome");
    facts.move = json::text_at(record, "/idea/move");
    facts.files = json::texts(record, "files");
    const std::string decision = json::text(record, "decision");
    facts.champion = decision == "promoted" || decision == "baseline" || decision == "promote_corrupt_champion";
    if (const Json* fingerprint = json::find_at(record, "/base/fingerprint")) facts.fingerprint = to_text(*fingerprint);
    if (const Json* metrics = json::object(record, "metrics")) {
        for (const auto& [key, value] : metrics->items()) {
            facts.metrics.push_back({key, json::number(value, "before"), json::number(value, "after")});
        }
    }
    facts.measured_anew = json::integer_at(record, "/gain/pairs").value_or(0) > 0;
    facts.gain_fault = gain_fault(record);
    return facts;
}

}  // namespace

Result<RecordFactsFile> read_record_facts(std::string_view jsonl, std::string_view name) {
    GDNCTL_TRY_ASSIGN(RecordLines lines, parse_records(jsonl, name));
    RecordFactsFile file;
    file.warnings = std::move(lines.warnings);
    for (const Json& record : current_records(lines.records)) {
        if (!is_experiment(record)) file.records.push_back(facts_of(record));
    }
    return file;
}

}  // namespace gdnctl::runlog
