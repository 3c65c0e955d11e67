#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/views/format.h"

namespace gdnctl::trace {

namespace {

std::string size_text(std::int64_t bytes) {
    const auto value = static_cast<double>(bytes);
    if (value >= 1e6) return fmt::format("{:.1f} MB", value / 1e6);
    return value >= 1e3 ? fmt::format("{:.1f} kB", value / 1e3) : fmt::format("{} bytes", bytes);
}

std::string device_text(const Model& model) {
    std::string text = fmt::format("{} x {}", model.type.empty() ? text::to_lower(name_of(model.kind)) : model.type,
                                   model.devices.size());
    const Peaks& peaks = model.peaks;
    if (peaks.source == "none") return text + ", peaks unknown";
    text += ":";
    if (peaks.tflops) text += fmt::format(" {:.4g} TFLOP/s{}", *peaks.tflops, peaks.hbm_gbps ? "," : "");
    if (peaks.hbm_gbps) text += fmt::format(" {:.0f} GB/s", *peaks.hbm_gbps);
    return text + fmt::format(" ({})", peaks.source);
}

// What the answers say, in words for one line.
std::string told_text(const Source& source) {
    std::vector<std::string> yes, no;
    for (const Told& one : answers_of(source)) {
        std::string name = one.question;
        std::replace(name.begin(), name.end(), '_', ' ');
        if (one.question == "steps" && one.can != "no") {
            const std::string& from = source.model->step_source;
            const std::size_t colon = from.find(':');
            name = colon == std::string::npos
                       ? fmt::format("{} steps", source.model->steps.size())
                       : fmt::format("{} runs of {}", source.model->steps.size(), from.substr(colon + 1));
        }
        if (one.can == "yes") yes.push_back(name);
        if (one.can == "degraded") yes.push_back(fmt::format("{} ({})", name, one.why));
        if (one.can == "no") no.push_back(fmt::format("{} ({})", name, one.why));
    }
    return fmt::format("tells: {}; not: {}", yes.empty() ? "nothing" : text::join(yes, ", "),
                       no.empty() ? "-" : text::join(no, ", "));
}

Json programs_json(const Model& model) {
    std::map<std::string, std::pair<std::int64_t, Ps>> sums;
    for (const Device& device : model.devices) {
        for (const Run& run : device.runs) {
            auto& [runs, total] = sums[model.programs[run.program]];
            ++runs;
            total += run.end - run.start;
        }
    }
    std::vector<std::pair<std::string, std::pair<std::int64_t, Ps>>> rows(sums.begin(), sums.end());
    std::stable_sort(rows.begin(), rows.end(),
                     [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
    Json programs = Json::array();
    for (const auto& [name, sum] : rows) {
        programs.push_back({{"name", name}, {"runs", sum.first}, {"total_ps", sum.second}});
    }
    return programs;
}

}  // namespace

Result<Answer> info_view(const Source& source, const Asked&) {
    Answer answer;
    Json planes = Json::array();
    for (const PlaneCount& plane : source.planes) {
        Json lines = Json::array();
        for (const auto& [name, events] : plane.lines) lines.push_back({{"name", name}, {"events", events}});
        planes.push_back({{"name", plane.name}, {"lines", lines}});
    }
    answer.json = {{"planes", planes}, {"programs", source.model ? programs_json(*source.model) : Json::array()}};
    Block block{"Trace", {}, {}, {}};
    for (const InputFile& file : source.files) {
        block.lines.push_back(fmt::format("{}{} {} {}",
                                          file.host.empty() || source.files.size() == 1 ? "" : file.host + ": ",
                                          file.kind, size_text(file.bytes), file.sha256.substr(0, 12)));
    }
    std::string& first = block.lines.front();
    if (source.model) {
        first += "; " + device_text(*source.model);
        if (!source.model->jax.empty()) first += fmt::format("; jax {}", source.model->jax);
        if (!source.model->libtpu.empty()) first += fmt::format(", libtpu {}", source.model->libtpu);
    } else if (source.no_model) {
        answer.warnings.push_back({"no_device_events", source.no_model->message});
    }
    block.lines.push_back(told_text(source));
    answer.blocks.push_back(std::move(block));
    return answer;
}

}  // namespace gdnctl::trace
