// Reading fields of foreign JSON: each error says where it is.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "oracle/flashinfer/flashinfer.h"

namespace gdnctl::oracle::flashinfer {

namespace {

// A spot in a file, for messages: "FILE: axis 'num_seqs'".
class Place {
public:
    explicit Place(std::string_view what) : m_what(what) {}
    Place in(std::string_view step) const { return Place(m_what + ": " + std::string(step)); }

    tl::unexpected<Error> bad(std::string_view detail) const;

    Status must_be_object(const Json& value) const;
    // Of an object: a member that must be there, and of that kind. Texts must not be empty.
    Result<std::string> text(const Json& object, std::string_view key) const;
    Result<std::int64_t> size(const Json& object, std::string_view key) const;  // 0 .. 2^40
    Result<const Json*> object(const Json& object, std::string_view key) const;
    Result<const Json*> array(const Json& object, std::string_view key) const;
    // A member that may be missing or null.
    Result<std::string> text_or(const Json& object, std::string_view key, std::string_view otherwise) const;
    Result<bool> flag_or(const Json& object, std::string_view key, bool otherwise) const;
    // A number, or one of the words that stand for what JSON cannot write.
    Result<double> number_or(const Json& object, std::string_view key, double otherwise) const;

private:
    std::string m_what;
};

constexpr std::int64_t k_largest_size = std::int64_t{1} << 40U;

tl::unexpected<Error> Place::bad(std::string_view detail) const {
    return fail(ErrorKind::bad_input, fmt::format("{}: {}", m_what, detail));
}

Status Place::must_be_object(const Json& value) const {
    if (value.is_object()) return {};
    return bad("is not a JSON object");
}

Result<std::string> Place::text(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
        return bad(fmt::format("'{}' is not a non-empty string", key));
    }
    return found->get<std::string>();
}

Result<std::int64_t> Place::size(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > k_largest_size) {
        return bad(fmt::format("'{}' is not a size", key));
    }
    return found->get<std::int64_t>();
}

Result<const Json*> Place::object(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_object()) return bad(fmt::format("'{}' is not a JSON object", key));
    return found;
}

Result<const Json*> Place::array(const Json& object, std::string_view key) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return bad(fmt::format("has no '{}'", key));
    if (!found->is_array()) return bad(fmt::format("'{}' is not a JSON list", key));
    return found;
}

Result<std::string> Place::text_or(const Json& object, std::string_view key, std::string_view otherwise) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return std::string(otherwise);
    if (!found->is_string()) return bad(fmt::format("'{}' is not a string", key));
    return found->get<std::string>();
}

Result<bool> Place::flag_or(const Json& object, std::string_view key, bool otherwise) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return otherwise;
    if (!found->is_boolean()) return bad(fmt::format("'{}' is neither true nor false", key));
    return found->get<bool>();
}

Result<double> Place::number_or(const Json& object, std::string_view key, double otherwise) const {
    const Json* found = json::find(object, key);
    if (found == nullptr) return otherwise;
    if (found->is_number()) return found->get<double>();
    if (found->is_string()) {
        const std::string word = text::to_lower(found->get_ref<const std::string&>());
        if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
        if (word == "infinity" || word == "inf") return std::numeric_limits<double>::infinity();
        if (word == "-infinity" || word == "-inf") return -std::numeric_limits<double>::infinity();
    }
    return bad(fmt::format("'{}' is not a number", key));
}

// "NaN", "Infinity", "-Infinity" as texts
Json number_json(double x) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
    return x;
}

using AxisNames = std::vector<std::string>;

constexpr std::string_view k_dtypes[] = {"float32",     "float16",     "bfloat16", "float8_e4m3fn",
                                         "float8_e5m2", "float4_e2m1", "int64",    "int32",
                                         "int16",       "int8",        "bool"};

Result<Axis> parse_axis(const std::string& name, const Json& value, const Place& at) {
    Axis axis{name, {}};
    GDNCTL_TRY(at.must_be_object(value));
    GDNCTL_TRY_ASSIGN(const std::string type, at.text_or(value, "type", value.contains("value") ? "const" : "var"));
    if (type == "const") {
        GDNCTL_TRY_ASSIGN(axis.value, at.size(value, "value"));
    } else if (type != "var") {
        return at.bad(fmt::format("type '{}' is neither const nor var", type));
    }
    return axis;
}

Result<TensorSpec> parse_tensor(const std::string& name, const Json& value, const std::vector<Axis>& axes,
                                const Place& at) {
    TensorSpec spec;
    spec.name = name;
    GDNCTL_TRY(at.must_be_object(value));
    GDNCTL_TRY_ASSIGN(spec.dtype, at.text(value, "dtype"));
    if (std::find(std::begin(k_dtypes), std::end(k_dtypes), spec.dtype) == std::end(k_dtypes)) {
        return at.bad(fmt::format("dtype '{}' is not known", spec.dtype));
    }
    GDNCTL_TRY_ASSIGN(spec.optional, at.flag_or(value, "optional", false));
    if (!value.contains("shape")) return at.bad("has no 'shape'");
    const Json& shape = value["shape"];
    if (shape.is_null()) return spec;
    if (!shape.is_array()) return at.bad("'shape' is neither a list of axes nor null");
    AxisNames names;
    for (const Json& axis : shape) {
        if (!axis.is_string()) return at.bad("'shape' contains something other than axis names");
        names.push_back(axis.get<std::string>());
        const bool known = std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == names.back(); });
        if (!known) return at.bad(fmt::format("axis '{}' is not defined", names.back()));
    }
    spec.axes = std::move(names);
    return spec;
}

Result<std::vector<TensorSpec>> parse_tensors(const Json& object, std::string_view key, const std::vector<Axis>& axes,
                                              const Place& at) {
    std::vector<TensorSpec> specs;
    GDNCTL_TRY_ASSIGN(const Json* tensors, at.object(object, key));
    for (const auto& [name, value] : tensors->items()) {
        GDNCTL_TRY_ASSIGN(auto spec, parse_tensor(name, value, axes, at.in(fmt::format("{} '{}'", key, name))));
        specs.push_back(std::move(spec));
    }
    return specs;
}

// --- the nine

TensorSpec tensor(std::string name, AxisNames axes, std::string dtype) {
    return {std::move(name), std::move(axes), std::move(dtype), false};
}

TensorSpec optional_tensor(std::string name, AxisNames axes, std::string dtype) {
    return {std::move(name), std::move(axes), std::move(dtype), true};
}

// `first` in front of `rest`.
AxisNames with(const AxisNames& first, std::initializer_list<std::string> rest) {
    AxisNames all = first;
    all.insert(all.end(), rest);
    return all;
}

GdnDefinition make(Stage stage, std::int64_t key_heads, std::int64_t value_heads) {
    constexpr std::int64_t k_head_size = 128;
    GdnDefinition known{{}, stage, key_heads, value_heads, k_head_size};
    Definition& d = known.definition;
    d.name = fmt::format("gdn_{}_qk{}_v{}_d{}_k_last", name_of(stage), key_heads, value_heads, k_head_size);
    d.op_type = "gdn";
    const bool prefill = stage == Stage::prefill;
    const bool mtp = stage == Stage::mtp;
    const AxisNames token = prefill ? AxisNames{"total_seq_len"} : AxisNames{"batch_size", "seq_len"};
    const AxisNames rows = {prefill ? "num_seqs" : mtp ? "pool_size" : "batch_size"};
    const AxisNames state = with(rows, {"num_v_heads", "head_size", "head_size"});
    for (const std::string& name : token) {
        d.axes.push_back({name, {}});
        if (name == "seq_len" && !mtp) d.axes.back().value = 1;
    }
    if (prefill) d.axes.push_back({"num_seqs", {}});
    d.axes.push_back({"num_q_heads", key_heads});
    d.axes.push_back({"num_k_heads", key_heads});
    d.axes.push_back({"num_v_heads", value_heads});
    d.axes.push_back({"head_size", k_head_size});
    if (prefill) d.axes.push_back({"len_cu_seqlens", {}});
    if (mtp) d.axes.push_back({"pool_size", {}});
    d.inputs = {tensor("q", with(token, {"num_q_heads", "head_size"}), "bfloat16"),
                tensor("k", with(token, {"num_k_heads", "head_size"}), "bfloat16"),
                tensor("v", with(token, {"num_v_heads", "head_size"}), "bfloat16")};
    if (mtp) {
        d.inputs.push_back(tensor("initial_state", state, "float32"));
        d.inputs.push_back(tensor("initial_state_indices", {"batch_size"}, "int32"));
    } else {
        d.inputs.push_back(optional_tensor("state", state, "float32"));
    }
    d.inputs.push_back(tensor("A_log", {"num_v_heads"}, "float32"));
    d.inputs.push_back(tensor("a", with(token, {"num_v_heads"}), "bfloat16"));
    d.inputs.push_back(tensor("dt_bias", {"num_v_heads"}, "float32"));
    d.inputs.push_back(tensor("b", with(token, {"num_v_heads"}), "bfloat16"));
    if (prefill) d.inputs.push_back(tensor("cu_seqlens", {"len_cu_seqlens"}, "int64"));
    d.inputs.push_back({"scale", {}, "float32", false});
    if (mtp) {
        d.inputs.push_back(optional_tensor("intermediate_states_buffer",
                                           {"pool_size", "seq_len", "num_v_heads", "head_size", "head_size"},
                                           "float32"));
    }
    d.outputs = {tensor("output", with(token, {"num_v_heads", "head_size"}), "bfloat16"),
                 tensor(mtp ? "final_state" : "new_state", state, "float32")};
    return known;
}

std::string described(const TensorSpec& spec) {
    return fmt::format("{} {}", spec.axes ? "[" + text::join(*spec.axes, ",") + "]" : "scalar", spec.dtype);
}

Status check_tensors(const std::vector<TensorSpec>& read, const std::vector<TensorSpec>& known, std::string_view kind,
                     std::string_view what) {
    for (std::size_t i = 0; i < std::max(read.size(), known.size()); ++i) {
        if (i >= read.size()) {
            return fail(ErrorKind::bad_input, fmt::format("{}: {} '{}' is missing", what, kind, known[i].name));
        }
        if (i >= known.size()) {
            return fail(ErrorKind::bad_input, fmt::format("{}: {} '{}' is not known", what, kind, read[i].name));
        }
        const bool same =
            read[i].name == known[i].name && read[i].axes == known[i].axes && read[i].dtype == known[i].dtype;
        if (same) continue;
        return fail(ErrorKind::bad_input,
                    fmt::format("{}: {} {} is '{}' {}, expected '{}' {}", what, kind, i + 1, read[i].name,
                                described(read[i]), known[i].name, described(known[i])));
    }
    return {};
}

}  // namespace

std::string_view name_of(Stage stage) {
    switch (stage) {
        case Stage::prefill: return "prefill";
        case Stage::decode: return "decode";
        case Stage::mtp: return "mtp";
    }
    return "";
}

Result<Definition> parse_definition(std::string_view text, std::string_view what) {
    GDNCTL_TRY_ASSIGN(const Json object, parse_json(text, what));
    const Place at(what);
    GDNCTL_TRY(at.must_be_object(object));
    Definition d;
    GDNCTL_TRY_ASSIGN(d.name, at.text(object, "name"));
    GDNCTL_TRY_ASSIGN(d.op_type, at.text(object, "op_type"));
    GDNCTL_TRY(at.text(object, "reference"));
    GDNCTL_TRY_ASSIGN(const Json* axes, at.object(object, "axes"));
    for (const auto& [name, value] : axes->items()) {
        GDNCTL_TRY_ASSIGN(auto axis, parse_axis(name, value, at.in(fmt::format("axis '{}'", name))));
        d.axes.push_back(std::move(axis));
    }
    GDNCTL_TRY_ASSIGN(d.inputs, parse_tensors(object, "inputs", d.axes, at));
    GDNCTL_TRY_ASSIGN(d.outputs, parse_tensors(object, "outputs", d.axes, at));
    std::set<std::string> names;
    for (const auto& specs : {d.inputs, d.outputs}) {
        for (const TensorSpec& spec : specs) {
            if (!names.insert(spec.name).second) return at.bad(fmt::format("'{}' is named twice", spec.name));
        }
    }
    return d;
}

const std::vector<GdnDefinition>& gdn_definitions() {
    static const std::vector<GdnDefinition> k_all = [] {
        std::vector<GdnDefinition> all;
        for (const Stage stage : {Stage::prefill, Stage::decode, Stage::mtp}) {
            for (const std::int64_t key_heads : {4, 8, 16}) all.push_back(make(stage, key_heads, 2 * key_heads));
        }
        return all;
    }();
    return k_all;
}

std::vector<std::string> gdn_definition_names() {
    std::vector<std::string> names;
    for (const GdnDefinition& d : gdn_definitions()) names.push_back(d.definition.name);
    return names;
}

const GdnDefinition* find_gdn_definition(std::string_view name) {
    for (const GdnDefinition& d : gdn_definitions()) {
        if (d.definition.name == name) return &d;
    }
    return nullptr;
}

Status check_definition(const Definition& read, const GdnDefinition& known, std::string_view what) {
    for (const Axis& axis : known.definition.axes) {
        const auto found =
            std::find_if(read.axes.begin(), read.axes.end(), [&](const Axis& a) { return a.name == axis.name; });
        if (found == read.axes.end()) {
            return fail(ErrorKind::bad_input, fmt::format("{}: axis '{}' is missing", what, axis.name));
        }
        if (found->value == axis.value) continue;
        const auto shown = [](const std::optional<std::int64_t>& v) { return v ? fmt::format("{}", *v) : "variable"; };
        return fail(ErrorKind::bad_input, fmt::format("{}: axis '{}' is {}, expected {}", what, axis.name,
                                                      shown(found->value), shown(axis.value)));
    }
    GDNCTL_TRY(check_tensors(read.inputs, known.definition.inputs, "input", what));
    return check_tensors(read.outputs, known.definition.outputs, "output", what);
}

namespace {

bool is_c(std::string_view path) { return path.ends_with(".c") || path.ends_with(".h"); }

// Sources are written into a folder of ours under these names.
Status check_path(const std::string& path, const Place& at) {
    const std::filesystem::path p(path);
    const bool climbs = std::any_of(p.begin(), p.end(), [](const auto& part) { return part == ".."; });
    if (p.is_absolute() || climbs || !p.has_filename() || path.find('\0') != std::string::npos) {
        return at.bad(fmt::format("path '{}' is not a file below the solution's folder", path));
    }
    return {};
}

Status parse_entry(const Json& spec, const Place& at, Solution& solution) {
    GDNCTL_TRY_ASSIGN(const std::string entry, at.text(spec, "entry_point"));
    const std::size_t colons = entry.find("::");
    const bool once = colons != std::string::npos && entry.find("::", colons + 2) == std::string::npos;
    if (!once || colons == 0 || colons + 2 == entry.size()) {
        return at.bad(fmt::format("entry_point '{}' is not of the form FILE::FUNCTION", entry));
    }
    solution.entry_file = entry.substr(0, colons);
    solution.entry_function = entry.substr(colons + 2);
    return {};
}

Status parse_sources(const Json& object, const Place& at, Solution& solution) {
    GDNCTL_TRY_ASSIGN(const Json* sources, at.array(object, "sources"));
    std::set<std::string> paths;
    for (const Json& value : *sources) {
        const Place here = at.in(fmt::format("source {}", solution.sources.size() + 1));
        GDNCTL_TRY(here.must_be_object(value));
        SourceFile source;
        GDNCTL_TRY_ASSIGN(source.path, here.text(value, "path"));
        GDNCTL_TRY_ASSIGN(source.content, here.text(value, "content"));
        GDNCTL_TRY(check_path(source.path, here));
        if (!paths.insert(source.path).second) return here.bad(fmt::format("'{}' appears twice", source.path));
        solution.sources.push_back(std::move(source));
    }
    if (solution.sources.empty()) return at.bad("'sources' is empty");
    if (!paths.contains(solution.entry_file)) {
        return at.bad(fmt::format("the entry point's file '{}' is not among the sources", solution.entry_file));
    }
    return {};
}

}  // namespace

Result<Solution> parse_solution(std::string_view text, std::string_view what) {
    GDNCTL_TRY_ASSIGN(const Json object, parse_json(text, what));
    const Place at(what);
    GDNCTL_TRY(at.must_be_object(object));
    Solution s;
    GDNCTL_TRY_ASSIGN(s.name, at.text(object, "name"));
    GDNCTL_TRY_ASSIGN(s.definition, at.text(object, "definition"));
    GDNCTL_TRY_ASSIGN(s.author, at.text(object, "author"));
    GDNCTL_TRY_ASSIGN(const Json* spec, at.object(object, "spec"));
    const Place in_spec = at.in("spec");
    GDNCTL_TRY_ASSIGN(s.language, in_spec.text(*spec, "language"));
    GDNCTL_TRY_ASSIGN(const Json* hardware, in_spec.array(*spec, "target_hardware"));
    if (hardware->empty()) return in_spec.bad("'target_hardware' is empty");
    GDNCTL_TRY_ASSIGN(s.binding, in_spec.text_or(*spec, "binding", ""));
    GDNCTL_TRY_ASSIGN(s.destination_passing, in_spec.flag_or(*spec, "destination_passing_style", true));
    GDNCTL_TRY(parse_entry(*spec, in_spec, s));
    GDNCTL_TRY(parse_sources(object, at, s));
    return s;
}

Status check_runnable(const Solution& s) {
    const auto refuse = [&](const std::string& why) {
        return fail(ErrorKind::bad_input, fmt::format("solution '{}' cannot be run here: {}", s.name, why),
                    "solutions in C can: docs/flashinfer-bench.md");
    };
    if (s.language != "c" && s.language != "cpp") return refuse(fmt::format("it is written in {}", s.language));
    for (const SourceFile& source : s.sources) {
        if (!is_c(source.path)) return refuse(fmt::format("its source {} is not C", source.path));
    }
    if (!s.entry_file.ends_with(".c")) return refuse(fmt::format("its entry point is in {}", s.entry_file));
    if (!s.binding.empty() && s.binding != "tvm-ffi") return refuse(fmt::format("its binding is {}", s.binding));
    if (!s.destination_passing) return refuse("it returns its outputs (destination_passing_style is false)");
    return {};
}

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
