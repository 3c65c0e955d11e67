#include "platform/shown_process.h"

#include <filesystem>
#include <string>

#include "platform/progress.h"

namespace gdnctl {

namespace {

// "gcloud compute tpus": the command without its arguments, which may be long.
std::string command_of(const std::vector<std::string>& argv) {
    std::string text = "gcloud";
    constexpr std::size_t k_words = 4;
    for (std::size_t i = 1; i < argv.size() && i <= k_words && !argv[i].starts_with('-'); ++i) text += ' ' + argv[i];
    return text;
}

}  // namespace

Result<ProcessResult> ShownProcess::run(const ProcessSpec& spec) {
    const bool shown = !spec.argv.empty() && std::filesystem::path(spec.argv[0]).filename() == "gcloud" &&
                       std::this_thread::get_id() == m_owner;
    if (!shown) return m_inner.run(spec);
    Progress progress(m_terminal, m_clock,
                      {.label = command_of(spec.argv), .quiet = m_quiet, .after = std::chrono::seconds(2)});
    progress.tick();
    ProcessSpec watched = spec;
    watched.watch = ticking(progress, [&spec] { return !spec.watch || spec.watch(); });
    return m_inner.run(watched);
}

}  // namespace gdnctl
