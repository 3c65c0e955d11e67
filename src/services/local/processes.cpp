#include "services/local/processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "services/local/local_jobs.h"

namespace gdnctl::local {

namespace {

const std::string& this_boot() {
    static const std::string id = boot_id();
    return id;
}

const std::string& this_pid_namespace() {
    static const std::string name = [] {
        std::array<char, 64> buffer{};
        const ssize_t n = readlink("/proc/self/ns/pid", buffer.data(), buffer.size());
        return std::string(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0U);
    }();
    return name;
}

}  // namespace

ProcessIdentity identity_of(pid_t pid) {
    const auto info = process_info(pid);
    return {{pid, info ? info->id.start_ticks : 0}, this_boot(), this_pid_namespace()};
}

bool is_same_process(const ProcessIdentity& identity) {
    return identity.boot_id == this_boot() && identity.pid_namespace == this_pid_namespace() && is_running(identity.id);
}

bool is_alive(const ProcessIdentity& identity) {
    if (identity.boot_id == this_boot() && identity.pid_namespace != this_pid_namespace()) return true;
    return is_same_process(identity);
}

namespace {

constexpr std::string_view k_job_prefix = "local-job-";
constexpr std::string_view k_supervisor_prefix = "local-supervisor-";

std::string mark_of(std::string_view prefix, const std::filesystem::path& folder) {
    struct stat jobs{};
    stat(folder.parent_path().c_str(), &jobs);
    return fmt::format("{}{}@{}.{}", prefix, folder.filename().string(), jobs.st_dev, jobs.st_ino);
}

void append_unique(std::vector<ProcessId>& into, const std::vector<ProcessId>& more) {
    into.insert(into.end(), more.begin(), more.end());
    std::sort(into.begin(), into.end());
    into.erase(std::unique(into.begin(), into.end()), into.end());
}

}  // namespace

std::string job_mark(const std::filesystem::path& folder) { return mark_of(k_job_prefix, folder); }
std::string supervisor_mark(const std::filesystem::path& folder) { return mark_of(k_supervisor_prefix, folder); }

std::vector<ProcessId> family_of(pid_t ancestor) {
    const std::vector<ProcessInfo> all = all_processes();
    const std::string own = process_mark(ancestor);
    std::vector<ProcessId> family = descendants_of(ancestor, all);
    // A job may submit other jobs. We adopt their supervisors when their parents end, but must not touch them.
    std::vector<ProcessId> foreign;
    for (const ProcessId& process : family) {
        const std::string mark = process_mark(process.pid);
        // The ancestor's own mark: a child that has not yet executed its program.
        if (!mark.starts_with(k_supervisor_prefix) || mark == own) continue;
        foreign.push_back(process);
        append_unique(foreign, descendants_of(process.pid, all));
    }
    std::erase_if(family, [&](const ProcessId& process) {
        return std::find(foreign.begin(), foreign.end(), process) != foreign.end();
    });
    return family;
}

std::vector<ProcessId> orphans_of(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child) {
    const std::vector<ProcessInfo> all = all_processes();
    std::vector<ProcessId> found = processes_with_mark(job_mark(folder), all);
    if (child && is_same_process(*child)) {
        append_unique(found, {child->id});
        append_unique(found, family_of(child->id.pid));
        append_unique(found, members_of_session(child->id.pid, all));
    }
    return found;
}

void end_orphans(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child, Clock& clock) {
    constexpr std::chrono::milliseconds k_quiet{20};
    for (int quiet = 0; quiet < 2;) {
        const EndReport report = end_processes([&] { return orphans_of(folder, child); }, {}, clock);
        if (report.left > 0) return;
        quiet = report.ended == 0 ? quiet + 1 : 0;
        clock.sleep_for(k_quiet, {});
    }
}

namespace {

constexpr int k_socket = 3;
constexpr int k_ready_limit_ms = 60'000;
constexpr std::string_view k_ready = "ready\n";

// The variables that a supervisor keeps from our environment: enough to run, without secrets or marks.
constexpr std::array<std::string_view, 9> k_kept = {
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"};

bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
}

// Reads until the other side closes; nullopt: error or timeout.
std::optional<std::string> receive_all(int fd) {
    std::string bytes;
    std::array<char, 65536> buffer{};
    for (;;) {
        pollfd waiting{fd, POLLIN, 0};
        const int ready = poll(&waiting, 1, k_ready_limit_ms);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return std::nullopt;
        const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return std::nullopt;
        if (n == 0) return bytes;
        bytes.append(buffer.data(), static_cast<std::size_t>(n));
    }
}

// From here to exec, only async-signal-safe calls: other threads of the parent may have held any lock.
[[noreturn]] void become_supervisor(int socket, const char* program, char* const* argv, char* const* envp) {
    setsid();
    const pid_t second = fork();  // no longer a session leader, so it can never get a controlling terminal
    if (second != 0) _exit(second < 0 ? 1 : 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    const int null = open("/dev/null", O_RDWR);
    if (null < 0) _exit(1);
    // The socket may itself be one of 0 to 2, so move it out of the way first.
    const int far = fcntl(socket, F_DUPFD, 10);
    const int far_null = fcntl(null, F_DUPFD, 10);
    if (far < 0 || far_null < 0) _exit(1);
    dup2(far_null, 0);
    dup2(far_null, 1);
    dup2(far_null, 2);
    dup2(far, k_socket);
    close_range(k_socket + 1, ~0U, 0);
    if (chdir("/") != 0) _exit(1);
    execve(program, argv, envp);
    _exit(127);
}

// NAME=VALUE items, each followed by a NUL, and one more NUL at the end, so that a truncated blob is detected.
std::string pack_environment(const std::map<std::string, std::string>& env) {
    std::string blob;
    for (const auto& [name, value] : env) blob += name + "=" + value + '\0';
    return blob + '\0';
}

std::optional<std::map<std::string, std::string>> unpack_environment(std::string_view blob) {
    std::map<std::string, std::string> env;
    for (;;) {
        const std::size_t end = blob.find('\0');
        if (end == std::string_view::npos) return std::nullopt;
        if (end == 0) return env;
        const std::string_view item = blob.substr(0, end);
        const std::size_t equals = item.find('=');
        if (equals != std::string_view::npos) env.emplace(item.substr(0, equals), item.substr(equals + 1));
        blob.remove_prefix(end + 1);
    }
}

tl::unexpected<Error> not_started(const std::string& why) {
    return fail(ErrorKind::infrastructure, "cannot start the job's supervisor: " + why);
}

}  // namespace

Status launch_supervisor(const std::filesystem::path& program, const std::filesystem::path& folder,
                         const std::map<std::string, std::string>& job_env,
                         const std::map<std::string, std::string>& own_env) {
    std::array<int, 2> pair{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return not_started(std::strerror(errno));
    UniqueFd ours(pair[0]);
    UniqueFd theirs(pair[1]);

    std::vector<std::string> words = {"gdnctl", k_local_supervisor_word, folder.string()};
    std::vector<std::string> environment = {std::string(k_process_mark) + "=" + supervisor_mark(folder)};
    for (const std::string_view name : k_kept) {
        const auto it = own_env.find(std::string(name));
        if (it != own_env.end()) environment.push_back(it->first + "=" + it->second);
    }
    const std::vector<char*> argv = exec_words(words);
    const std::vector<char*> envp = exec_words(environment);

    const pid_t first = fork();
    if (first < 0) return not_started(std::strerror(errno));
    if (first == 0) become_supervisor(theirs.get(), program.c_str(), argv.data(), envp.data());
    theirs.reset();
    int status = 0;
    while (waitpid(first, &status, 0) < 0 && errno == EINTR) {
    }

    const bool sent = send_all(ours.get(), pack_environment(job_env));
    shutdown(ours.get(), SHUT_WR);
    const auto answer = receive_all(ours.get());
    if (sent && answer && *answer == k_ready) return {};
    if (!answer) return not_started("no answer within " + std::to_string(k_ready_limit_ms / 1000) + " seconds");
    return not_started(answer->empty() ? "it died at once" : std::string(text::trim(*answer)));
}

Result<std::map<std::string, std::string>> receive_environment() {
    const auto blob = receive_all(k_socket);
    if (!blob) return fail(ErrorKind::infrastructure, "the submitter sent no environment");
    auto env = unpack_environment(*blob);
    if (!env) return fail(ErrorKind::infrastructure, "the submitter ended before it had sent the environment");
    return *env;
}

void report_ready(const Status& status) {
    send_all(k_socket, status ? std::string(k_ready) : status.error().text());
    close(k_socket);
}

}  // namespace gdnctl::local
