#include "loop/evolve/profile_result.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/text.h"
#include "jobs/metric.h"

namespace gdnctl::loop::evolve {

namespace {

constexpr std::string_view k_json = "json:";

// The object that counts. Errors: those of JsonObjects::last().
Result<Json> object_that_counts(std::string_view text, std::string_view nonce, bool& has_nonce) {
    JsonObjects objects;
    objects.feed(text);
    objects.finish();
    std::optional<Result<Json>> plain;
    const auto& found = objects.found();
    for (auto it = found.rbegin(); it != found.rend(); ++it) {
        auto json = parse_log_object(*it);
        // What is broken at the end of the log, or has the nonce, was to be the result.
        const bool meant = it == found.rbegin() || (!nonce.empty() && it->text.find(nonce) != std::string::npos);
        if (!json && meant) return json;
        const auto said = json ? json->find("nonce") : Json::iterator();
        if (!json || said == json->end()) {
            if (!plain) plain = std::move(json);
            continue;
        }
        if (nonce.empty() || *said != nonce) continue;
        has_nonce = true;
        return json;
    }
    if (plain) return std::move(*plain);
    return fail(ErrorKind::nothing_done, "the log contains no JSON object");
}

const Json* at(const Json& json, std::string_view from) {
    if (!from.starts_with(k_json)) return nullptr;
    const Json::json_pointer pointer(std::string(from.substr(k_json.size())));
    return json.contains(pointer) ? &json.at(pointer) : nullptr;
}

void read_shapes(const Json& there, ProfileResult& out) {
    double sum = 0;
    std::size_t index = 0;
    for (const auto& [name, one] : there.items()) {
        if (!one.is_number() || !(one.get<double>() > 0)) {
            out.shapes.clear();
            return;
        }
        const std::string key = there.is_array() ? std::to_string(index++) : name;
        out.shapes[key] = one.get<double>();
        sum += std::log(one.get<double>());
    }
    if (!out.shapes.empty()) out.value = std::exp(sum / static_cast<double>(out.shapes.size()));
}

}  // namespace

bool says_unseen(std::string_view text) {
    constexpr std::string_view k_line = "shapes: unseen";
    for (const std::string_view line : text::split(text, '\n')) {
        if (text::trim(line) == k_line) return true;
    }
    return text.find(R"("shapes":"unseen")") != std::string_view::npos ||
           text.find(R"("shapes": "unseen")") != std::string_view::npos;
}

ProfileResult read_profile(std::string_view text, const Target& target, std::string_view nonce) {
    ProfileResult out;
    out.unseen = says_unseen(text);
    out.has_op = target.kernel_op.empty() || text.find(target.kernel_op) != std::string_view::npos;
    const std::string from = target.metric ? target.metric->from : std::string();
    if (!from.starts_with(k_json) && target.floor.empty()) return out;
    const auto object = object_that_counts(text, nonce, out.nonce);
    if (!object) {
        out.lack = object.error().message;
        return out;
    }
    if (const Json* floor = at(*object, target.floor); floor != nullptr && floor->is_number()) out.floor = *floor;
    const Json* there = at(*object, from);
    if (there == nullptr) {
        out.lack = fmt::format("the result has no {}", from.starts_with(k_json) ? from.substr(k_json.size()) : from);
    } else if (there->is_number()) {
        out.value = there->get<double>();
    } else if (there->is_structured()) {
        read_shapes(*there, out);
    }
    if (there != nullptr && !out.value) out.lack = from.substr(k_json.size()) + " of the result is not a number";
    return out;
}

ProfileChecks check_profile(const ProfileResult& result, double value, const Target& target) {
    ProfileChecks out{"skip", "skip", {}, false, 0};
    if (result.floor && *result.floor > 0 && result.shapes.empty()) {
        const bool lower = !target.metric || target.metric->lower_is_better;
        out.impossible = lower ? value < *result.floor : value > *result.floor;
        if (value > 0) out.roofline = lower ? *result.floor / value : value / *result.floor;
        out.floor = out.impossible ? "fail" : "pass";
        if (out.impossible) {
            out.problem = fmt::format("{:g} is beyond what is physically possible ({:g})", value, *result.floor);
        }
    }
    if (!target.kernel_op.empty()) {
        out.kernel_op = result.has_op ? "pass" : "fail";
        if (!result.has_op) {
            out.problem = fmt::format("the profile shows no {}: another kernel did the work", target.kernel_op);
        }
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
