#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "sweep/report.h"

namespace gdnctl::sweep {

namespace {

Json text_or_unknown(const std::string& value) { return value.empty() ? Json("unknown") : Json(value); }

Json sizes_json(const std::optional<BlockSizes>& sizes) {
    if (!sizes) return nullptr;
    return {{"b_block_size", sizes->b}, {"h_block_size", sizes->h}, {"v_block_size", sizes->v}};
}

Json shape_json(const Record& r) {
    Json shape;
    const std::array<std::pair<const char*, const std::optional<std::int64_t>*>, 3> parts = {
        {{"batch", &r.kernel_batch}, {"hidden", &r.hidden}, {"vocab", &r.vocab}}};
    for (const auto& [name, value] : parts) shape[name] = *value ? Json(**value) : Json("unknown");
    return shape;
}

// A figure that is not finite is the word that Python has for it.
Json printed_json(const Record& r) {
    Json printed = Json::object();
    for (const auto& [name, value] : r.figures) {
        const bool whole = std::abs(value) < 9e15 && value == std::floor(value);
        printed[name] = std::isnan(value)   ? Json("NaN")
                        : std::isinf(value) ? Json(value > 0 ? "Infinity" : "-Infinity")
                        : whole             ? Json(static_cast<std::int64_t>(value))
                                            : Json(value);
    }
    return printed;
}

Json result_json(const Measured& m) {
    const Record& r = m.record;
    Json out;
    out["source"] = {{"file", r.file}, {"line", r.line}};
    out["script"] = to_text(r.script);
    out["label"] = text_or_unknown(r.label);
    out["implementation"] = text_or_unknown(r.implementation);
    out["status"] = to_text(r.status);
    const bool failed = r.status == ResultStatus::failed;
    out["failure_class"] = failed && r.failure.kind ? Json(to_text(*r.failure.kind)) : Json();
    out["error"] = r.error.empty() ? Json() : Json(r.error.substr(0, r.error.find('\n')));
    out["vmem_used_bytes"] =
        r.failure.vmem_used_bytes ? Json(static_cast<std::int64_t>(*r.failure.vmem_used_bytes)) : Json();
    out["vmem_limit_bytes"] =
        r.failure.vmem_limit_bytes ? Json(static_cast<std::int64_t>(*r.failure.vmem_limit_bytes)) : Json();
    out["shape"] = shape_json(r);
    out["x_dtype"] = text_or_unknown(r.x_dtype);
    out["accum_dtype"] = text_or_unknown(r.accum_dtype);
    out["device_kind"] = text_or_unknown(r.device_kind);
    out["sizes"] = sizes_json(r.sizes);
    out["bucket"] = m.bucket ? Json(*m.bucket) : Json();
    out["forward_s"] = json::or_null(m.forward_s);
    out["step_s"] = json::or_null(m.step_s);
    out["forward_tok_s"] = json::or_null(m.forward_tok_s);
    out["step_tok_s"] = json::or_null(m.step_tok_s);
    out["combined_tok_s"] = json::or_null(m.combined_tok_s);
    out["forward_mfu"] = json::or_null(m.forward_mfu);
    out["step_mfu"] = json::or_null(m.step_mfu);
    out["spread"] = r.spread
                        ? Json{{"runs", r.spread->runs}, {"median_s", r.spread->median_s}, {"mad_s", r.spread->mad_s}}
                        : Json();
    out["corrections"] = Json::array();
    for (const Correction& c : m.corrections) {
        out["corrections"].push_back({{"kind", c.kind}, {"factor", c.factor}, {"text", c.text}});
    }
    out["flags"] = m.flags;
    out["printed"] = printed_json(r);
    return out;
}

Json best_json(const Measured& m) {
    const Record& r = m.record;
    return {{"bucket", m.bucket ? Json(*m.bucket) : Json()},
            {"device_kind", text_or_unknown(r.device_kind)},
            {"shape", shape_json(r)},
            {"x_dtype", text_or_unknown(r.x_dtype)},
            {"implementation", text_or_unknown(r.implementation)},
            {"label", text_or_unknown(r.label)},
            {"sizes", sizes_json(r.sizes)},
            {"step_tok_s", json::or_null(m.step_tok_s)}};
}

}  // namespace

Json report_json(const Report& report) {
    Json out = Json::object();
    std::int64_t ok = 0;
    Json failures = Json::object();
    for (const Measured& m : report.results) {
        const Record& r = m.record;
        if (r.status == ResultStatus::ok) ++ok;
        if (r.status != ResultStatus::failed || !r.failure.kind) continue;
        Json& count = failures[std::string(to_text(*r.failure.kind))];
        count = count.is_null() ? 1 : count.get<std::int64_t>() + 1;
    }
    const auto all = static_cast<std::int64_t>(report.results.size());
    out["counts"] = {{"configs", all}, {"ok", ok}, {"failed", all - ok}};
    out["failures"] = std::move(failures);
    out["results"] = Json::array();
    for (const Measured& m : report.results) out["results"].push_back(result_json(m));
    out["best"] = Json::array();
    for (const std::size_t i : report.best) out["best"].push_back(best_json(report.results[i]));
    if (report.base) {
        out["comparisons"] = Json::array();
        for (const Comparison& c : report.comparisons) {
            out["comparisons"].push_back({{"shape", to_json(c.shape)},
                                          {"device_kind", text_or_unknown(c.device_kind)},
                                          {"dtype", text_or_unknown(c.dtype)},
                                          {"base", c.base},
                                          {"implementation", text_or_unknown(c.implementation)},
                                          {"forward_ratio", json::or_null(c.forward_ratio)},
                                          {"step_ratio", json::or_null(c.step_ratio)},
                                          {"combined_ratio", json::or_null(c.combined_ratio)}});
        }
    }
    out["warnings"] = Json::array();
    for (const Warning& w : report.warnings) {
        out["warnings"].push_back(
            {{"source", {{"file", w.file}, {"line", w.line}}}, {"kind", w.kind}, {"text", w.text}});
    }
    return out;
}

}  // namespace gdnctl::sweep
