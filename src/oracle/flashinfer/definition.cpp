#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "oracle/flashinfer/fields.h"

namespace gdnctl::oracle::flashinfer {

namespace {

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

}  // namespace gdnctl::oracle::flashinfer
