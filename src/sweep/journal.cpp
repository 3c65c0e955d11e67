#include "sweep/journal.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/json.h"
#include "core/text.h"

namespace gdnctl::sweep {

namespace {

constexpr std::array<std::string_view, 4> k_events = {"plan", "start", "end", "skip"};

void put_end(Json& out, const RunEnd& end) {
    out["status"] = to_text(end.status);
    out["failure_class"] = end.failure.kind ? Json(to_text(*end.failure.kind)) : Json();
    out["steady_time_s"] = json::or_null(end.steady_time_s);
    out["forward_s"] = json::or_null(end.forward_s);
    out["step_s"] = json::or_null(end.step_s);
    out["wall_s"] = end.wall_s;
    out["time_limit_s"] = end.time_limit_s;
    if (!end.error.empty()) out["error"] = end.error;
    if (end.failure.vmem_used_bytes) out["vmem_used_bytes"] = *end.failure.vmem_used_bytes;
    if (end.failure.vmem_limit_bytes) out["vmem_limit_bytes"] = *end.failure.vmem_limit_bytes;
}

// nullopt: the status is none.
std::optional<RunEnd> parse_end(const Json& object) {
    RunEnd end;
    const std::string status = json::text(object, "status");
    if (status != "ok" && status != "failed" && status != "wrong") return std::nullopt;
    end.status = status == "ok" ? ResultStatus::ok : status == "failed" ? ResultStatus::failed : ResultStatus::wrong;
    end.failure.kind = parse_failure_kind(json::text(object, "failure_class"));
    if (end.status == ResultStatus::failed && !end.failure.kind) end.failure.kind = FailureKind::crashed;
    end.failure.vmem_used_bytes = json::number(object, "vmem_used_bytes");
    end.failure.vmem_limit_bytes = json::number(object, "vmem_limit_bytes");
    end.error = json::text(object, "error");
    end.steady_time_s = json::number(object, "steady_time_s");
    end.forward_s = json::number(object, "forward_s");
    end.step_s = json::number(object, "step_s");
    if (!end.forward_s && !end.step_s) end.step_s = end.steady_time_s;
    end.wall_s = json::number(object, "wall_s").value_or(0);
    end.time_limit_s = json::number(object, "time_limit_s").value_or(0);
    return end;
}

std::optional<double> median(std::vector<double> values) {
    if (values.empty()) return std::nullopt;
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

Json to_json(const Shape& shape) { return {{"batch", shape.batch}, {"hidden", shape.hidden}, {"vocab", shape.vocab}}; }

std::optional<Shape> parse_shape(const Json& value) {
    if (!value.is_object()) return std::nullopt;
    const auto b = json::integer(value, "batch"), h = json::integer(value, "hidden"), v = json::integer(value, "vocab");
    if (!b || !h || !v || *b < 1 || *h < 1 || *v < 1) return std::nullopt;
    return Shape{*b, *h, *v};
}

std::string to_line(const JournalEvent& event) {
    Json out;
    out["schema"] = k_journal_schema;
    out["event"] = k_events[static_cast<std::size_t>(event.kind)];
    out["at"] = event.at;
    if (event.kind == JournalEvent::Kind::plan) {
        out["name"] = event.name;
        out["device_kind"] = event.device_kind;
        out["x_dtype"] = event.x_dtype;
        out["accum_dtype"] = event.accum_dtype;
        out["implementation"] = event.implementation;
        return gdnctl::to_text(out);
    }
    out["key"] = event.key;
    out["label"] = event.label;
    out["shape"] = to_json(event.shape);
    if (event.sizes) {
        out["sizes"] = {
            {"b_block_size", event.sizes->b}, {"h_block_size", event.sizes->h}, {"v_block_size", event.sizes->v}};
    }
    if (event.kind == JournalEvent::Kind::skip) {
        out["status"] = "skipped_estimate";
        return gdnctl::to_text(out);
    }
    out["run"] = event.run;
    if (event.kind == JournalEvent::Kind::start) {
        out["submission_id"] = event.submission_id;
        out["cluster"] = event.cluster;
        if (!event.tpu_name.empty()) out["tpu_name"] = event.tpu_name;
    } else {
        put_end(out, event.end);
    }
    return gdnctl::to_text(out);
}

std::optional<JournalEvent> parse_journal_event(std::string_view line) {
    line = text::trim(line);
    if (!line.starts_with('{') || line.find(k_journal_schema) == std::string_view::npos) return std::nullopt;
    const auto object = parse_json(line, "journal");
    if (!object || !object->is_object() || json::text(*object, "schema") != k_journal_schema) return std::nullopt;
    JournalEvent event;
    const std::string word = json::text(*object, "event");
    const auto kind = std::find(k_events.begin(), k_events.end(), word);
    if (kind == k_events.end()) return std::nullopt;
    event.kind = static_cast<JournalEvent::Kind>(kind - k_events.begin());
    event.at = json::text(*object, "at");
    event.name = json::text(*object, "name");
    event.device_kind = json::text(*object, "device_kind");
    event.x_dtype = json::text(*object, "x_dtype");
    event.accum_dtype = json::text(*object, "accum_dtype");
    event.implementation = json::text(*object, "implementation");
    if (event.kind == JournalEvent::Kind::plan) return event;
    event.key = json::text(*object, "key");
    event.label = json::text(*object, "label");
    const auto shape = object->find("shape");
    const auto parsed = shape == object->end() ? std::nullopt : parse_shape(*shape);
    if (event.key.empty() || !parsed) return std::nullopt;
    event.shape = *parsed;
    if (const auto sizes = object->find("sizes"); sizes != object->end() && sizes->is_object()) {
        const auto b = json::integer(*sizes, "b_block_size"), h = json::integer(*sizes, "h_block_size"),
                   v = json::integer(*sizes, "v_block_size");
        if (b && h && v) event.sizes = BlockSizes{*b, *h, *v};
    }
    event.run = json::integer(*object, "run").value_or(0);
    event.submission_id = json::text(*object, "submission_id");
    event.cluster = json::text(*object, "cluster");
    event.tpu_name = json::text(*object, "tpu_name");
    if (event.kind != JournalEvent::Kind::end) return event;
    auto end = parse_end(*object);
    if (!end) return std::nullopt;
    event.end = std::move(*end);
    return event;
}

const RunEnd* ConfigHistory::verdict(double time_limit_s) const {
    double passed = time_limit_s;  // the highest limit under which it may be, or was, run to its end
    for (const auto& [run, end] : ends) {
        if (end.status == ResultStatus::ok) passed = std::max(passed, end.time_limit_s);
    }
    for (const auto& [run, end] : ends) {
        if (end.status == ResultStatus::ok) continue;
        if (end.status == ResultStatus::wrong) return &end;
        const FailureKind kind = end.failure.kind.value_or(FailureKind::crashed);
        const bool raised = kind == FailureKind::timed_out && end.time_limit_s > 0 && end.time_limit_s < passed;
        if (is_own(kind) && !raised) return &end;
    }
    return nullptr;
}

bool ConfigHistory::has_run(std::int64_t run) const {
    return std::any_of(ends.begin(), ends.end(),
                       [&](const auto& item) { return item.first == run && item.second.status == ResultStatus::ok; });
}

std::vector<double> ConfigHistory::kept_times() const {
    std::vector<double> times;
    for (const auto& [run, end] : ends) {
        if (run > 0 && end.status == ResultStatus::ok && end.time_s()) times.push_back(*end.time_s());
    }
    return times;
}

std::optional<Spread> spread_of(std::vector<double> times) {
    const auto middle = median(times);
    if (!middle) return std::nullopt;
    const auto runs = static_cast<std::int64_t>(times.size());
    for (double& t : times) t = std::abs(t - *middle);
    return Spread{runs, *middle, median(std::move(times)).value_or(0)};
}

bool JournalReader::line(std::string_view text, std::int64_t number) {
    auto event = parse_journal_event(text);
    if (!event) return false;
    if (event->kind == JournalEvent::Kind::plan) {
        m_plan = std::move(*event);
        return true;
    }
    ConfigHistory& config = m_configs[event->key];
    if (config.key.empty()) {
        config.key = event->key;
        config.label = event->label;
        config.shape = event->shape;
        config.line = number;
        m_plans[event->key] = m_plan;
    }
    if (event->sizes) config.sizes = event->sizes;
    if (event->kind == JournalEvent::Kind::start) {
        config.open = std::move(*event);
    } else if (event->kind == JournalEvent::Kind::end) {
        config.open.reset();
        config.ends.emplace_back(event->run, std::move(event->end));
    }
    return true;
}

std::vector<Record> JournalReader::finish() const {
    std::vector<Record> records;
    for (const auto& [key, config] : m_configs) {
        if (config.ends.empty()) continue;
        const JournalEvent& plan = m_plans.at(key);
        Record r;
        r.file = m_file;
        r.line = config.line;
        r.script = Script::sweep;
        r.label = config.label;
        r.implementation = plan.implementation;
        r.device_kind = plan.device_kind;
        r.x_dtype = long_dtype(plan.x_dtype);
        r.accum_dtype = long_dtype(plan.accum_dtype);
        r.sizes = config.sizes ? config.sizes : sizes_of_label(config.label);
        r.global_batch = r.kernel_batch = config.shape.batch;
        r.hidden = config.shape.hidden;
        r.vocab = config.shape.vocab;
        const bool ran = std::any_of(config.ends.begin(), config.ends.end(),
                                     [](const auto& item) { return item.second.status == ResultStatus::ok; });
        const RunEnd* against = config.verdict();
        if (against == nullptr && !ran) against = &config.ends.back().second;
        if (against != nullptr) {
            r.status = against->status;
            r.failure = against->failure;
            r.error = against->error;
        } else {
            r.spread = spread_of(config.kept_times());
            std::vector<double> forward, step;
            for (const auto& [run, end] : config.ends) {
                if (run == 0 || end.status != ResultStatus::ok) continue;
                if (end.forward_s) forward.push_back(*end.forward_s);
                if (end.step_s) step.push_back(*end.step_s);
            }
            if (const auto middle = median(forward)) r.figures.emplace_back("forward_s", *middle);
            if (const auto middle = median(step)) r.figures.emplace_back("step_s", *middle);
        }
        records.push_back(std::move(r));
    }
    std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.line < b.line; });
    return records;
}

}  // namespace gdnctl::sweep
