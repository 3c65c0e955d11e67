#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/layer_inputs/layer_inputs.h"

namespace gdnctl::oracle {

namespace {

// nullopt: the value was accepted.
using Problem = std::optional<std::string>;

struct Field {
    std::string_view name;
    Problem (*set)(LayerContract&, std::string_view);
    std::string (*get)(const LayerContract&);
};

using C = LayerContract;
using S = std::string_view;

// One of two words.
template <class E>
Problem choose(E& target, S text, S first, E first_value, S second, E second_value) {
    if (text != first && text != second) return fmt::format("'{}' is not one of {}, {}", text, first, second);
    target = text == first ? first_value : second_value;
    return std::nullopt;
}

constexpr Field k_fields[] = {
    {"norm_eps",
     [](C& c, S s) -> Problem {
         const auto number = text::parse_double(s);
         if (!number || *number < 0) return fmt::format("'{}' is not a non-negative number", s);
         c.norm_eps = *number;
         return std::nullopt;
     },
     [](const C& c) { return fmt::format("{}", c.norm_eps); }},
    {"split", [](C& c, S s) { return choose(c.split, s, "grouped", LayerSplit::grouped, "flat", LayerSplit::flat); },
     [](const C& c) { return std::string(c.split == LayerSplit::grouped ? "grouped" : "flat"); }},
    {"gate",
     [](C& c, S s) {
         return choose(c.gate, s, "after-norm", LayerGate::after_norm, "before-norm", LayerGate::before_norm);
     },
     [](const C& c) { return std::string(c.gate == LayerGate::after_norm ? "after-norm" : "before-norm"); }},
    {"g_dtype", [](C& c, S s) { return choose(c.g_rounded, s, "f32", false, "input", true); },
     [](const C& c) { return std::string(c.g_rounded ? "input" : "f32"); }},
    {"key_heads",
     [](C& c, S s) -> Problem {
         const auto number = text::parse_int(s);
         if (!number || *number < 1) return fmt::format("'{}' is not a number of heads", s);
         c.key_heads = *number;
         return std::nullopt;
     },
     [](const C& c) { return c.key_heads ? fmt::format("{}", *c.key_heads) : std::string("as the tensors say"); }},
};

const Field* find_field(S name) {
    const auto* found =
        std::find_if(std::begin(k_fields), std::end(k_fields), [&](const Field& f) { return f.name == name; });
    return found == std::end(k_fields) ? nullptr : found;
}

// The operator's fields in every such layer, whatever the library's function accepts by itself.
constexpr std::pair<S, S> k_of_the_layer[] = {{"head_map", "interleaved"},
                                              {"g_kind", "raw"},
                                              {"beta_kind", "logit"},
                                              {"l2norm", "rsqrt(sum+eps)"},
                                              {"out_dtype", "query"}};

Status apply_defaults(LayerContract& contract, const std::string& own) {
    for (const auto& [field, value] : k_of_the_layer) {
        const auto& fields = contract.resolved.fields;
        const auto shown = std::find_if(fields.begin(), fields.end(),
                                        [&, name = field](const ContractField& f) { return f.name == name; });
        if (shown->origin == own) GDNCTL_TRY(set_field(contract.resolved, field, value, own));
    }
    if (contract.resolved.value.layout != TokenLayout::tokens_first) {
        return fail(ErrorKind::usage, "the layer's tensors are [B,T,...]: layout must be B,T,H,D");
    }
    if (contract.resolved.value.g_kind != GateKind::raw || contract.resolved.value.beta_kind == BetaKind::prob) {
        return fail(ErrorKind::usage, "the layer computes its gates itself: g_kind must be raw and beta_kind a logit",
                    "use gdnctl oracle run gdn for gates that are already computed");
    }
    return {};
}

Status apply_metadata(const std::map<std::string, std::string>& metadata, LayerContract& contract,
                      std::map<S, std::string>& origins) {
    for (const auto& [key, value] : metadata) {
        const Field* field = find_field(key);
        // Our own files say this where the tensors decide.
        if (field == nullptr || value == "as the tensors say") continue;
        if (const Problem problem = field->set(contract, value)) {
            return fail(ErrorKind::bad_input, fmt::format("metadata of the inputs file: field {}: {}", key, *problem));
        }
        origins[field->name] = "inputs metadata";
    }
    return {};
}

Status apply_sets(std::span<const std::string> sets, LayerContract& contract, std::map<S, std::string>& origins) {
    for (const std::string& item : sets) {
        const auto equals = item.find('=');
        const Field* field = find_field(item.substr(0, equals));
        if (const Problem problem = field->set(contract, std::string_view(item).substr(equals + 1))) {
            return fail(ErrorKind::usage, fmt::format("contract field {}: {}", field->name, *problem));
        }
        origins[field->name] = "--set";
    }
    return {};
}

}  // namespace

std::vector<std::string> layer_contract_names() {
    std::vector<std::string> names;
    for (std::string& name : contract_names()) {
        if (name.starts_with("marin") || name.starts_with("hf")) names.push_back(std::move(name));
    }
    return names;
}

Result<LayerContract> resolve_layer_contract(std::string_view name, const std::map<std::string, std::string>& metadata,
                                             std::span<const std::string> sets) {
    std::map<std::string, std::string> of_the_op = metadata;
    if (const auto op = metadata.find("op"); op != metadata.end()) {
        if (op->second != "gdn-layer") {
            return fail(ErrorKind::bad_input, fmt::format("the inputs file is for op '{}', not gdn-layer", op->second));
        }
        of_the_op.erase("op");
    }
    std::vector<std::string> op_sets;
    std::vector<std::string> layer_sets;
    for (const std::string& item : sets) {
        const auto equals = item.find('=');
        const bool own = equals != std::string::npos && find_field(item.substr(0, equals)) != nullptr;
        (own ? layer_sets : op_sets).push_back(item);
    }
    LayerContract contract;
    GDNCTL_TRY_ASSIGN(contract.resolved, resolve_contract(name, of_the_op, op_sets));
    const auto known = layer_contract_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
        return fail(ErrorKind::usage, fmt::format("contract '{}' does not define a layer", name),
                    fmt::format("known for gdn-layer: {}", text::join(known, ", ")));
    }
    const std::string own = fmt::format("contract {}", name);
    GDNCTL_TRY(apply_defaults(contract, own));
    contract.g_rounded = name.starts_with("marin");
    std::map<S, std::string> origins;
    GDNCTL_TRY(apply_metadata(metadata, contract, origins));
    GDNCTL_TRY(apply_sets(layer_sets, contract, origins));
    for (const Field& f : k_fields) {
        const auto origin = origins.find(f.name);
        contract.resolved.fields.push_back(
            {std::string(f.name), f.get(contract), origin == origins.end() ? own : origin->second});
    }
    return contract;
}

}  // namespace gdnctl::oracle
