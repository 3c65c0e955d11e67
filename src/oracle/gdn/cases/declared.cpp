#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"

namespace gdnctl::oracle {

namespace {

// They only say how exact a kernel is, or where to look for its errors.
bool is_widening(std::string_view field) {
    constexpr std::array<std::string_view, 4> k_widening = {"matmul", "gate_sum", "state_dtype", "chunk"};
    return std::find(k_widening.begin(), k_widening.end(), field) != k_widening.end();
}

const ContractField* find_in(const std::vector<ContractField>& fields, std::string_view name) {
    const auto found =
        std::find_if(fields.begin(), fields.end(), [&](const ContractField& f) { return f.name == name; });
    return found == fields.end() ? nullptr : &*found;
}

std::map<std::string, std::string> stated_by(const GdnCase& c) {
    std::map<std::string, std::string> stated;
    for (const std::string& setting : c.contract) {
        const auto equals = setting.find('=');
        stated[setting.substr(0, equals)] = setting.substr(equals + 1);
    }
    return stated;
}

bool has_empty_sequence(const GdnCase& c) {
    return std::adjacent_find(c.cu_seqlens.begin(), c.cu_seqlens.end()) != c.cu_seqlens.end();
}

DType dtype_of_out(std::string_view value, const GdnCase& c) {
    if (value == "query") return c.dtype == DType::f64 ? DType::f32 : c.dtype;
    return value == "bf16" ? DType::bf16 : value == "f16" ? DType::f16 : DType::f32;
}

// Whether both values of the field mean the same for these inputs.
bool is_same(const GdnCase& c, std::string_view field, std::string_view a, std::string_view b, bool l2norm) {
    if (a == b) return true;
    if (field == "head_map") return c.dims.Hk == c.dims.Hv || (c.dims.Hk == 1 && a != "equal" && b != "equal");
    if (field == "empty") return !has_empty_sequence(c);
    if (field == "eps" || field == "rounding") return !l2norm;
    return field == "out_dtype" && dtype_of_out(a, c) == dtype_of_out(b, c);
}

// Whether inputs of the case can be made for a value that it says nothing about.
bool can_have(const GdnCase& c, const ContractField& field) {
    const bool golden = c.set == "golden";  // its inputs are formulas
    if (field.name == "g_kind" && field.value == "raw") {
        constexpr std::array k_expressible = {GateRecipe::soft, GateRecipe::strong, GateRecipe::resets};
        return !golden && std::find(k_expressible.begin(), k_expressible.end(), c.gate) != k_expressible.end();
    }
    if (field.name == "beta_kind") return !golden && c.beta == BetaRecipe::uniform;
    return !golden || (field.name != "g_kind" && field.name != "state_layout");
}

}  // namespace

const ContractField* Declared::find(std::string_view field) const { return find_in(fields, field); }

Result<Declared> read_declared(std::optional<std::string> contract, std::vector<std::string> sets) {
    GDNCTL_TRY_ASSIGN(const auto resolved, resolve_contract(contract.value_or("marin"), {}, sets));
    Declared declared{std::move(contract), std::move(sets), {}};
    for (const ContractField& field : resolved.fields) {
        const bool of_contract = declared.contract && field.name != "chunk";
        if (of_contract || field.origin == "--set") declared.fields.push_back(field);
    }
    return declared;
}

std::optional<std::string> declare(GdnCase& c, const Declared& declared) {
    const auto stated = stated_by(c);
    const auto own = resolve_contract("marin", stated, {});
    if (!own) return "a contract that is not known";
    const ContractField* norm = declared.find("l2norm");
    const bool l2norm = norm != nullptr ? norm->value != "off" : own->value.l2norm != L2Norm::off;
    GdnCase changed = c;
    for (const ContractField& field : declared.fields) {
        const ContractField& needed = *find_in(own->fields, field.name);
        if (!is_widening(field.name) && !is_same(c, field.name, field.value, needed.value, l2norm) &&
            (stated.contains(field.name) || !can_have(c, field))) {
            return fmt::format("{}={}", field.name, needed.value);
        }
        std::erase_if(changed.contract, [&](const std::string& s) { return s.starts_with(field.name + "="); });
        changed.contract.push_back(fmt::format("{}={}", field.name, field.value));
    }
    // Without l2norm, the state only stays bounded for keys of length 1.
    if (!l2norm && c.keys == KeyRecipe::normal && !stated.contains("l2norm")) changed.keys = KeyRecipe::unit;
    c = std::move(changed);
    return std::nullopt;
}

}  // namespace gdnctl::oracle
