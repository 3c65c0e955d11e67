#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "oracle/flashinfer/fields.h"

namespace gdnctl::oracle::flashinfer {

namespace {

struct StatusRow {
    TraceStatus status;
    std::string_view name;
};

constexpr StatusRow k_statuses[] = {
    {TraceStatus::passed, "PASSED"},
    {TraceStatus::incorrect_shape, "INCORRECT_SHAPE"},
    {TraceStatus::incorrect_numerical, "INCORRECT_NUMERICAL"},
    {TraceStatus::incorrect_dtype, "INCORRECT_DTYPE"},
    {TraceStatus::runtime_error, "RUNTIME_ERROR"},
    {TraceStatus::compile_error, "COMPILE_ERROR"},
    {TraceStatus::timeout, "TIMEOUT"},
};

Result<InputSource> parse_source(const Json& value, const Place& at) {
    GDNCTL_TRY(at.must_be_object(value));
    InputSource source;
    // Files that leave out what is a default have no type.
    const char* implied = value.contains("path") ? "safetensors" : value.contains("value") ? "scalar" : "random";
    GDNCTL_TRY_ASSIGN(const std::string type, at.text_or(value, "type", implied));
    if (type == "safetensors") {
        source.kind = InputSource::Kind::safetensors;
        GDNCTL_TRY_ASSIGN(source.path, at.text(value, "path"));
        GDNCTL_TRY_ASSIGN(source.tensor_key, at.text(value, "tensor_key"));
    } else if (type == "scalar") {
        source.kind = InputSource::Kind::scalar;
        const auto found = value.find("value");
        if (found == value.end() || !(found->is_number() || found->is_boolean())) {
            return at.bad("'value' is not a number");
        }
        source.scalar = found->is_boolean() ? (found->get<bool>() ? 1 : 0) : found->get<double>();
    } else if (type != "random") {
        return at.bad(fmt::format("type '{}' is not random, scalar or safetensors", type));
    }
    return source;
}

Result<Workload> parse_workload(const Json& value, const Place& at) {
    Workload w;
    GDNCTL_TRY_ASSIGN(w.uuid, at.text(value, "uuid"));
    GDNCTL_TRY_ASSIGN(const Json* axes, at.object(value, "axes"));
    for (const auto& [name, size] : axes->items()) {
        GDNCTL_TRY_ASSIGN(w.axes[name], at.in("axes").size(*axes, name));
    }
    GDNCTL_TRY_ASSIGN(const Json* inputs, at.object(value, "inputs"));
    for (const auto& [name, source] : inputs->items()) {
        GDNCTL_TRY_ASSIGN(auto parsed, parse_source(source, at.in(fmt::format("input '{}'", name))));
        w.inputs.emplace_back(name, std::move(parsed));
    }
    w.json = to_text(value);
    return w;
}

Result<std::optional<Correctness>> parse_correctness(const Json& evaluation, const Place& at) {
    const auto found = evaluation.find("correctness");
    if (found == evaluation.end() || found->is_null()) return std::nullopt;
    const Place here = at.in("correctness");
    GDNCTL_TRY(here.must_be_object(*found));
    Correctness c;
    GDNCTL_TRY_ASSIGN(c.max_relative_error, here.number_or(*found, "max_relative_error", 0));
    GDNCTL_TRY_ASSIGN(c.max_absolute_error, here.number_or(*found, "max_absolute_error", 0));
    if (c.max_relative_error < 0 || c.max_absolute_error < 0) return here.bad("an error is negative");
    const auto extra = found->find("extra");
    if (extra != found->end() && !extra->is_null()) {
        GDNCTL_TRY(here.in("extra").must_be_object(*extra));
        c.extra = to_text(*extra);
    }
    return c;
}

Result<std::optional<Performance>> parse_performance(const Json& evaluation, const Place& at) {
    const auto found = evaluation.find("performance");
    if (found == evaluation.end() || found->is_null()) return std::nullopt;
    const Place here = at.in("performance");
    GDNCTL_TRY(here.must_be_object(*found));
    Performance p;
    GDNCTL_TRY_ASSIGN(p.latency_ms, here.number_or(*found, "latency_ms", 0));
    GDNCTL_TRY_ASSIGN(p.reference_latency_ms, here.number_or(*found, "reference_latency_ms", 0));
    GDNCTL_TRY_ASSIGN(p.speedup_factor, here.number_or(*found, "speedup_factor", 0));
    if (!(p.latency_ms >= 0 && p.reference_latency_ms >= 0 && p.speedup_factor >= 0)) {
        return here.bad("a figure is negative or not a number");
    }
    return p;
}

// What goes with which status.
Status check_parts(const Evaluation& e, const Place& at) {
    const bool judged = e.status == TraceStatus::passed || e.status == TraceStatus::incorrect_numerical;
    const bool timed = e.status == TraceStatus::passed;
    if (judged != e.correctness.has_value()) {
        return at.bad(fmt::format("{} {} 'correctness'", name_of(e.status), judged ? "needs" : "excludes"));
    }
    if (timed != e.performance.has_value()) {
        return at.bad(fmt::format("{} {} 'performance'", name_of(e.status), timed ? "needs" : "excludes"));
    }
    return {};
}

Result<Evaluation> parse_evaluation(const Json& value, const Place& at) {
    GDNCTL_TRY(at.must_be_object(value));
    Evaluation e;
    GDNCTL_TRY_ASSIGN(const std::string status, at.text(value, "status"));
    const auto* row = std::find_if(std::begin(k_statuses), std::end(k_statuses),
                                   [&](const StatusRow& r) { return r.name == status; });
    if (row == std::end(k_statuses)) return at.bad(fmt::format("status '{}' is not known", status));
    e.status = row->status;
    GDNCTL_TRY_ASSIGN(const Json* environment, at.object(value, "environment"));
    GDNCTL_TRY_ASSIGN(e.hardware, at.in("environment").text(*environment, "hardware"));
    const auto libs = environment->find("libs");
    if (libs != environment->end() && !libs->is_null()) {
        GDNCTL_TRY(at.in("libs").must_be_object(*libs));
        for (const auto& [name, version] : libs->items()) {
            if (!version.is_string()) return at.bad(fmt::format("version of '{}' is not a string", name));
            e.libs.emplace_back(name, version.get<std::string>());
        }
    }
    GDNCTL_TRY_ASSIGN(e.timestamp, at.text(value, "timestamp"));
    GDNCTL_TRY_ASSIGN(e.log, at.text_or(value, "log", ""));
    GDNCTL_TRY_ASSIGN(e.correctness, parse_correctness(value, at));
    GDNCTL_TRY_ASSIGN(e.performance, parse_performance(value, at));
    GDNCTL_TRY(check_parts(e, at));
    return e;
}

// Text that is known to be JSON.
Json stored(const std::string& text) {
    auto value = parse_json(text, "stored JSON");
    return value ? std::move(*value) : Json::object();
}

Json evaluation_json(const Evaluation& e) {
    Json libs = Json::object();
    for (const auto& [name, version] : e.libs) libs[name] = version;
    Json object = {
        {"status", name_of(e.status)}, {"environment", {{"hardware", e.hardware}, {"libs", std::move(libs)}}},
        {"timestamp", e.timestamp},    {"log", e.log},
        {"correctness", nullptr},      {"performance", nullptr}};
    if (e.correctness) {
        const Correctness& c = *e.correctness;
        object["correctness"] = {{"max_relative_error", number_json(c.max_relative_error)},
                                 {"max_absolute_error", number_json(c.max_absolute_error)},
                                 {"extra", c.extra.empty() ? Json(nullptr) : stored(c.extra)}};
    }
    if (e.performance) {
        const Performance& p = *e.performance;
        object["performance"] = {{"latency_ms", number_json(p.latency_ms)},
                                 {"reference_latency_ms", number_json(p.reference_latency_ms)},
                                 {"speedup_factor", number_json(p.speedup_factor)}};
    }
    return object;
}

}  // namespace

std::string_view name_of(TraceStatus status) {
    return std::find_if(std::begin(k_statuses), std::end(k_statuses),
                        [&](const StatusRow& r) { return r.status == status; })
        ->name;
}

const InputSource* Workload::find(std::string_view input) const {
    for (const auto& [name, source] : inputs) {
        if (name == input) return &source;
    }
    return nullptr;
}

Result<Trace> parse_trace(std::string_view line, std::string_view what) {
    GDNCTL_TRY_ASSIGN(const Json object, parse_json(line, what));
    const Place at(what);
    GDNCTL_TRY(at.must_be_object(object));
    Trace t;
    GDNCTL_TRY_ASSIGN(t.definition, at.text(object, "definition"));
    GDNCTL_TRY_ASSIGN(const Json* workload, at.object(object, "workload"));
    GDNCTL_TRY_ASSIGN(t.workload, parse_workload(*workload, at.in("workload")));
    const auto solution = object.find("solution");
    if (solution != object.end() && !solution->is_null()) {
        GDNCTL_TRY_ASSIGN(t.solution, at.text(object, "solution"));
    }
    const auto evaluation = object.find("evaluation");
    if (evaluation != object.end() && !evaluation->is_null()) {
        GDNCTL_TRY_ASSIGN(t.evaluation, parse_evaluation(*evaluation, at.in("evaluation")));
    }
    return t;
}

std::string trace_line(const Trace& trace) {
    Json object = {{"definition", trace.definition}, {"workload", stored(trace.workload.json)}};
    object["solution"] = trace.solution ? Json(*trace.solution) : Json(nullptr);
    object["evaluation"] = trace.evaluation ? evaluation_json(*trace.evaluation) : Json(nullptr);
    return to_text(object);
}

}  // namespace gdnctl::oracle::flashinfer
