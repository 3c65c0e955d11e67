#include "jobs/tpu.h"

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"

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

}  // namespace gdnctl
