#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "runlog/import/import.h"
#include "runlog/parse/block.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

Json import_experiment(const ExperimentEntry& entry, std::size_t index) {
    const IterationNumber number{static_cast<std::int64_t>(index), {}};
    const auto date = parse_iso8601(entry.date);
    Json record = empty_record("import", number, date.value_or(WallTime{}));
    record["id"] = date ? make_record_id(*date, number) : "import-" + number.text();
    if (!date) record["started_at"] = nullptr;
    record["kind"] = "experiment";
    record["source"] = "import";
    record["title"] = std::string(entry.name);
    record["raw"] = {{"heading", std::string(entry.heading.text)}, {"digest", entry_digest(entry.text)}};
    Json sections = Json::object();
    for (const ExperimentSection& section : entry.sections) {
        sections[std::string(section.name)] = std::string(text::trim(section.body));
    }
    for (const NumberedExperiment& experiment : entry.numbered) {
        sections[fmt::format("Experiment {} - {}", experiment.number, experiment.title)] =
            std::string(text::trim(experiment.body));
    }
    const auto take = [&](const char* name, const char* pointer) {
        if (const ExperimentSection* section = entry.section(name)) {
            record[Json::json_pointer(pointer)] = std::string(text::trim(section->body));
        }
    };
    take("Hypothesis", "/idea/hypothesis");
    take("Goal", "/idea/title");
    take("Outcome", "/assessment");
    take("Next Step", "/next_hypothesis");
    record["sections"] = std::move(sections);
    record["confidence"] = {{"started_at", date ? 1.0 : 0.0}, {"sections", 1.0}};
    return record;
}

namespace {

const GeneratedBlock* block_of(const std::vector<GeneratedBlock>& blocks, std::string_view heading) {
    for (const GeneratedBlock& block : blocks) {
        if (heading.data() >= block.whole.data() && heading.data() < block.whole.data() + block.whole.size())
            return &block;
    }
    return nullptr;
}

// A copy without absent fields, in memory of exactly the size needed.
Json without_absent(const Json& value) {
    if (!value.is_object()) return value;
    Json kept = Json::object();
    for (const auto& [key, item] : value.items()) {
        if (item.is_null() || (item.is_structured() && item.empty())) continue;
        kept[key] = without_absent(item);
    }
    return kept;
}

class LogImporter {
public:
    LogImporter(std::span<const Json> existing, WallTime now, bool brief) : m_now(now), m_brief(brief) {
        const std::vector<Json> all(existing.begin(), existing.end());
        for (const Json& record : all) m_ids[id_of(record)] = true;
        for (Json& record : current_records(all)) {
            if (is_import(record)) m_known.emplace(key_of(record), std::move(record));
        }
    }

    bool knows(std::string_view id) const { return m_ids.contains(std::string(id)); }

    void add(Json record, Imported& imported) {
        make_public(record);
        const auto [first, last] = m_known.equal_range(key_of(record));
        for (auto it = first; it != last; ++it) {
            if (json::text_at(it->second, "/raw/digest") == json::text_at(record, "/raw/digest")) {
                m_known.erase(it);
                ++imported.unchanged;
                return;
            }
        }
        if (first != last) {  // the entry changed since its import
            Json newer = superseding(first->second, m_now, "the entry changed and was imported again");
            for (const auto& [key, value] : record.items()) {
                if (key != "id" && key != "notes") newer[key] = value;
            }
            m_known.erase(first);
            record = std::move(newer);
        } else {
            const std::string id = id_of(record);
            for (int n = 1; m_ids.contains(id_of(record)); ++n) record["id"] = fmt::format("{}-{}", id, n + 1);
        }
        m_ids[id_of(record)] = true;
        if (m_brief) {
            record.erase("confidence");
            record.erase("raw");
            record = without_absent(record);
        }
        imported.records.push_back(std::move(record));
    }

private:
    static std::string key_of(const Json& record) {
        return is_experiment(record) ? json::text_at(record, "/raw/heading") : iteration_of(record).text();
    }

    WallTime m_now;
    bool m_brief;
    std::map<std::string, bool> m_ids;
    std::multimap<std::string, Json> m_known;  // earlier imports by iteration
};

}  // namespace

Result<Imported> import_log(std::string_view log, std::span<const Json> existing, WallTime now,
                            const ImportOptions& options) {
    GDNCTL_TRY_ASSIGN(const auto document, parse_document(log));
    const auto blocks = find_blocks(document.text);
    LogImporter importer(existing, now, options.brief);
    const auto wanted = [&](std::int64_t number, std::string_view suffix) {
        return !options.only || (options.only->number == number && options.only->suffix == suffix);
    };
    const auto is_rendered = [&](std::string_view heading) {
        const GeneratedBlock* block = block_of(blocks, heading);
        return block != nullptr && !(options.lost && !importer.knows(block->id));
    };
    Imported imported;
    for (const EntryHead& head : document.entries) {
        if (!wanted(head.number, head.suffix)) continue;
        if (is_rendered(head.heading)) {
            ++imported.generated;
        } else {
            importer.add(import_entry(head), imported);
        }
    }
    if (document.kind != Template::experiment) return imported;
    const auto experiments = parse_experiments(document);
    for (std::size_t i = 0; i < experiments.size(); ++i) {
        if (!wanted(static_cast<std::int64_t>(i), {})) continue;
        if (is_rendered(experiments[i].heading.text)) {
            ++imported.generated;
        } else {
            importer.add(import_experiment(experiments[i], i), imported);
        }
    }
    return imported;
}

}  // namespace gdnctl::runlog
