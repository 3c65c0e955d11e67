#include "oracle/linear_ce/judge/contract.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::oracle::linear_ce {

namespace {

template <class E>
struct Word {
    std::string_view text;
    E value;
};

constexpr std::array<Word<Layout>, 2> k_layouts = {{{"hv", Layout::hv}, {"vh", Layout::vh}}};
constexpr std::array<Word<Reduction>, 3> k_reductions = {
    {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}}};
constexpr std::array<Word<Matmul>, 3> k_matmuls = {
    {{"exact", Matmul::exact}, {"bf16", Matmul::bf16}, {"tf32", Matmul::tf32}}};
constexpr std::array<Word<Logits>, 2> k_logits = {{{"f32", Logits::f32}, {"bf16", Logits::bf16}}};

// The error for a value of a field that takes words, or nothing.
template <class E, std::size_t N>
Status known_word(std::string_view name, std::string_view text, const std::array<Word<E>, N>& words,
                  std::string_view origin) {
    std::vector<std::string> known;
    for (const Word<E>& w : words) {
        if (w.text == text) return {};
        known.emplace_back(w.text);
    }
    return fail(origin[0] == '-' ? ErrorKind::usage : ErrorKind::bad_input,
                fmt::format("{} '{}' is not known ({})", name, text, origin), "known: " + text::join(known, ", "));
}

bool is_none(std::string_view text) { return text == "none" || text == "None"; }

// Of a field that takes numbers.
Result<double> number_of(std::string_view name, std::string_view text, std::string_view origin) {
    const auto value = text::parse_double(text);
    if (value && std::isfinite(*value)) return *value;
    return fail(origin[0] == '-' ? ErrorKind::usage : ErrorKind::bad_input,
                fmt::format("{} '{}' is not a number ({})", name, text, origin));
}

Status known_number(std::string_view name, std::string_view text) {
    if (is_none(text)) return {};
    GDNCTL_TRY(number_of(name, text, "--set"));
    return {};
}

// "Label-Smoothing" and "label_smoothing" are one key.
std::string plain_key(std::string_view key) {
    std::string plain = text::to_lower(key);
    std::erase_if(plain, [](char c) { return c == '_' || c == '-' || c == '.'; });
    return plain;
}

bool is_off(std::string_view value, double off) {
    const std::string lower = text::to_lower(value);
    for (const std::string_view word : {"", "none", "null", "false", "off", "no"}) {
        if (lower == word) return true;
    }
    const auto number = text::parse_double(value);
    return number && *number == off;
}

struct Alias {
    std::string_view key, field;
};
// What Liger, cut-cross-entropy, torchtitan and Hugging Face's configurations call the fields, as plain_key() has it.
constexpr Alias k_aliases[] = {
    {"softcap", "soft_cap"},
    {"logitsoftcap", "soft_cap"},
    {"logitssoftcap", "soft_cap"},
    {"logitsoftcapping", "soft_cap"},
    {"finallogitsoftcap", "soft_cap"},
    {"finallogitsoftcapping", "soft_cap"},
    {"zloss", "logsumexp_weight"},
    {"zlossweight", "logsumexp_weight"},
    {"zlosscoef", "logsumexp_weight"},
    {"zlosscoeff", "logsumexp_weight"},
    {"zlosscoefficient", "logsumexp_weight"},
    {"zlossfactor", "logsumexp_weight"},
    {"zlossmultiplier", "logsumexp_weight"},
    {"zlossscale", "logsumexp_weight"},
    {"lsesquarescale", "logsumexp_weight"},
    {"logsumexppenalty", "logsumexp_weight"},
};

struct Refused {
    std::string_view key;
    double off = 0;
};
// What makes another loss of the same tensors.
constexpr Refused k_refused[] = {
    {"labelsmoothing"},  {"smoothing"},        {"ceweight"}, {"classweight"},    {"classweights"},  {"tokenscaling"},
    {"usetokenscaling"}, {"focalgamma"},       {"shift"},    {"temperature", 1}, {"logitscale", 1}, {"logitsscale", 1},
    {"logitscaling", 1}, {"logitsscaling", 1}, {"bias"},
};

using Metadata = std::map<std::string, std::string>;

// The entry that gives a field, under its own name or another library's.
const Metadata::value_type* entry_of(const Metadata& metadata, std::string_view field) {
    if (const auto own = metadata.find(std::string(field)); own != metadata.end()) return &*own;
    for (const Metadata::value_type& entry : metadata) {
        for (const Alias& alias : k_aliases) {
            if (alias.field == field && alias.key == plain_key(entry.first)) return &entry;
        }
    }
    return nullptr;
}

std::string value_of(const Metadata::value_type& entry, std::string_view field) {
    return entry.first != field && is_off(entry.second, 0) ? "none" : entry.second;
}

bool same_value(const std::string& a, const std::string& b) {
    return a == b || (is_off(a, 0) && is_off(b, 0)) ||
           (text::parse_double(a) && text::parse_double(a) == text::parse_double(b));
}

// Refuses metadata that no field says, and two entries that contradict each other.
Status check_metadata(const Metadata& metadata) {
    for (const Metadata::value_type& entry : metadata) {
        const std::string plain = plain_key(entry.first);
        for (const Refused& refused : k_refused) {
            if (refused.key != plain || is_off(entry.second, refused.off)) continue;
            return fail(ErrorKind::bad_input,
                        fmt::format("metadata of the inputs file: {} = {} changes the loss in a way that linear-ce "
                                    "cannot express",
                                    entry.first, entry.second),
                        "dump a run without it, or remove the entry if the kernel does not use it");
        }
        for (const Alias& alias : k_aliases) {
            if (alias.key != plain) continue;
            const Metadata::value_type* chosen = entry_of(metadata, alias.field);
            if (same_value(value_of(*chosen, alias.field), value_of(entry, alias.field))) continue;
            return fail(ErrorKind::bad_input,
                        fmt::format("metadata of the inputs file: {} = {} contradicts {} = {}", entry.first,
                                    entry.second, chosen->first, chosen->second),
                        fmt::format("keep one of them: both mean {}", alias.field));
        }
    }
    return {};
}

struct SettableField {
    std::string_view name;
    Status (*check)(std::string_view name, std::string_view value);
};

template <const auto& words>
Status check_word(std::string_view name, std::string_view value) {
    return known_word(name, value, words, "--set");
}

constexpr std::array k_settable = {
    SettableField{"layout", &check_word<k_layouts>},  SettableField{"soft_cap", &known_number},
    SettableField{"logsumexp_weight", &known_number}, SettableField{"reduction", &check_word<k_reductions>},
    SettableField{"matmul", &check_word<k_matmuls>},  SettableField{"logits", &check_word<k_logits>},
};

template <class E, std::size_t N>
std::string_view word_of(const std::array<Word<E>, N>& words, E value) {
    for (const Word<E>& w : words) {
        if (w.value == value) return w.text;
    }
    return {};
}

// One field after another: what is given on the command line, else in the file, else the default.
class Resolver {
public:
    Resolver(const std::map<std::string, std::string>& metadata, const std::map<std::string, std::string>& sets,
             ResolvedContract& to)
        : m_metadata(metadata), m_sets(sets), m_to(to) {}

    template <class E, std::size_t N>
    Status word(const char* name, const std::optional<std::string>& given, const std::array<Word<E>, N>& words, E& to,
                bool required) {
        std::string text;
        const std::string origin = origin_of(name, given.has_value(), given.value_or(""), text);
        if (origin.empty()) {
            if (required) {
                return fail(ErrorKind::bad_input, fmt::format("the inputs file does not say the {} of w", name),
                            fmt::format("--{0} hv if w is [H,V], --{0} vh if it is [V,H]", name));
            }
            return note(name, std::string(word_of(words, to)), "default");
        }
        GDNCTL_TRY(known_word(name, text, words, origin));
        for (const Word<E>& w : words) {
            if (w.text == text) to = w.value;
        }
        return note(name, text, origin);
    }

    Status number(const char* name, const std::optional<double>& given, double& to) {
        std::string text;
        const std::string origin = origin_of(name, given.has_value(), given ? fmt::format("{}", *given) : "", text);
        if (origin.empty() || is_none(text)) {
            return note(name, to == 0 && std::string_view(name) == "soft_cap" ? "none" : "0",
                        origin.empty() ? "default" : origin);
        }
        GDNCTL_TRY_ASSIGN(to, number_of(name, text, origin));
        return note(name, text, origin);
    }

    Status note(std::string name, std::string value, std::string origin) {
        m_to.fields.push_back({std::move(name), std::move(value), std::move(origin)});
        return {};
    }

    // Where the field was given, with its value in `text`; empty: nowhere.
    std::string origin_of(const std::string& name, bool given, std::string value, std::string& text) const {
        if (const auto set = m_sets.find(name); set != m_sets.end()) {
            text = set->second;
            return "--set";
        }
        if (given) {
            text = std::move(value);
            std::string option = "--" + name;
            for (char& c : option) c = c == '_' ? '-' : c;
            return option;
        }
        const Metadata::value_type* found = entry_of(m_metadata, name);
        if (found == nullptr) return {};
        text = value_of(*found, name);
        return found->first == name ? "inputs metadata" : fmt::format("inputs metadata, {}", found->first);
    }

private:
    const std::map<std::string, std::string>& m_metadata;
    const std::map<std::string, std::string>& m_sets;
    ResolvedContract& m_to;
};

}  // namespace

std::string_view name_of(Layout layout) { return word_of(k_layouts, layout); }
std::string_view name_of(Reduction reduction) { return word_of(k_reductions, reduction); }
std::string_view name_of(Matmul matmul) { return word_of(k_matmuls, matmul); }
std::string_view name_of(Logits logits) { return word_of(k_logits, logits); }

std::vector<std::string> contract_field_names() {
    std::vector<std::string> names;
    for (const SettableField& field : k_settable) names.emplace_back(field.name);
    return names;
}

Status set_field(std::string_view set, Overrides& to) {
    const std::size_t equals = set.find('=');
    if (equals == std::string_view::npos || equals == 0) {
        return fail(ErrorKind::usage, fmt::format("--set {}: expected FIELD=VALUE", set),
                    "fields: " + text::join(contract_field_names(), ", "));
    }
    const std::string_view name = set.substr(0, equals);
    const std::string_view value = set.substr(equals + 1);
    for (const SettableField& field : k_settable) {
        if (field.name != name) continue;
        GDNCTL_TRY(field.check(name, value));
        to.sets[std::string(name)] = value;
        return {};
    }
    return fail(ErrorKind::usage, fmt::format("--set {}: linear-ce has no field '{}'", set, name),
                "fields: " + text::join(contract_field_names(), ", "));
}

std::map<std::string, std::string> ResolvedContract::as_metadata() const {
    std::map<std::string, std::string> metadata;
    for (const Field& f : fields) {
        if (f.value != "none" || f.name == "reduction") metadata[f.name] = f.value;
    }
    return metadata;
}

Result<ResolvedContract> resolve(const std::map<std::string, std::string>& metadata, const Overrides& overrides) {
    if (const auto op = metadata.find("op"); op != metadata.end() && op->second != "linear-ce") {
        return fail(ErrorKind::bad_input,
                    fmt::format("the inputs file is for operator '{}', not linear-ce", op->second));
    }
    GDNCTL_TRY(check_metadata(metadata));
    ResolvedContract result;
    Contract& c = result.value;
    Resolver resolver(metadata, overrides.sets, result);
    GDNCTL_TRY(resolver.word("layout", overrides.layout, k_layouts, c.layout, true));
    GDNCTL_TRY(resolver.number("soft_cap", overrides.soft_cap, c.soft_cap));
    const bool capped = result.fields.back().value != "none";
    if (capped && !(c.soft_cap > 0)) {
        return fail(ErrorKind::bad_input, fmt::format("soft_cap {} is not positive", result.fields.back().value),
                    "leave it out where there is no cap");
    }
    GDNCTL_TRY(resolver.number("logsumexp_weight", overrides.logsumexp_weight, c.logsumexp_weight));
    GDNCTL_TRY(resolver.word("reduction", overrides.reduction, k_reductions, c.reduction, false));
    GDNCTL_TRY(resolver.word("matmul", overrides.matmul, k_matmuls, c.matmul, false));
    GDNCTL_TRY(resolver.word("logits", overrides.logits, k_logits, c.logits, false));
    std::string text;
    const auto& given = overrides.ignore_index;
    const std::string origin =
        resolver.origin_of("ignore_index", given.has_value(), given ? fmt::format("{}", *given) : "", text);
    if (origin.empty() || text == "none") {
        GDNCTL_TRY(resolver.note("ignore_index", "none", origin.empty() ? "default" : origin));
        return result;
    }
    c.ignore_index = text::parse_int(text);
    if (!c.ignore_index)
        return fail(ErrorKind::bad_input, fmt::format("ignore_index '{}' is not a whole number", text));
    GDNCTL_TRY(resolver.note("ignore_index", text, origin));
    return result;
}

namespace {

bool is_precision(std::string_view field) { return field == "matmul" || field == "logits"; }

bool is_same_value(const std::string& a, const std::string& b) {
    if (a == b) return true;
    const auto x = text::parse_double(a);
    const auto y = text::parse_double(b);
    return x && y && *x == *y;
}

void turn(Tensor& w) {
    const auto rows = static_cast<std::size_t>(w.shape[0]);
    const auto columns = static_cast<std::size_t>(w.shape[1]);
    const std::vector<double> from = to_f64(w);
    std::vector<double> to(from.size());
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t k = 0; k < columns; ++k) to[k * rows + r] = from[r * columns + k];
    }
    w = from_f64(to, {w.shape[1], w.shape[0]}, w.dtype);
}

}  // namespace

Result<std::optional<std::string>> declare(TensorFile& inputs, std::span<const std::string> sets) {
    Overrides overrides;
    for (const std::string& set : sets) GDNCTL_TRY(set_field(set, overrides));
    GDNCTL_TRY_ASSIGN(const auto plain, resolve({{"layout", "hv"}}, {}));
    GDNCTL_TRY_ASSIGN(const auto own, resolve(inputs.metadata, {}));
    GDNCTL_TRY_ASSIGN(const auto declared, resolve(inputs.metadata, overrides));
    for (std::size_t i = 0; i < own.fields.size(); ++i) {
        const auto& [field, needed, origin] = own.fields[i];
        if (is_precision(field) || is_same_value(needed, declared.fields[i].value)) continue;
        if (!is_same_value(needed, plain.fields[i].value)) {
            return std::optional(fmt::format("{}={}", field, needed));
        }
    }
    if (own.value.layout != declared.value.layout) {
        for (NamedTensor& entry : inputs.tensors) {
            if (entry.name == "w") turn(entry.tensor);
        }
    }
    for (const auto& field : declared.fields) inputs.metadata.erase(field.name);
    for (const auto& [field, value] : declared.as_metadata()) inputs.metadata[field] = value;
    return std::optional<std::string>();
}

}  // namespace gdnctl::oracle::linear_ce
