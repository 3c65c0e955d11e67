// What the names of tensors mean.
#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

namespace {

struct NameRow {
    std::string_view name;
    std::string_view canonical;
    GdnRole role;
};

constexpr NameRow k_names[] = {
    {"q", "q", GdnRole::input},
    {"query", "q", GdnRole::input},
    {"k", "k", GdnRole::input},
    {"key", "k", GdnRole::input},
    {"v", "v", GdnRole::input},
    {"value", "v", GdnRole::input},
    {"g", "g", GdnRole::input},
    {"alpha", "g", GdnRole::input},
    {"beta", "beta", GdnRole::input},
    {"a", "a", GdnRole::input},
    {"b", "b", GdnRole::input},
    {"A_log", "A_log", GdnRole::input},
    {"dt_bias", "dt_bias", GdnRole::input},
    {"initial_state", "initial_state", GdnRole::input},
    {"state", "initial_state", GdnRole::input},
    {"h0", "initial_state", GdnRole::input},
    {"cu_seqlens", "cu_seqlens", GdnRole::input},
    {"lengths", "lengths", GdnRole::input},
    {"offsets", "offsets", GdnRole::input},
    {"scale", "scale", GdnRole::input},
    {"out", "out", GdnRole::output},
    {"output", "out", GdnRole::output},
    {"o", "out", GdnRole::output},
    {"core_attn_out", "out", GdnRole::output},  // transformers
    {"final_state", "final_state", GdnRole::output},
    {"new_state", "final_state", GdnRole::output},
    {"ht", "final_state", GdnRole::output},
    {"last_recurrent_state", "final_state", GdnRole::output},  // transformers
    {"d_out", "d_out", GdnRole::cotangent},
    {"do", "d_out", GdnRole::cotangent},
    {"d_final_state", "d_final_state", GdnRole::cotangent},
    {"dht", "d_final_state", GdnRole::cotangent},
    {"dq", "dq", GdnRole::gradient},
    {"d_q", "dq", GdnRole::gradient},
    {"dk", "dk", GdnRole::gradient},
    {"d_k", "dk", GdnRole::gradient},
    {"dv", "dv", GdnRole::gradient},
    {"d_v", "dv", GdnRole::gradient},
    {"dg", "dg", GdnRole::gradient},
    {"d_g", "dg", GdnRole::gradient},
    {"dbeta", "dbeta", GdnRole::gradient},
    {"db", "dbeta", GdnRole::gradient},
    {"d_beta", "dbeta", GdnRole::gradient},
    {"d_initial_state", "d_initial_state", GdnRole::gradient},
    {"dh0", "d_initial_state", GdnRole::gradient},
    {"dS0", "d_initial_state", GdnRole::gradient},
    {"d_S0", "d_initial_state", GdnRole::gradient},
    {"d_h0", "d_initial_state", GdnRole::gradient},
    {"d_state", "d_initial_state", GdnRole::gradient},
    {"d_alpha", "d_alpha", GdnRole::gradient},
    {"dalpha", "d_alpha", GdnRole::gradient},
    {"d_a", "d_a", GdnRole::gradient},
    {"da", "d_a", GdnRole::gradient},
    {"d_b", "d_b", GdnRole::gradient},
    {"d_A_log", "d_A_log", GdnRole::gradient},
    {"dA_log", "d_A_log", GdnRole::gradient},
    {"d_dt_bias", "d_dt_bias", GdnRole::gradient},
    {"ddt_bias", "d_dt_bias", GdnRole::gradient},
    {"d dt_bias", "d_dt_bias", GdnRole::gradient},
};

template <class Meaning>
Result<const NamedTensor*> find_named(const TensorFile& file, std::string_view canonical, const Meaning& meaning) {
    const NamedTensor* found = nullptr;
    for (const NamedTensor& entry : file.tensors) {
        if (meaning(entry.name).canonical != canonical) continue;
        if (found != nullptr) {
            return fail(ErrorKind::bad_input,
                        fmt::format("tensors '{}' and '{}' both mean {}", found->name, entry.name, canonical));
        }
        found = &entry;
    }
    for (const UnreadTensor& entry : file.unread) {
        if (meaning(entry.name).canonical != canonical) continue;
        return fail(ErrorKind::bad_input,
                    fmt::format("tensor '{}': gdnctl cannot read dtype {}", entry.name, entry.dtype),
                    "store it as float32, float16 or bfloat16");
    }
    return found;
}

bool holds_tensor(const TensorFile& file, std::string_view name) {
    return file.any_name([name](std::string_view other) { return other == name; });
}

// A name without the prefixes or suffixes that libraries use for gradients; empty: there were none.
std::string_view without_gradient_words(std::string_view name) {
    const auto cut = name.find_last_of("/.");
    std::string_view rest = cut == std::string_view::npos ? name : name.substr(cut + 1);
    const bool in_folder = cut != std::string_view::npos && name.substr(0, cut).find("grad") != std::string_view::npos;
    for (const std::string_view word : {"grads_", "grad_", "gradient_", "grad", "g_", "d_", "d"}) {
        if (rest.starts_with(word)) return rest.substr(word.size());
    }
    for (const std::string_view word : {"_grads", "_grad", "_gradient", "_bar", "grad"}) {
        if (rest.ends_with(word)) return rest.substr(0, rest.size() - word.size());
    }
    return in_folder ? rest : std::string_view();
}

}  // namespace

GdnName canonical_name(std::string_view name) {
    for (const NameRow& row : k_names) {
        if (row.name == name) return {row.canonical, row.role};
    }
    return {name, GdnRole::unknown};
}

GdnName name_in_dump(const TensorFile& dump, std::string_view name, const GdnContract& contract) {
    if (name == "db" && contract.beta_kind != BetaKind::prob && !holds_tensor(dump, "d_b")) {
        return {"d_b", GdnRole::gradient};
    }
    const bool inputs_too = holds_tensor(dump, "q") || holds_tensor(dump, "query");
    if (name == "state" && !inputs_too && !holds_tensor(dump, "final_state") && !holds_tensor(dump, "new_state") &&
        !holds_tensor(dump, "ht")) {
        return {"final_state", GdnRole::output};
    }
    return canonical_name(name);
}

std::string_view gradient_that_resembles(std::string_view name) {
    const GdnName own = canonical_name(name);
    if (own.role != GdnRole::unknown) return {};
    const std::string_view of = without_gradient_words(name);
    const GdnName input = canonical_name(of);
    if (of.empty() || input.role != GdnRole::input) return {};
    for (const NameRow& row : k_names) {
        if (row.role != GdnRole::gradient) continue;
        std::string_view rest = row.canonical.substr(1);
        if (rest.starts_with('_')) rest.remove_prefix(1);
        if (rest == input.canonical) return row.canonical;
    }
    return {};
}

Result<const Tensor*> find_gdn_tensor(const TensorFile& file, std::string_view canonical,
                                      GdnName (*meaning)(std::string_view)) {
    GDNCTL_TRY_ASSIGN(const NamedTensor* found,
                      find_named(file, canonical, [meaning](std::string_view name) { return meaning(name); }));
    return found == nullptr ? nullptr : &found->tensor;
}

Result<const NamedTensor*> find_in_dump(const TensorFile& dump, std::string_view canonical,
                                        const GdnContract& contract) {
    return find_named(dump, canonical, [&](std::string_view name) { return name_in_dump(dump, name, contract); });
}

}  // namespace gdnctl::oracle
