#include "oracle/linear_ce/judge/contract.h"

#include <array>

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
constexpr std::array<Word<Matmul>, 2> k_matmuls = {{{"exact", Matmul::exact}, {"bf16", Matmul::bf16}}};

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
    Resolver(const std::map<std::string, std::string>& metadata, ResolvedContract& to)
        : m_metadata(metadata), m_to(to) {}

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
        for (const Word<E>& w : words) {
            if (w.text != text) continue;
            to = w.value;
            return note(name, text, origin);
        }
        std::vector<std::string> known;
        for (const Word<E>& w : words) known.emplace_back(w.text);
        return fail(origin[0] == '-' ? ErrorKind::usage : ErrorKind::bad_input,
                    fmt::format("{} '{}' is not known ({})", name, text, origin), "known: " + text::join(known, ", "));
    }

    Status number(const char* name, const std::optional<double>& given, double& to) {
        std::string text;
        const std::string origin = origin_of(name, given.has_value(), given ? fmt::format("{}", *given) : "", text);
        if (origin.empty() || text == "none" || text == "None") {
            return note(name, to == 0 && std::string_view(name) == "soft_cap" ? "none" : "0",
                        origin.empty() ? "default" : origin);
        }
        const auto value = given ? given : text::parse_double(text);
        if (!value) return fail(ErrorKind::bad_input, fmt::format("{} '{}' is not a number ({})", name, text, origin));
        to = *value;
        return note(name, text, origin);
    }

    Status note(std::string name, std::string value, std::string origin) {
        m_to.fields.push_back({std::move(name), std::move(value), std::move(origin)});
        return {};
    }

    // Where the field was given, with its value in `text`; empty: nowhere.
    std::string origin_of(const std::string& name, bool given, std::string value, std::string& text) const {
        if (given) {
            text = std::move(value);
            std::string option = "--" + name;
            for (char& c : option) c = c == '_' ? '-' : c;
            return option;
        }
        const auto found = m_metadata.find(name);
        if (found == m_metadata.end()) return {};
        text = found->second;
        return "inputs metadata";
    }

private:
    const std::map<std::string, std::string>& m_metadata;
    ResolvedContract& m_to;
};

}  // namespace

std::string_view name_of(Layout layout) { return word_of(k_layouts, layout); }
std::string_view name_of(Reduction reduction) { return word_of(k_reductions, reduction); }
std::string_view name_of(Matmul matmul) { return word_of(k_matmuls, matmul); }

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
    ResolvedContract result;
    Contract& c = result.value;
    Resolver resolver(metadata, result);
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

}  // namespace gdnctl::oracle::linear_ce
