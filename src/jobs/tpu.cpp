#include "jobs/tpu.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/env.h"

namespace gdnctl {

namespace {

Result<std::string> resolve(const std::string& wanted, const Place& place, const Target& target,
                            std::string_view option) {
    if (wanted != "auto") return wanted;
    if (place.local) return std::string();
    const bool as_written = target.style == TargetStyle::argv;
    if (!place.file) {
        if (as_written) return std::string();
        return fail(ErrorKind::usage, "TPU auto-detection requires --cluster to be set.",
                    fmt::format("name the accelerator, for example {} v5p-8", option));
    }
    auto type = infer_tpu(*place.file);
    if (!type && as_written) return std::string();
    if (type) log::info("--tpu auto: {} on {}", *type, place.cluster);
    return type;
}

}  // namespace

Result<TpuChoice> choose_tpu(const std::string& wanted, const Place& place, const Target& target,
                             std::string_view option) {
    TpuChoice choice;
    GDNCTL_TRY_ASSIGN(choice.type, resolve(wanted, place, target, option));
    if (choice.type.empty()) return choice;
    GDNCTL_TRY_ASSIGN(choice.resources, tpu_resources(choice.type));
    if (place.local) return choice;
    const double chips = choice.resources.at("TPU");
    if (chips != 1 && chips != 2 && chips != 4 && chips != 8) {
        return fail(ErrorKind::usage,
                    fmt::format("{} has {:g} chips per host: Ray gives a job 1, 2, 4 or 8", choice.type, chips),
                    "one host of a v5p-8 has 4, of a v6e-8 has 8");
    }
    if (place.file && !place.file->node_types.empty() && !offers_tpu(*place.file, choice.type)) {
        const auto types = tpu_types(*place.file);
        log::warning("no node type of {} offers {}: the job may wait forever{}", place.cluster, choice.type,
                     types.empty() ? std::string() : "; it has " + text::join(types, ", "));
    }
    return choice;
}

namespace {

struct LocalTpu {
    std::string type;
    std::map<std::string, double> resources;  // empty: none is declared
};

// What GDNCTL_LOCAL_RESOURCES declares about a TPU of this machine; the local backend reports errors in it.
LocalTpu declared_tpu(const std::string& wanted, const Env& env) {
    LocalTpu tpu{wanted, {}};
    const auto json = parse_json(env.get("GDNCTL_LOCAL_RESOURCES").value_or("{}"), "GDNCTL_LOCAL_RESOURCES");
    if (!json || !json->is_object()) return tpu;
    const auto chips = json->find("TPU");
    if (chips == json->end() || !chips->is_number() || chips->get<double>() <= 0) return tpu;
    for (const auto& [name, amount] : json->items()) {
        const bool head = name.starts_with("TPU-") && name.ends_with("-head") && name.size() > 9;
        if (head && tpu.type.empty()) tpu.type = name.substr(4, name.size() - 9);
    }
    tpu.resources = {{"TPU", chips->get<double>()}};
    return tpu;
}

}  // namespace

Result<TpuChoice> choose_hold_tpu(const Place& place, const std::string& wanted, const Env& env) {
    if (!place.local) {
        Target any;
        any.style = TargetStyle::levanter;  // the type must be known
        return choose_tpu(wanted.empty() ? "auto" : wanted, place, any, "--tpu-type");
    }
    LocalTpu tpu = declared_tpu(wanted, env);
    TpuChoice choice{tpu.type, {}};
    if (tpu.resources.empty()) {
        log::info("local hold: no TPU on this host, the hold is pretended");
        return choice;
    }
    choice.resources = tpu.resources;
    if (!tpu.type.empty()) {
        GDNCTL_TRY_ASSIGN(choice.resources, tpu_resources(tpu.type));
    }
    return choice;
}

}  // namespace gdnctl
