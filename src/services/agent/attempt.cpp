#include "services/agent/attempt.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>

#include "core/json.h"
#include "core/redact.h"
#include "platform/descendants.h"
#include "platform/fs.h"

namespace gdnctl::codex {

Status check_request(const AgentRequest& request) {
    if (request.loop_id.empty()) return fail(ErrorKind::usage, "an agent needs the id of its loop");
    if (request.prompt.empty())
        return fail(ErrorKind::usage, "the prompt is empty", "put the agent's task into the prompt");
    std::error_code ec;
    if (!request.worktree.is_absolute() || !std::filesystem::is_directory(request.worktree, ec)) {
        return fail(ErrorKind::usage, fmt::format("no folder for the agent to work in: {}", request.worktree.string()));
    }
    return {};
}

Status remove_stale(const std::filesystem::path& path) {
    std::error_code ec;
    if (!path.empty()) std::filesystem::remove(path, ec);
    if (ec) return tl::unexpected(file_error(ErrorKind::local_io, "remove", path, ec.value()));
    return {};
}

Status make_folder_again(const AgentFiles& files) {
    const std::filesystem::path folder = files.events.parent_path();
    std::error_code ec;
    return folder.empty() || std::filesystem::exists(folder, ec) ? Status() : make_private_directory(folder);
}

ProcessSpec base_spec(const AgentRequest& request) {
    ProcessSpec spec;
    spec.cwd = request.worktree;
    spec.clean_env = true;
    for (const auto& [name, value] : request.environment) spec.env.insert_or_assign(name, value);
    spec.env.insert_or_assign(std::string(k_loop_id_variable), request.loop_id);
    spec.new_session = true;
    spec.stdin_bytes = request.prompt;
    spec.wall_limit = request.limits.wall;
    spec.grace = request.limits.grace;
    spec.takes_strays = true;
    spec.stop = request.stop;
    return spec;
}

bool has_foreign_sessions(pid_t leader) {
    if (leader <= 0) return false;
    const auto all = all_processes();
    const auto below = descendants_of(leader, all);
    return std::any_of(all.begin(), all.end(), [&](const ProcessInfo& process) {
        return process.session != leader && std::find(below.begin(), below.end(), process.id) != below.end();
    });
}

AgentTokens less(const AgentTokens& tokens, const AgentTokens& before) {
    const auto difference = [](std::int64_t a, std::int64_t b) { return std::max<std::int64_t>(0, a - b); };
    return {difference(tokens.input, before.input), difference(tokens.cached_input, before.cached_input),
            difference(tokens.output, before.output), difference(tokens.reasoning, before.reasoning)};
}

std::string quoted(std::string_view text) { return to_text(Json(std::string(text))); }

Status Transcript::open(const std::filesystem::path& path) {
    m_path = path;
    if (path.empty()) return {};
    m_fd.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!m_fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "write", path, errno));
    return {};
}

void Transcript::line(std::string_view text) {
    if (!m_fd.valid() || m_error != 0) return;
    std::string bytes = redact(text);
    bytes += '\n';
    m_error = write_fully(m_fd.get(), bytes);
}

Status Transcript::close() {
    m_fd.reset();
    if (m_error != 0) return tl::unexpected(file_error(ErrorKind::local_io, "write", m_path, m_error));
    return {};
}

}  // namespace gdnctl::codex
