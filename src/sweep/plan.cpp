#include "sweep/plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/hash.h"

namespace gdnctl::sweep {

namespace {

constexpr std::array<std::string_view, 21> k_keys = {
    "name", "device_kind",    "shapes",        "x_dtype", "w_dtype", "accum_dtype",  "soft_cap", "logsumexp_weight",
    "b",    "implementation", "infer_command", "command", "repeats", "time_limit_s", "budget_s", "source_revision",
    "h",    "retries",        "inputs",        "check",   "v"};

constexpr std::int64_t k_largest = (std::int64_t{1} << 31) - 1;
constexpr std::size_t k_most_configurations = 10000;

tl::unexpected<Error> wrong(const ConfigValue& value, std::string_view key, std::string_view wanted) {
    return fail(ErrorKind::config, fmt::format("{}: {} must be {}", value.origin.text(), key, wanted));
}

class Reader {
public:
    explicit Reader(const ConfigTable& table) : m_table(table) {}

    const ConfigValue* find(std::string_view key) const {
        const auto at = m_table.find(key);
        return at == m_table.end() ? nullptr : &at->second;
    }

    Status word(std::string_view key, std::string& to) const {
        const ConfigValue* value = find(key);
        if (value == nullptr) return {};
        if (value->as_string() == nullptr) return wrong(*value, key, "a string");
        to = *value->as_string();
        return {};
    }

    Status number(std::string_view key, double low, std::optional<double>& to) const {
        const ConfigValue* value = find(key);
        if (value == nullptr) return {};
        if (const auto* whole = std::get_if<std::int64_t>(&value->value)) {
            to = static_cast<double>(*whole);
        } else if (const auto* real = std::get_if<double>(&value->value)) {
            to = *real;
        } else {
            return wrong(*value, key, "a number");
        }
        if (!(*to >= low) || !std::isfinite(*to)) return wrong(*value, key, fmt::format("a number, {:g} or more", low));
        return {};
    }

    Status count(std::string_view key, std::int64_t low, std::int64_t high, std::int64_t& to) const {
        const ConfigValue* value = find(key);
        if (value == nullptr) return {};
        GDNCTL_TRY_ASSIGN(to, whole(*value, key, low, high));
        return {};
    }

    static Result<std::int64_t> whole(const ConfigValue& value, std::string_view key, std::int64_t low,
                                      std::int64_t high) {
        const auto* number = std::get_if<std::int64_t>(&value.value);
        if (number == nullptr || *number < low || *number > high) {
            return wrong(value, key, fmt::format("a whole number from {} to {}", low, high));
        }
        return *number;
    }

    Status sizes(std::string_view key, std::vector<std::int64_t>& to) const {
        const ConfigValue* value = find(key);
        if (value == nullptr) return {};
        if (value->as_array() == nullptr) return wrong(*value, key, "a list of block sizes");
        for (const ConfigValue& item : *value->as_array()) {
            GDNCTL_TRY_ASSIGN(const std::int64_t size, whole(item, key, 1, k_largest));
            if (std::find(to.begin(), to.end(), size) == to.end()) to.push_back(size);
        }
        if (to.empty()) return wrong(*value, key, "a list of at least one block size");
        return {};
    }

    Status argv(std::string_view key, std::vector<std::string>& to) const {
        const ConfigValue* value = find(key);
        if (value == nullptr) return {};
        const std::string_view wanted = "a list of strings: the words of a command line";
        if (value->as_array() == nullptr || value->as_array()->empty()) return wrong(*value, key, wanted);
        for (const ConfigValue& item : *value->as_array()) {
            if (item.as_string() == nullptr) return wrong(item, key, wanted);
            to.push_back(*item.as_string());
        }
        return {};
    }

    Status known(std::span<const std::string_view> keys, std::string_view place) const {
        for (const auto& [key, value] : m_table) {
            if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
            const std::vector<std::string> names(keys.begin(), keys.end());
            const auto near = text::nearest(key, names);
            return fail(ErrorKind::config, fmt::format("{}: unknown key {}{}", value.origin.text(), place, key),
                        near ? "did you mean `" + *near + "`?" : "known keys: " + text::join(names, ", "));
        }
        return {};
    }

private:
    const ConfigTable& m_table;
};

Status read_shapes(const Reader& reader, std::vector<Shape>& to) {
    const ConfigValue* value = reader.find("shapes");
    constexpr std::string_view k_wanted = "a list of { batch, hidden, vocab }";
    if (value == nullptr) return {};
    if (value->as_array() == nullptr || value->as_array()->empty()) return wrong(*value, "shapes", k_wanted);
    constexpr std::array<std::string_view, 3> k_parts = {"batch", "hidden", "vocab"};
    for (const ConfigValue& item : *value->as_array()) {
        if (item.as_table() == nullptr) return wrong(item, "shapes", k_wanted);
        const Reader parts(*item.as_table());
        GDNCTL_TRY(parts.known(k_parts, "shapes."));
        Shape shape;
        GDNCTL_TRY(parts.count("batch", 1, k_largest, shape.batch));
        GDNCTL_TRY(parts.count("hidden", 1, k_largest, shape.hidden));
        GDNCTL_TRY(parts.count("vocab", 1, k_largest, shape.vocab));
        if (shape.batch * shape.hidden * shape.vocab == 0) return wrong(item, "shapes", k_wanted);
        if (std::find(to.begin(), to.end(), shape) == to.end()) to.push_back(shape);
    }
    return {};
}

bool mentions(const std::vector<std::string>& argv, std::initializer_list<std::string_view> words) {
    for (const std::string& word : argv) {
        for (const std::string_view placeholder : words) {
            if (word.find(placeholder) != std::string::npos) return true;
        }
    }
    return false;
}

// What no single key can tell.
Status judge(const Plan& plan, const Reader& reader, std::string_view source) {
    const auto at = [&](std::string_view key) {
        const ConfigValue* value = reader.find(key);
        return value == nullptr ? std::string(source) : value->origin.text();
    };
    if (plan.command.empty()) return fail(ErrorKind::config, fmt::format("{}: `command` is missing", source));
    if (plan.shapes.empty()) return fail(ErrorKind::config, fmt::format("{}: `shapes` is missing", source));
    const bool swept = !plan.b.empty() || !plan.h.empty() || !plan.v.empty();
    if (!swept && mentions(plan.command, {"{b}", "{h}", "{v}"})) {
        return fail(ErrorKind::config,
                    at("command") + ": command names {b}, {h} or {v}, but the plan has no block sizes",
                    "add lists: b = [1024]");
    }
    if (mentions(plan.infer_command, {"{b}", "{h}", "{v}"})) {
        return fail(ErrorKind::config, at("infer_command") +
                                           ": infer_command is for block sizes that the kernel picks: it has no "
                                           "{b}, {h} or {v}");
    }
    const bool needs_inputs =
        plan.check != Check::none || mentions(plan.command, {"{inputs}"}) || mentions(plan.infer_command, {"{inputs}"});
    if (needs_inputs && plan.inputs.empty()) {
        return fail(ErrorKind::config, fmt::format("{}: `inputs` is missing", source),
                    "write them with `gdnctl oracle run linear-ce --out inputs.safetensors`");
    }
    const bool writes = mentions(plan.command, {"{outputs}"}) &&
                        (plan.infer_command.empty() || mentions(plan.infer_command, {"{outputs}"}));
    if (plan.check != Check::none && !writes) {
        return fail(ErrorKind::config,
                    at("check") + ": outputs are to be checked, but no {outputs} says where they go");
    }
    const std::size_t grid = std::max<std::size_t>(plan.b.size(), 1) * std::max<std::size_t>(plan.h.size(), 1) *
                             std::max<std::size_t>(plan.v.size(), 1) * plan.shapes.size();
    if (grid > k_most_configurations) {
        return fail(ErrorKind::config, fmt::format("{}: {} configurations are too many (at most {})", source, grid,
                                                   k_most_configurations));
    }
    return {};
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
        text.replace(at, what.size(), by);
}

double item_size(std::string_view dtype) { return dtype == "float32" || dtype == "f32" ? 4 : 2; }

}  // namespace

std::string_view to_text(Check check) {
    switch (check) {
        case Check::none: return "none";
        case Check::sampled: return "sampled";
        case Check::exact: return "exact";
    }
    return {};
}

Result<Plan> parse_plan(const ConfigTable& table, std::string_view source) {
    const Reader reader(table);
    Plan plan;
    GDNCTL_TRY(reader.known(k_keys, ""));
    const std::array<std::pair<std::string_view, std::string*>, 7> words = {{{"name", &plan.name},
                                                                             {"device_kind", &plan.device_kind},
                                                                             {"x_dtype", &plan.x_dtype},
                                                                             {"w_dtype", &plan.w_dtype},
                                                                             {"accum_dtype", &plan.accum_dtype},
                                                                             {"implementation", &plan.implementation},
                                                                             {"inputs", &plan.inputs}}};
    for (const auto& [key, to] : words) GDNCTL_TRY(reader.word(key, *to));
    if (reader.find("source_revision") != nullptr) {
        plan.source_revision.emplace();
        GDNCTL_TRY(reader.word("source_revision", *plan.source_revision));
    }
    GDNCTL_TRY(read_shapes(reader, plan.shapes));
    GDNCTL_TRY(reader.sizes("b", plan.b));
    GDNCTL_TRY(reader.sizes("h", plan.h));
    GDNCTL_TRY(reader.sizes("v", plan.v));
    GDNCTL_TRY(reader.argv("command", plan.command));
    GDNCTL_TRY(reader.argv("infer_command", plan.infer_command));
    GDNCTL_TRY(reader.count("repeats", 1, 1000, plan.repeats));
    GDNCTL_TRY(reader.count("retries", 0, 100, plan.retries));
    std::optional<double> limit, penalty;
    GDNCTL_TRY(reader.number("time_limit_s", 0.001, limit));
    GDNCTL_TRY(reader.number("budget_s", 0, plan.budget_s));
    GDNCTL_TRY(reader.number("logsumexp_weight", 0, penalty));
    GDNCTL_TRY(reader.number("soft_cap", 1e-30, plan.soft_cap));
    plan.time_limit_s = limit.value_or(plan.time_limit_s);
    plan.logsumexp_weight = penalty.value_or(0);
    std::string check = "none";
    GDNCTL_TRY(reader.word("check", check));
    if (check == "sampled") {
        plan.check = Check::sampled;
    } else if (check == "exact") {
        plan.check = Check::exact;
    } else if (check != "none") {
        return wrong(*reader.find("check"), "check", "none, sampled or exact");
    }
    GDNCTL_TRY(judge(plan, reader, source));
    return plan;
}

std::map<std::string, std::string> switches_of(const std::map<std::string, std::string>& environment) {
    std::map<std::string, std::string> out;
    for (const auto& [name, value] : environment) {
        if (name == "LIBTPU_INIT_ARGS" || name == "XLA_FLAGS" || name.starts_with("LEVANTER_")) out[name] = value;
    }
    return out;
}

Result<std::vector<Configuration>> configurations_of(const Plan& plan, const std::string& revision,
                                                     const std::map<std::string, std::string>& switches,
                                                     const std::map<std::string, std::string>& found) {
    const bool swept = !plan.b.empty() || !plan.h.empty() || !plan.v.empty();
    const auto axis = [](const std::vector<std::int64_t>& list, std::int64_t usual) {
        return list.empty() ? std::vector<std::int64_t>{usual} : list;
    };
    const BlockSizes usual;
    std::vector<Configuration> out;
    for (const Shape& shape : plan.shapes) {
        if (!swept) out.push_back({"", "none", shape, std::nullopt, false});
        for (const std::int64_t b : axis(plan.b, usual.b)) {
            for (const std::int64_t h : axis(plan.h, usual.h)) {
                for (const std::int64_t v : axis(plan.v, usual.v)) {
                    if (swept) out.push_back({"", label_of({b, h, v}), shape, BlockSizes{b, h, v}, false});
                }
            }
        }
        if (!plan.infer_command.empty()) out.push_back({"", "infer", shape, std::nullopt, true});
    }
    for (Configuration& c : out) {
        Json all = {{"shape", to_json(c.shape)},
                    {"label", c.label},
                    {"x_dtype", plan.x_dtype},
                    {"w_dtype", plan.w_dtype},
                    {"accum_dtype", plan.accum_dtype},
                    {"soft_cap", plan.soft_cap ? Json(*plan.soft_cap) : Json()},
                    {"logsumexp_weight", plan.logsumexp_weight},
                    {"device_kind", plan.device_kind},
                    {"implementation", plan.implementation},
                    {"source_revision", revision},
                    {"command", c.infer ? plan.infer_command : plan.command},
                    {"inputs", plan.inputs},
                    {"check", to_text(plan.check)},
                    {"environment", switches}};
        if (!found.empty()) all["found"] = found;
        GDNCTL_TRY_ASSIGN(c.key, hash_hex(HashKind::sha256, gdnctl::to_text(all)));
        c.key.resize(32);
    }
    return out;
}

std::vector<std::string> command_of(const Plan& plan, const Configuration& c, const std::string& outputs,
                                    const std::string& inputs) {
    std::vector<std::pair<std::string_view, std::string>> words = {{"{batch}", std::to_string(c.shape.batch)},
                                                                   {"{hidden}", std::to_string(c.shape.hidden)},
                                                                   {"{vocab}", std::to_string(c.shape.vocab)},
                                                                   {"{label}", c.label}};
    if (c.sizes) {
        words.emplace_back("{b}", std::to_string(c.sizes->b));
        words.emplace_back("{h}", std::to_string(c.sizes->h));
        words.emplace_back("{v}", std::to_string(c.sizes->v));
    }
    words.emplace_back("{outputs}", outputs);
    words.emplace_back("{inputs}", inputs);
    std::vector<std::string> argv = c.infer ? plan.infer_command : plan.command;
    for (std::string& word : argv) {
        for (const auto& [placeholder, value] : words) replace_all(word, placeholder, value);
    }
    return argv;
}

double estimated_vmem_bytes(const Plan& plan, const BlockSizes& sizes) {
    const auto b = static_cast<double>(sizes.b), h = static_cast<double>(sizes.h), v = static_cast<double>(sizes.v);
    constexpr double k_lanes = 128;
    const double x_bytes = item_size(plan.x_dtype);
    const double w_bytes = item_size(plan.w_dtype.empty() ? plan.x_dtype : plan.w_dtype);
    const double buffers = 2 * (b * h * x_bytes + h * v * w_bytes);
    const double forward = 4 * b * v + 12 * k_lanes * b + buffers + 16 * k_lanes * b;
    const double backward = 4 * (b * v + b * h + h * v) + buffers;
    return std::max(forward, backward);
}

double scoped_vmem_limit_bytes(std::string_view libtpu_init_args) {
    constexpr std::string_view k_flag = "xla_tpu_scoped_vmem_limit_kib=";
    constexpr double k_usual = 16.0 * 1024 * 1024;
    const auto at = libtpu_init_args.find(k_flag);
    if (at == std::string_view::npos) return k_usual;
    const std::string_view digits = libtpu_init_args.substr(at + k_flag.size());
    const auto kib = text::parse_int(digits.substr(0, digits.find_first_not_of("0123456789")));
    return kib && *kib > 0 ? static_cast<double>(*kib) * 1024 : k_usual;
}

}  // namespace gdnctl::sweep
