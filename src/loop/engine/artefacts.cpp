#include "loop/engine/artefacts.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_start = "iteration-";

bool is_there(const fs::path& path) {
    std::error_code problem;
    return fs::exists(fs::symlink_status(path, problem)) ||
           fs::exists(fs::symlink_status(path.string() + ".gz", problem));
}

Result<std::vector<fs::path>> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(folder, problem)) files.push_back(entry.path());
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "list", folder, problem.value()));
    std::sort(files.begin(), files.end());
    return files;
}

}  // namespace

std::string iteration_prefix(int iteration) { return fmt::format("{}{:03}-", k_start, iteration); }

int iteration_of(std::string_view file_name) {
    if (!file_name.starts_with(k_start)) return 0;
    file_name.remove_prefix(k_start.size());
    const auto digits = file_name.substr(0, file_name.find('-'));
    if (digits.size() < 3 || digits.size() == file_name.size()) return 0;
    const auto number = text::parse_int(digits);
    return number && *number > 0 && *number < 1'000'000'000 ? static_cast<int>(*number) : 0;
}

Result<Artefacts> Artefacts::open(fs::path log_dir) {
    GDNCTL_TRY(make_private_directory(log_dir, "choose another log directory with --log-dir"));
    return Artefacts(std::move(log_dir));
}

fs::path Artefacts::path(int iteration, std::string_view name) const {
    return m_folder / (iteration_prefix(iteration) + std::string(name));
}

fs::path Artefacts::unused(int iteration, std::string_view stem, std::string_view ending) const {
    fs::path candidate = path(iteration, fmt::format("{}{}", stem, ending));
    for (int n = 2; is_there(candidate); ++n) candidate = path(iteration, fmt::format("{}.{}{}", stem, n, ending));
    return candidate;
}

Result<int> Artefacts::set_earlier_aside(std::string_view run) const {
    GDNCTL_TRY_ASSIGN(const auto files, files_in(m_folder));
    const fs::path place = m_folder / "previous" / run;
    int moved = 0;
    for (const auto& file : files) {
        const std::string name = file.filename().string();
        const bool ours = name == "journal.jsonl" || name == "state.json" || name == "state.json.bak";
        if (!ours && iteration_of(name) == 0) continue;
        if (moved == 0) GDNCTL_TRY(make_private_directory(place));
        fs::path to = place / name;
        for (int n = 2; is_there(to); ++n) to = place / fmt::format("{}.{}", name, n);
        std::error_code problem;
        fs::rename(file, to, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "move", file, problem.value()));
        ++moved;
    }
    if (moved > 0) GDNCTL_TRY(sync_directory(m_folder));
    return moved;
}

Result<int> Artefacts::prune(int latest, int keep) const {
    GDNCTL_TRY_ASSIGN(const auto files, files_in(m_folder));
    int removed = 0;
    for (const auto& file : files) {
        const std::string name = file.filename().string();
        const int number = iteration_of(name);
        if (number == 0 || number > latest - keep) continue;
        if (name == iteration_prefix(number) + std::string(k_repositories)) {
            // Other branches, stashes and uncommitted files of these repositories exist nowhere else.
            if (number == latest - keep) log::info("keeping {}: it contains repositories of the agent", file.string());
            continue;
        }
        std::error_code problem;
        fs::remove_all(file, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", file, problem.value()));
        ++removed;
    }
    return removed;
}

bool Artefacts::stop_requested() const {
    std::error_code problem;
    return fs::exists(fs::symlink_status(m_folder / "STOP", problem));
}

}  // namespace gdnctl::loop
