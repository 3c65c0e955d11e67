#include "oracle/gdn/contract/contract.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::oracle {

namespace {

template <class E>
struct Word {
    std::string_view text;
    E value;
};

// The first word of a value is its name.
constexpr std::array k_head_maps = {Word{"equal", HeadMap::equal}, Word{"interleaved", HeadMap::interleaved},
                                    Word{"tiled", HeadMap::tiled}};
constexpr std::array k_layouts = {Word{"B,H,K,V", StateLayout::key_value}, Word{"B,H,V,K", StateLayout::value_key},
                                  Word{"K,V", StateLayout::key_value}, Word{"V,K", StateLayout::value_key}};
constexpr std::array k_token_layouts = {Word{"B,T,H,D", TokenLayout::tokens_first},
                                        Word{"B,H,T,D", TokenLayout::heads_first}};
constexpr std::array k_g_kinds = {Word{"log", GateKind::log}, Word{"alpha", GateKind::alpha},
                                  Word{"raw", GateKind::raw}};
constexpr std::array k_beta_kinds = {Word{"prob", BetaKind::prob}, Word{"logit", BetaKind::logit},
                                     Word{"2*logit", BetaKind::twice_logit}};
constexpr std::array k_l2norms = {Word{"off", L2Norm::off}, Word{"rsqrt(sum+eps)", L2Norm::rsqrt},
                                  Word{"1/sqrt(sum+eps)", L2Norm::inverse_sqrt}, Word{"on", L2Norm::rsqrt}};
// Names of implementations that round like this are also accepted.
constexpr std::array k_roundings = {Word{"none", NormRounding::none},        Word{"input", NormRounding::input},
                                    Word{"marin-01d1", NormRounding::input}, Word{"marin-654e", NormRounding::none},
                                    Word{"hf", NormRounding::none},          Word{"hf-old", NormRounding::input}};
constexpr std::array k_out_dtypes = {Word{"f32", OutDType::f32},     Word{"query", OutDType::query},
                                     Word{"bf16", OutDType::bf16},   Word{"f16", OutDType::f16},
                                     Word{"float32", OutDType::f32}, Word{"bfloat16", OutDType::bf16},
                                     Word{"float16", OutDType::f16}};
constexpr std::array k_matmuls = {Word{"f32", Matmul::f32}, Word{"bf16x3", Matmul::bf16x3}, Word{"tf32", Matmul::tf32},
                                  Word{"f16", Matmul::f16}, Word{"bf16", Matmul::bf16}};
constexpr std::string_view k_of_inputs = "input";
constexpr std::array k_gate_sums = {Word{"f32", SumDType::f32}, Word{"g", SumDType::given}};
constexpr std::array k_state_dtypes = {Word{"f32", StateDType::f32}, Word{"bf16", StateDType::bf16},
                                       Word{"bf16-token", StateDType::bf16_token}};
constexpr std::array k_empties = {Word{"passthrough", EmptySequence::passthrough}, Word{"zeros", EmptySequence::zeros}};

template <class E, std::size_t N>
std::string word_of(const std::array<Word<E>, N>& words, E value) {
    for (const auto& w : words) {
        if (w.value == value) return std::string(w.text);
    }
    return {};
}

// What is wrong with a value, without the field's name.
using Problem = std::optional<std::string>;

template <class E, std::size_t N>
Problem assign(E& target, const std::array<Word<E>, N>& words, std::string_view text) {
    std::string known;
    for (const auto& w : words) {
        if (w.text == text) {
            target = w.value;
            return std::nullopt;
        }
        known += fmt::format("{}{}", known.empty() ? "" : ", ", w.text);
    }
    return fmt::format("'{}' is not one of {}", text, known);
}

Problem assign_positive(double& target, std::string_view text, bool zero_allowed) {
    const auto number = text::parse_double(text);
    if (!number || *number < 0 || (*number == 0 && !zero_allowed)) {
        return fmt::format("'{}' is not a {} number", text, zero_allowed ? "non-negative" : "positive");
    }
    target = *number;
    return std::nullopt;
}

Problem assign_optional(std::optional<double>& target, std::string_view text, std::string_view word_for_none) {
    if (text == word_for_none) {
        target.reset();
        return std::nullopt;
    }
    const auto number = text::parse_double(text);
    if (!number || *number == 0)
        return fmt::format("'{}' is neither {} nor a number other than 0", text, word_for_none);
    target = *number;
    return std::nullopt;
}

Problem assign_matmul(GdnContract& c, std::string_view text) {
    c.matmul_of_inputs = text == k_of_inputs;
    if (c.matmul_of_inputs) {
        c.matmul = Matmul::f32;
        return std::nullopt;
    }
    auto problem = assign(c.matmul, k_matmuls, text);
    if (problem) *problem += fmt::format(", {}", k_of_inputs);
    return problem;
}

Problem assign_state_dtype(GdnContract& c, std::string_view text) {
    c.state_of_inputs = text == k_of_inputs;
    if (c.state_of_inputs) {
        c.state_dtype = StateDType::f32;
        return std::nullopt;
    }
    auto problem = assign(c.state_dtype, k_state_dtypes, text);
    if (problem) *problem += fmt::format(", {}", k_of_inputs);
    return problem;
}

// "80": sums of gates to +-80; "+80": each gate to at most 80.
Problem assign_clip(std::optional<ExpClip>& target, std::string_view text) {
    target.reset();
    if (text == "none") return std::nullopt;
    const bool of_gates = text.starts_with('+');
    const auto number = text::parse_double(of_gates ? text.substr(1) : text);
    if (!number || !(*number > 0))
        return fmt::format("'{}' is neither none, nor a positive number, nor + and a positive number", text);
    target = ExpClip{*number, of_gates};
    return std::nullopt;
}

Problem assign_chunk(int& target, std::string_view text) {
    const auto number = text::parse_int(text);
    if (!number || *number < 1 || *number > 4096) return fmt::format("'{}' is not a length of 1 to 4096", text);
    target = static_cast<int>(*number);
    return std::nullopt;
}

struct Field {
    std::string_view name;
    Problem (*set)(GdnContract&, std::string_view);
    std::string (*get)(const GdnContract&);
};

using C = GdnContract;
using S = std::string_view;

constexpr Field k_fields[] = {
    {"head_map", [](C& c, S s) { return assign(c.head_map, k_head_maps, s); },
     [](const C& c) { return word_of(k_head_maps, c.head_map); }},
    {"state_layout", [](C& c, S s) { return assign(c.state_layout, k_layouts, s); },
     [](const C& c) { return word_of(k_layouts, c.state_layout); }},
    {"g_kind", [](C& c, S s) { return assign(c.g_kind, k_g_kinds, s); },
     [](const C& c) { return word_of(k_g_kinds, c.g_kind); }},
    {"beta_kind", [](C& c, S s) { return assign(c.beta_kind, k_beta_kinds, s); },
     [](const C& c) { return word_of(k_beta_kinds, c.beta_kind); }},
    {"l2norm", [](C& c, S s) { return assign(c.l2norm, k_l2norms, s); },
     [](const C& c) { return word_of(k_l2norms, c.l2norm); }},
    {"eps", [](C& c, S s) { return assign_positive(c.eps, s, true); },
     [](const C& c) { return fmt::format("{}", c.eps); }},
    {"scale", [](C& c, S s) { return assign_optional(c.scale, s == "dk^-.5" ? "dk^-0.5" : s, "dk^-0.5"); },
     [](const C& c) { return c.scale ? fmt::format("{}", *c.scale) : std::string("dk^-0.5"); }},
    {"rounding", [](C& c, S s) { return assign(c.rounding, k_roundings, s); },
     [](const C& c) { return word_of(k_roundings, c.rounding); }},
    {"out_dtype", [](C& c, S s) { return assign(c.out_dtype, k_out_dtypes, s); },
     [](const C& c) { return word_of(k_out_dtypes, c.out_dtype); }},
    {"matmul", [](C& c, S s) { return assign_matmul(c, s); },
     [](const C& c) { return c.matmul_of_inputs ? std::string(k_of_inputs) : word_of(k_matmuls, c.matmul); }},
    {"empty", [](C& c, S s) { return assign(c.empty, k_empties, s); },
     [](const C& c) { return word_of(k_empties, c.empty); }},
    {"exp_clip", [](C& c, S s) { return assign_clip(c.exp_clip, s); },
     [](const C& c) {
         return c.exp_clip ? fmt::format("{}{}", c.exp_clip->of_gates ? "+" : "", c.exp_clip->limit)
                           : std::string("none");
     }},
    {"chunk", [](C& c, S s) { return assign_chunk(c.chunk, s); },
     [](const C& c) { return fmt::format("{}", c.chunk); }},
    {"gate_sum", [](C& c, S s) { return assign(c.gate_sum, k_gate_sums, s); },
     [](const C& c) { return word_of(k_gate_sums, c.gate_sum); }},
    {"state_dtype", [](C& c, S s) { return assign_state_dtype(c, s); },
     [](const C& c) { return c.state_of_inputs ? std::string(k_of_inputs) : word_of(k_state_dtypes, c.state_dtype); }},
    {"layout", [](C& c, S s) { return assign(c.layout, k_token_layouts, s); },
     [](const C& c) { return word_of(k_token_layouts, c.layout); }},
};

// Fields in which a named contract differs from GdnContract's initial values.
struct Difference {
    std::string_view field;
    std::string_view value;
};

struct NamedContract {
    std::string_view name;
    std::vector<Difference> differences;
};

const std::vector<NamedContract>& named_contracts() {
    static const std::vector<NamedContract> k_contracts = {
        {"marin", {}},
        {"marin-01d1", {{"rounding", "input"}, {"exp_clip", "80"}}},
        {"marin-654e", {{"exp_clip", "80"}}},
        {"hf", {{"head_map", "interleaved"}, {"l2norm", "off"}, {"out_dtype", "query"}}},
        {"hf-old", {{"l2norm", "off"}, {"rounding", "input"}, {"out_dtype", "query"}}},
        // The solved matrix, W, U and the states that are read have the inputs' dtype, like all operands.
        {"fla", {{"head_map", "interleaved"}, {"l2norm", "off"}, {"out_dtype", "query"}, {"matmul", "input"}}},
        // Its recurrent kernels multiply in fp32.
        {"fla-recurrent", {{"head_map", "interleaved"}, {"l2norm", "off"}, {"out_dtype", "query"}}},
        {"flashinfer",
         {{"head_map", "interleaved"},
          {"state_layout", "B,H,V,K"},
          {"g_kind", "raw"},
          {"beta_kind", "logit"},
          {"l2norm", "off"},
          {"out_dtype", "query"},
          {"matmul", "input"},
          {"empty", "zeros"}}},
        {"ggml", {{"head_map", "tiled"}, {"state_layout", "B,H,V,K"}, {"l2norm", "off"}}},
        {"ik", {{"head_map", "interleaved"}, {"beta_kind", "logit"}, {"l2norm", "off"}, {"exp_clip", "+50"}}},
        {"sglang", {{"head_map", "interleaved"}, {"out_dtype", "query"}}},
        {"sglang-cpu",
         {{"head_map", "interleaved"},
          {"l2norm", "off"},
          {"out_dtype", "query"},
          {"matmul", "bf16"},
          {"state_dtype", "bf16"}}},
        // W, U and the state passed on by each chunk are kept in the inputs' dtype.
        {"maxtext", {{"out_dtype", "query"}, {"matmul", "input"}, {"state_dtype", "input"}}},
    };
    return k_contracts;
}

const Field* find_field(std::string_view name) {
    for (const Field& f : k_fields) {
        if (f.name == name) return &f;
    }
    return nullptr;
}

void apply(ResolvedContract& contract, const Field& field, std::string_view origin) {
    for (ContractField& shown : contract.fields) {
        if (shown.name != field.name) continue;
        shown.value = field.get(contract.value);
        shown.origin = origin;
    }
}

tl::unexpected<Error> unknown_contract(std::string_view name) {
    const auto names = contract_names();
    const auto near = text::nearest(name, names);
    return fail(ErrorKind::usage, fmt::format("unknown contract '{}'", name),
                near ? fmt::format("did you mean '{}'?", *near) : fmt::format("known: {}", text::join(names, ", ")));
}

}  // namespace

std::vector<std::string> contract_names() {
    std::vector<std::string> names;
    for (const auto& c : named_contracts()) names.emplace_back(c.name);
    return names;
}

std::vector<std::string> contract_field_names() {
    std::vector<std::string> names;
    for (const Field& f : k_fields) names.emplace_back(f.name);
    return names;
}

std::vector<std::string> contract_field_values(std::string_view field) {
    const Field* found = find_field(field);
    if (found == nullptr) return {};
    std::vector<std::string> all = {std::string(k_of_inputs), "none", "dk^-0.5"};
    const auto add = [&all](const auto& words) {
        for (const auto& word : words) all.emplace_back(word.text);
    };
    add(k_head_maps), add(k_layouts), add(k_token_layouts), add(k_g_kinds), add(k_beta_kinds), add(k_l2norms);
    add(k_roundings), add(k_out_dtypes), add(k_matmuls), add(k_gate_sums), add(k_state_dtypes), add(k_empties);
    std::vector<std::string> accepted;
    for (const std::string& word : all) {
        GdnContract trial;
        const bool known = std::find(accepted.begin(), accepted.end(), word) != accepted.end();
        if (!known && !found->set(trial, word)) accepted.push_back(word);
    }
    return accepted;
}

std::string ResolvedContract::text() const {
    std::string line;
    for (const ContractField& f : fields) line += fmt::format("{}{}={}", line.empty() ? "" : " ", f.name, f.value);
    return line;
}

std::map<std::string, std::string> ResolvedContract::as_metadata() const {
    std::map<std::string, std::string> metadata;
    for (const ContractField& f : fields) metadata[f.name] = f.value;
    return metadata;
}

Status set_field(ResolvedContract& contract, std::string_view field, std::string_view value, std::string_view origin) {
    const Field* found = find_field(field);
    if (found == nullptr) {
        const auto names = contract_field_names();
        const auto near = text::nearest(field, names);
        return fail(
            ErrorKind::usage, fmt::format("unknown contract field '{}'", field),
            near ? fmt::format("did you mean '{}'?", *near) : fmt::format("known: {}", text::join(names, ", ")));
    }
    if (const Problem problem = found->set(contract.value, value)) {
        return fail(ErrorKind::usage, fmt::format("contract field {}: {}", field, *problem));
    }
    apply(contract, *found, origin);
    return {};
}

Result<ResolvedContract> resolve_contract(std::string_view name, const std::map<std::string, std::string>& metadata,
                                          std::span<const std::string> sets) {
    const auto& all = named_contracts();
    const auto named = std::find_if(all.begin(), all.end(), [&](const NamedContract& c) { return c.name == name; });
    if (named == all.end()) return unknown_contract(name);

    ResolvedContract contract;
    contract.name = name;
    for (const Field& f : k_fields) {
        contract.fields.push_back({std::string(f.name), f.get(contract.value), fmt::format("contract {}", name)});
    }
    for (const Difference& d : named->differences) {
        GDNCTL_TRY(set_field(contract, d.field, d.value, fmt::format("contract {}", name)));
    }
    for (const auto& [key, value] : metadata) {
        if (key == "op" && value != "gdn") {
            return fail(ErrorKind::bad_input, fmt::format("the inputs file is for op '{}', not gdn", value));
        }
        if (find_field(key) == nullptr) continue;
        if (const Status set = set_field(contract, key, value, "inputs metadata"); !set) {
            return fail(ErrorKind::bad_input, "metadata of the inputs file: " + set.error().message);
        }
    }
    for (const std::string& item : sets) {
        const auto equals = item.find('=');
        if (equals == std::string::npos) {
            return fail(ErrorKind::usage, fmt::format("--set {}: expected FIELD=VALUE", item));
        }
        GDNCTL_TRY(set_field(contract, std::string_view(item).substr(0, equals),
                             std::string_view(item).substr(equals + 1), "--set"));
    }
    return contract;
}

}  // namespace gdnctl::oracle
