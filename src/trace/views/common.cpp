// What every command says about its inputs.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/views/format.h"
#include "trace/views/view.h"

namespace gdnctl::trace {

namespace {

Json truncation_json(const Source& source, bool first) {
    const auto evidence = [&](auto member) -> std::vector<std::string> {
        if (!first || !source.model) return {};
        return (*source.model).*member;
    };
    Json all = Json::array();
    bool any[3] = {};
    const std::array<std::vector<std::string>, 3> lists = {evidence(&Model::event_cap), evidence(&Model::stream),
                                                           evidence(&Model::hw_buffer)};
    for (std::size_t i = 0; i < lists.size(); ++i) {
        any[i] = !lists[i].empty();
        for (const std::string& one : lists[i]) all.push_back(one);
    }
    return {{"event_cap", any[0]}, {"stream", any[1]}, {"hw_buffer", any[2]}, {"evidence", all}};
}

Json inputs_json(std::span<const Source> sources) {
    Json inputs = Json::array();
    for (const Source& source : sources) {
        for (const InputFile& file : source.files) {
            const bool first = &file == source.files.data();
            Json skipped = Json::array();
            for (const auto& [path, why] : source.skipped) {
                if (first) skipped.push_back({{"path", path}, {"why", why}});
            }
            inputs.push_back({{"path", file.path},
                              {"sha256", file.sha256},
                              {"bytes", file.bytes},
                              {"kind", file.kind},
                              {"host", json::or_null(file.host)},
                              {"session", json::or_null(file.session)},
                              {"truncated", truncation_json(source, first)},
                              {"skipped", skipped}});
        }
    }
    return inputs;
}

Json device_json(const Source& source) {
    const Profile& profile = source.profile;
    Json names = Json::array();
    Peaks peaks;
    std::optional<std::int64_t> cores;
    if (source.model) {
        for (const Device& device : source.model->devices) names.push_back(device.name);
        peaks = source.model->peaks;
        cores = source.model->cores_per_chip;
    } else {
        peaks.tflops = profile.peak_tflops;
        peaks.hbm_gbps = profile.peak_hbm_gbps;
    }
    return {{"type", json::or_null(profile.device_type)},
            {"kind", profile.kind.empty() ? Json("tpu") : Json(profile.kind)},
            {"count", profile.devices},
            {"names", names},
            {"cores_per_chip", json::or_null(cores)},
            {"peaks",
             {{"tflops", json::or_null(peaks.tflops)},
              {"hbm_gbps", json::or_null(peaks.hbm_gbps)},
              {"vmem_rd_gbps", json::or_null(peaks.vmem_rd_gbps)},
              {"vmem_wr_gbps", json::or_null(peaks.vmem_wr_gbps)},
              {"source", peaks.source}}}};
}

struct Reply {
    std::string can, why, flag;
};

// What has more than this Chrome JSON; PyTorch writes no xplane.
std::string better_input(const Model& model) {
    return model.source == TraceKind::chrome_json ? "pass the .xplane.pb" : "";
}

Reply overlap_reply(const Model& model) {
    if (std::any_of(model.devices.begin(), model.devices.end(), [](const Device& one) { return one.has_async; })) {
        return {"yes", "", ""};
    }
    if (model.source == TraceKind::xplane) return {"no", "no async events", ""};
    return {"no", "Chrome JSON has no async events", better_input(model)};
}

Reply bytes_reply(const Model& model) {
    if (model.kind != DeviceKind::tpu) return {"no", "only TPU traces count bytes", ""};
    bool hbm = false, all = false;
    for (const Op& op : model.ops) {
        hbm = hbm || op.hbm_bytes;
        all = all || op.bytes_accessed;
    }
    if (hbm) return {"yes", "", ""};
    if (!all) return {"no", "the trace has no byte counts", ""};
    return {"degraded", "bytes_accessed includes on-chip memory", better_input(model)};
}

Reply flops_reply(const Model& model) {
    if (model.kind != DeviceKind::tpu) return {"no", "only TPU traces count FLOPs", ""};
    const bool any =
        std::any_of(model.ops.begin(), model.ops.end(), [](const Op& op) { return flops_of(op).has_value(); });
    if (!any) return {"no", "the trace has no FLOP counts", ""};
    return {"degraded", "the FLOPs are the compiler's and the kernels' own claims", "--flops N or --op OP:SHAPE"};
}

Reply stages_reply(const Model& model) {
    for (const Device& device : model.devices) {
        for (const Event& span : device.spans) {
            if (model.ops[span.op].name.starts_with("ep_")) return {"yes", "", ""};
        }
    }
    if (model.kind != DeviceKind::tpu) return {"no", "only TPU traces have kernel stages", ""};
    return {"no", "no kernel stages were recorded", "LIBTPU_INIT_ARGS=--xla_xprof_enable_custom_call_tracing=true"};
}

Reply schedule_reply(const Model& model) {
    if (!model.schedules.empty()) return {"yes", "", ""};
    if (model.kind != DeviceKind::tpu) return {"no", "only TPU traces have the compiler's schedule", ""};
    if (model.source != TraceKind::xplane) {
        return {"no", "Chrome JSON has no compiler's schedule", better_input(model)};
    }
    return {"no", "no compiler's schedule was recorded", "LIBTPU_INIT_ARGS=--xla_xprof_register_llo_debug_info=true"};
}

Reply toolchain_reply(const Model& model) {
    if (!model.jax.empty() || !model.jaxlib.empty() || !model.libtpu.empty()) return {"yes", "", ""};
    return {"no", "the trace does not name its versions", better_input(model)};
}

Reply self_time_reply(const Model& model) {
    if (!model.class_from_name) return {"yes", "", ""};
    return {"degraded", "classes come from the names: there are no HLO categories", ""};
}

Reply steps_reply(const Model& model) {
    if (model.step_source != "none") return {"yes", "", ""};
    return {"no", "no steps line, program runs or step annotations", "jax.profiler.StepTraceAnnotation"};
}

Reply peaks_reply(const Model& model) {
    if (model.peaks.tflops && model.peaks.hbm_gbps) return {"yes", "", ""};
    if (model.peaks.tflops || model.peaks.hbm_gbps) {
        return {"degraded", model.peaks.tflops ? "no HBM bandwidth is known" : "no FLOP rate is known",
                "--peak TFLOPS"};
    }
    const bool tpu = model.kind == DeviceKind::tpu;
    return {"no", "the trace does not say what the device can do",
            tpu ? "--device GEN or --peak TFLOPS" : "--peak TFLOPS"};
}

constexpr std::pair<std::string_view, Reply (*)(const Model&)> k_questions[] = {
    {"self_time", self_time_reply},    {"steps", steps_reply}, {"overlap", overlap_reply},
    {"hbm_bytes", bytes_reply},        {"flops", flops_reply}, {"kernel_stages", stages_reply},
    {"kernel_static", schedule_reply}, {"peaks", peaks_reply}, {"toolchain", toolchain_reply},
};

}  // namespace

std::vector<Told> answers_of(const Source& source) {
    std::vector<Told> all;
    for (const auto& [question, reply] : k_questions) {
        Reply one;
        if (source.model) {
            one = reply(*source.model);
        } else if (source.no_model) {
            one = {"no", source.no_model->message, ""};
        } else {
            one = {"no", "a baseline keeps sums only", "pass the trace"};
        }
        all.push_back({std::string(question), one.can, one.why, one.flag});
    }
    return all;
}

Json common_json(std::string_view command, std::string_view version, std::span<const Source> sources,
                 const std::vector<Warning>& warnings) {
    const Source& last = sources.back();
    const Profile& profile = last.profile;
    Json answers = Json::array();
    for (const Told& one : answers_of(last)) {
        answers.push_back({{"question", one.question},
                           {"can", one.can},
                           {"why", json::or_null(one.why)},
                           {"flag", json::or_null(one.flag)}});
    }
    Json told = Json::array();
    for (const Warning& one : warnings) told.push_back({{"code", one.code}, {"message", one.message}});
    return {{"schema", "gdnctl.trace/1"},
            {"command", command},
            {"tool_version", version},
            {"inputs", inputs_json(sources)},
            {"device", device_json(last)},
            {"toolchain",
             {{"jax", json::or_null(profile.jax)},
              {"jaxlib", json::or_null(profile.jaxlib)},
              {"libtpu", json::or_null(profile.libtpu)},
              {"profile_options", json::or_null(profile.options)}}},
            {"answers", answers},
            {"warnings", told}};
}

std::string ms(double ps) {
    std::string text = fmt::format("{:.3f}", ps / 1e9);
    return text == "-0.000" ? "0.000" : text;
}

std::string us(double ps) { return fmt::format("{:.3f}", ps / 1e6); }

std::string percent(double share, int digits) { return fmt::format("{:.{}f}%", share * 100, digits); }

std::string short_p(double p) {
    if (p >= 0.001) return fmt::format("{:.3g}", p);
    const int exponent = p > 0 ? static_cast<int>(std::floor(std::log10(p))) : 0;
    return fmt::format("{:.1f}e{}", p / std::pow(10.0, exponent), exponent);
}

Json ps_or_null(std::optional<double> ps) { return ps ? Json(round_ps(*ps)) : Json(); }

}  // namespace gdnctl::trace
