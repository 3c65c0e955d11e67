#include "trace/diff/profile.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace gdnctl::trace {

namespace {

constexpr std::string_view k_schema = "gdnctl.trace-baseline/1";
// Bounds that keep all sums within 64 bits, far above what a trace can hold: 46 days, and 10^9 of anything counted.
constexpr std::int64_t k_longest_ps = 4'000'000'000'000'000'000;
constexpr std::int64_t k_most = 1'000'000'000;

Json op_json(const OpSum& op) {
    return Json::object({{"program", op.program},
                         {"name", op.name},
                         {"category", op.category},
                         {"tf_op", op.tf_op},
                         {"source", op.source},
                         {"stable_id", op.stable_id},
                         {"class", op.cls},
                         {"self_ps", op.self_ps},
                         {"calls", op.calls},
                         {"order", op.order},
                         {"text", op.text}});
}

Json kernel_json(const KernelSum& kernel) {
    return Json::object({{"name", kernel.name},
                         {"program", kernel.program},
                         {"bound", kernel.bound},
                         {"median_ps", kernel.median_ps},
                         {"wait_share", json::or_null(kernel.wait_share)},
                         {"spill", json::or_null(kernel.spill)},
                         {"text", kernel.text}});
}

// Reads the fields of one object, and keeps the first that is missing or has another type.
class Fields {
public:
    Fields(const Json& object, std::string path) : m_object(object), m_path(std::move(path)) {
        if (!object.is_object()) m_error = m_path + ": expected an object";
    }

    void read(std::string_view name, std::string& out) {
        const Json* value = need(name, "a string", [](const Json& v) { return v.is_string(); });
        if (value != nullptr) out = value->get<std::string>();
    }
    void read(std::string_view name, std::int64_t& out, std::int64_t most) {
        const Json* value =
            need(name, fmt::format("an integer from 0 to {}", most), [&](const Json& v) { return is_count(v, most); });
        if (value != nullptr) out = value->get<std::int64_t>();
    }
    void read(std::string_view name, std::optional<std::int64_t>& out, std::int64_t most) {
        const Json* value = need(name, fmt::format("an integer from 0 to {}, or null", most),
                                 [&](const Json& v) { return v.is_null() || is_count(v, most); });
        if (value != nullptr && !value->is_null()) out = value->get<std::int64_t>();
    }
    void read(std::string_view name, double& out) {
        const Json* value = need(name, "a number from 0", is_amount);
        if (value != nullptr) out = value->get<double>();
    }
    void read(std::string_view name, std::optional<double>& out) {
        const Json* value =
            need(name, "a number from 0, or null", [](const Json& v) { return v.is_null() || is_amount(v); });
        if (value != nullptr && !value->is_null()) out = value->get<double>();
    }
    void read(std::string_view name, std::vector<std::string>& out) {
        for (const Json& item : list(name, "a list of strings", [](const Json& v) { return v.is_string(); })) {
            out.push_back(item.get<std::string>());
        }
    }
    void read(std::string_view name, std::vector<Ps>& out) {
        for (const Json& item :
             list(name, "a list of times in ps", [](const Json& v) { return is_count(v, k_longest_ps); })) {
            out.push_back(item.get<Ps>());
        }
    }
    // A list of objects, each of which `read_item` reads.
    template <class Item>
    void read_each(std::string_view name, std::vector<Item>& out, void (*read_item)(Fields&, Item&)) {
        for (const Json& item : list(name, "a list", [](const Json&) { return true; })) {
            Fields fields(item, fmt::format("{}[{}]", path_of(name), out.size()));
            read_item(fields, out.emplace_back());
            if (!fields.m_error.empty()) return report(std::move(fields.m_error));
        }
    }
    void report(std::string error) {
        if (m_error.empty()) m_error = std::move(error);
    }
    const std::string& error() const { return m_error; }

private:
    static bool is_count(const Json& value, std::int64_t most) {
        if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > 9e18) return false;
        return value.get<std::int64_t>() <= most;
    }
    static bool is_amount(const Json& value) {
        return value.is_number() && value.get<double>() >= 0 &&
               value.get<double>() <= static_cast<double>(k_longest_ps);
    }
    std::string path_of(std::string_view name) const {
        return m_path.empty() ? std::string(name) : fmt::format("{}.{}", m_path, name);
    }
    // nullptr: an error has been found, now or before.
    template <class Test>
    const Json* need(std::string_view name, std::string_view expected, const Test& test) {
        if (!m_error.empty()) return nullptr;
        const auto found = m_object.find(name);
        if (found == m_object.end()) {
            report(path_of(name) + ": missing");
        } else if (!test(*found)) {
            report(fmt::format("{}: expected {}", path_of(name), expected));
        }
        return m_error.empty() ? &*found : nullptr;
    }
    template <class Test>
    const Json& list(std::string_view name, std::string_view expected, const Test& test) {
        static const Json k_empty = Json::array();
        const Json* value = need(name, expected, [&](const Json& v) {
            return v.is_array() && std::all_of(v.begin(), v.end(), [&](const Json& item) { return test(item); });
        });
        return value != nullptr ? *value : k_empty;
    }

    const Json& m_object;
    std::string m_path, m_error;
};

void read_op(Fields& fields, OpSum& op) {
    fields.read("program", op.program);
    fields.read("name", op.name);
    fields.read("category", op.category);
    fields.read("tf_op", op.tf_op);
    fields.read("source", op.source);
    fields.read("stable_id", op.stable_id);
    fields.read("class", op.cls);
    fields.read("self_ps", op.self_ps, k_longest_ps);
    fields.read("calls", op.calls, k_longest_ps);
    fields.read("order", op.order, k_longest_ps);
    fields.read("text", op.text);
}

void read_kernel(Fields& fields, KernelSum& kernel) {
    fields.read("name", kernel.name);
    fields.read("program", kernel.program);
    fields.read("bound", kernel.bound);
    fields.read("median_ps", kernel.median_ps, k_longest_ps);
    fields.read("wait_share", kernel.wait_share);
    fields.read("spill", kernel.spill, k_longest_ps);
    fields.read("text", kernel.text);
}

void read_profile(Fields& fields, Profile& profile) {
    fields.read("sha256", profile.sha256);
    fields.read("path", profile.path);
    fields.read("kind", profile.kind);
    fields.read("device_type", profile.device_type);
    fields.read("devices", profile.devices, k_most);
    fields.read("dominant", profile.dominant);
    fields.read("programs", profile.programs);
    fields.read("step_source", profile.step_source);
    fields.read("steps_ps", profile.steps);
    fields.read("mean_step_ps", profile.mean_step_ps);
    fields.read("step_busy_ps", profile.step_busy);
    fields.read("step_gap_ps", profile.step_gap);
    fields.read("peak_tflops", profile.peak_tflops);
    fields.read("peak_hbm_gbps", profile.peak_hbm_gbps);
    fields.read("mfu", profile.mfu);
    fields.read("hotspot", profile.hotspot);
    fields.read("jax", profile.jax);
    fields.read("jaxlib", profile.jaxlib);
    fields.read("libtpu", profile.libtpu);
    fields.read("profile_options", profile.options);
    fields.read("floor_ps", profile.floor_ps, k_longest_ps);
    fields.read_each("kernels", profile.kernels, read_kernel);
    fields.read_each("ops", profile.ops, read_op);
}

// Sums that would not fit into 64 bits.
void check_sums(Fields& fields, const Profile& profile) {
    const double runs = static_cast<double>(profile.steps.size()) * static_cast<double>(profile.devices);
    const auto most = static_cast<double>(k_longest_ps);
    if (profile.mean_step_ps * runs > most) fields.report("mean_step_ps: too large for this number of steps");
    double self = 0;
    for (const OpSum& op : profile.ops) self += static_cast<double>(op.self_ps);
    if (self > most) fields.report("ops: the sum of self_ps is too large");
}

}  // namespace

Json to_json(const Profile& profile) {
    Json ops = Json::array();
    for (const OpSum& op : profile.ops) ops.push_back(op_json(op));
    Json kernels = Json::array();
    for (const KernelSum& kernel : profile.kernels) kernels.push_back(kernel_json(kernel));
    return Json::object({{"schema", k_schema},
                         {"sha256", profile.sha256},
                         {"path", profile.path},
                         {"kind", profile.kind},
                         {"device_type", profile.device_type},
                         {"devices", profile.devices},
                         {"dominant", profile.dominant},
                         {"programs", profile.programs},
                         {"step_source", profile.step_source},
                         {"steps_ps", profile.steps},
                         {"mean_step_ps", profile.mean_step_ps},
                         {"step_busy_ps", profile.step_busy},
                         {"step_gap_ps", profile.step_gap},
                         {"peak_tflops", json::or_null(profile.peak_tflops)},
                         {"peak_hbm_gbps", json::or_null(profile.peak_hbm_gbps)},
                         {"mfu", json::or_null(profile.mfu)},
                         {"hotspot", profile.hotspot},
                         {"jax", profile.jax},
                         {"jaxlib", profile.jaxlib},
                         {"libtpu", profile.libtpu},
                         {"profile_options", profile.options},
                         {"floor_ps", json::or_null(profile.floor_ps)},
                         {"kernels", std::move(kernels)},
                         {"ops", std::move(ops)}});
}

Result<Profile> profile_from_json(const Json& json) {
    if (json::text(json, "schema") != k_schema) {
        return fail(ErrorKind::bad_input, fmt::format("trace baseline: schema: expected \"{}\"", k_schema),
                    "save the baseline again with `gdnctl trace report TRACE --save-baseline NAME`");
    }
    Profile profile;
    Fields fields(json, "");
    read_profile(fields, profile);
    check_sums(fields, profile);
    if (!fields.error().empty()) {
        return fail(ErrorKind::bad_input, "trace baseline: " + fields.error(),
                    "save the baseline again with `gdnctl trace report TRACE --save-baseline NAME`");
    }
    return profile;
}

}  // namespace gdnctl::trace
