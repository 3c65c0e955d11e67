#include "loop/evolve/anticheat.h"

#include <array>

namespace gdnctl::loop::evolve {

Result<CheatCheck> check_cheats(Evaluator& evaluator, const std::string& commit, const std::filesystem::path& log) {
    CheatCheck out;
    out.checks = {{"relations", "skip"}, {"floor", "skip"}, {"kernel_op", "skip"}, {"nonce", "skip"}};
    out.end.ok = true;
    double device_s = 0;
    const bool relations = evaluator.has(LaunchKind::relations), profile = evaluator.checks_profile();
    out.skipped = !relations && !profile;
    if (relations) {
        GDNCTL_TRY_ASSIGN(out.end, evaluator.launch(LaunchKind::relations, commit, log));
        device_s += out.end.device_s;
        out.checks["relations"] = out.end.ok ? "pass" : out.end.infra ? "skip" : "fail";
    }
    if (out.end.ok && profile) {
        GDNCTL_TRY_ASSIGN(out.end, evaluator.launch(LaunchKind::profile, commit, log));
        device_s += out.end.device_s;
        if (!out.end.floor.empty()) out.checks["floor"] = out.end.floor;
        if (!out.end.kernel_op.empty()) out.checks["kernel_op"] = out.end.kernel_op;
        if (out.end.nonce) out.checks["nonce"] = "pass";
    }
    out.end.device_s = device_s;
    return out;
}

std::vector<std::string> cheat_hints(const std::map<std::string, std::string>& files) {
    constexpr std::array<std::string_view, 18> k_words = {
        "clock_gettime", "gettimeofday", "rdtsc",    "perf_counter", "usleep",     "nanosleep",
        "time.sleep",    "getenv",       "environ",  "dlopen",       "dlsym",      "/proc/",
        "pthread_",      "std::thread",  "data_ptr", "id(",          "LD_PRELOAD", "GDNCTL_"};
    std::vector<std::string> out;
    for (const auto& [path, text] : files) {
        for (const std::string_view word : k_words) {
            if (text.find(word) != std::string::npos) out.push_back(path + ": " + std::string(word));
        }
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
