// Commands in the container of an Iris job.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base64.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/unnamed_file.h"
#include "services/iris/answers.h"
#include "services/iris/client.h"
#include "services/iris/request.h"

namespace gdnctl::iris {

namespace {

constexpr std::size_t k_word = 98'304;            // of a command line, in base64; Linux takes at most 128 KiB
constexpr std::size_t k_words = 16;               // in one call
constexpr std::size_t k_piece = 1'000'000;        // of a run's output in one look
constexpr std::int64_t k_missing = 98;            // exit code: these folders must be sent first
constexpr std::chrono::seconds k_exec_limit{60};  // of one call in the container
constexpr std::chrono::seconds k_unpack_limit{300};

// $1: the hold's folder; $2: the run's; $3: the tree's, or nothing for the last one; $4: that of files which are added
// to it, or nothing; then the script in base64. A second call for the same run does nothing, so that a call whose
// answer was lost can be repeated.
constexpr std::string_view k_start = R"sh(umask 077; h=$1 r=$1/$2 t=$3 m=
for d in $3 $4; do [ -d "$h/$d" ] || m="$m $d"; done
shift 4; [ -z "$m" ] || { echo "$m"; exit 98; }
mkdir -p "$h" || exit 1
if [ -n "$t" ]; then echo "$t" >"$h/last"; else t=$(cat "$h/last" 2>/dev/null); fi
[ -n "$t" ] && [ -d "$h/$t" ] || { t=empty; mkdir -p "$h/empty" || exit 1; }
mkdir "$r" 2>/dev/null || { [ -d "$r" ] && exit 0; exit 1; }
cd "$r" && printf %s "$@" | base64 -d >script && ln -s "$h/$t" tree || exit 1
setsid sh -c 'setsid sh ./script >out 2>&1 & echo $! >pid; wait $!; echo $? >code.new; mv code.new code' \
  >/dev/null 2>&1 </dev/null &)sh";
// $1: the run's folder; $2: where its new output begins, from 1. Prints the exit status, if there is one, on a line of
// its own, then the output in base64. The status is read first, so the output is complete if there is one.
constexpr std::string_view k_look =
    R"sh(cat "$1/code" 2>/dev/null || echo; tail -c "+$2" "$1/out" 2>/dev/null | head -c 1000000 | base64 -w0)sh";
// $1: the run's folder. Exit code 3: the run has ended.
constexpr std::string_view k_stop = R"sh(cd "$1" || exit 1; [ ! -e code ] || exit 3
i=0; while [ ! -s pid ] && [ "$i" -lt 40 ]; do sleep 0.05; i=$((i + 1)); done
p=$(cat pid) && kill -TERM "-$p" 2>/dev/null
setsid sh -c 'sleep 5; kill -KILL "-$1"' sh "$p" >/dev/null 2>&1 </dev/null &)sh";
// $1: a file; $2: its length before this piece; then the piece in base64.
constexpr std::string_view k_append =
    R"sh(umask 077; f=$1 n=$2; shift 2; mkdir -p "${f%/*}" && truncate -s "$n" "$f" && printf %s "$@" | base64 -d >>"$f")sh";
// argv: the archive, the folder that it becomes.
constexpr std::string_view k_unpack = R"py(import os, sys, zipfile
archive, tree = sys.argv[1:]
new = archive + ".d"
os.makedirs(new, exist_ok=True)
with zipfile.ZipFile(archive) as z:
    for i in z.infolist():
        os.chmod(z.extract(i, new), i.external_attr >> 16 & 0o777 or 0o600)
try:
    os.rename(new, tree)
except OSError:
    if not os.path.isdir(tree): raise
os.unlink(archive)
)py";

std::vector<std::string> shell(std::string_view script, std::vector<std::string> words) {
    std::vector<std::string> argv = {"sh", "-c", std::string(script), "sh"};
    argv.insert(argv.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
    return argv;
}

void add_words(std::vector<std::string>& words, std::string_view base64) {
    for (; !base64.empty(); base64.remove_prefix(std::min(k_word, base64.size()))) {
        words.emplace_back(base64.substr(0, k_word));
    }
}

std::string last_part(std::string_view name) { return std::string(name.substr(name.rfind('/') + 1)); }

std::string folder_of(std::string_view hold) { return "/tmp/gdnctl-run/" + last_part(hold); }

// Whether the container is gone for good.
bool is_gone(const Result<ExecAnswer>& answer) {
    if (!answer) return answer.error().kind == ErrorKind::remote_missing;
    return answer->error.find("is not running") != std::string::npos;
}

// The container of a running job.
class Container {
public:
    Container(Client& client, std::string job) : m_client(client), m_task(std::move(job) + "/0") {}

    // Runs the words. Errors: infrastructure, remote_missing (no such task).
    Result<ExecAnswer> exec(const std::vector<std::string>& words, std::chrono::seconds limit = k_exec_limit) {
        Json request;
        request["taskId"] = m_task;
        request["command"] = words;
        request["timeoutSeconds"] = limit.count();
        Call call;
        call.method = "ExecInContainer";
        call.body = to_text(request);
        call.first_byte = call.total = limit + std::chrono::seconds(15);
        const auto answer = m_client.ask(call, Tries::patient);
        if (answer) return parse_exec(*answer);
        Error error = answer.error();
        if (error.kind == ErrorKind::usage)
            error.kind = ErrorKind::infrastructure;  // no worker yet: not the user's fault
        return tl::unexpected(std::move(error));
    }

    // The same for words that cannot fail in a container that is there.
    Result<ExecAnswer> exec_ok(const std::vector<std::string>& words, std::string_view purpose,
                               std::chrono::seconds limit = k_exec_limit) {
        GDNCTL_TRY_ASSIGN(ExecAnswer answer, exec(words, limit));
        if (answer.error.empty() && answer.exit_code == 0) return answer;
        const std::string said = answer.error.empty() ? answer.err : answer.error;
        return fail(ErrorKind::infrastructure, fmt::format("cannot {} in the container of {}: {}", purpose, m_task,
                                                           text::visible(text::trim(said.substr(0, 400)))));
    }

private:
    Client& m_client;
    std::string m_task;
};

// A package of files, and the name of its folder in the container.
struct Package {
    UnnamedFile file;
    std::uint64_t size;
    std::string folder;  // "tree-<12 hexadecimal digits of its SHA-256>"
};

// The tree's package; then one of the files that are added to it, which are the same in many trees.
Result<std::vector<Package>> pack(const WorkingTree& tree, const std::stop_token& stop) {
    std::vector<Package> packages;
    const WorkingTree own{tree.root, tree.files, {}}, added{tree.root, {}, tree.added};
    std::uint64_t left = k_iris_package_limit;
    for (const auto& [part, word] : {std::pair(&own, "tree-"), std::pair(&added, "files-")}) {
        if (part == &added && tree.added.empty()) continue;
        GDNCTL_TRY_ASSIGN(UnnamedFile file, UnnamedFile::create());
        GDNCTL_TRY_ASSIGN(const std::uint64_t size, pack_tree(*part, file.path(), stop, left));
        GDNCTL_TRY_ASSIGN(const std::string hash, hash_file_hex(HashKind::sha256, file.path()));
        packages.push_back({std::move(file), size, word + hash.substr(0, 12)});
        left -= size;
    }
    return packages;
}

// Shell that puts the added files, in the folder `from`, into the tree that is the working directory.
std::string add_lines(const WorkingTree& tree, const std::string& from) {
    std::string lines;
    for (const auto& [name, file] : tree.added) {
        const std::string to = text::shell_quote(name);
        lines += fmt::format("mkdir -p -- \"$(dirname -- {0})\" && ln -sfn -- {1} {0}\n", to,
                             text::shell_quote(from + "/" + name));
    }
    return lines;
}

Status send_package(Container& container, const Package& package, const std::string& folder, const std::string& run) {
    log::info("sending {} to the container ({:.1f} MB)",
              package.folder.starts_with("tree-") ? "the working tree" : "this program",
              static_cast<double>(package.size) / 1e6);
    const std::string archive = fmt::format("{}/{}.{}.zip", folder, run, package.folder);
    constexpr std::size_t k_bytes = k_word / 4 * 3 * k_words;
    for (std::uint64_t at = 0; at < package.size; at += k_bytes) {
        GDNCTL_TRY_ASSIGN(const std::string bytes, package.file.read(at, k_bytes));
        std::vector<std::string> words = {archive, std::to_string(at)};
        add_words(words, to_base64(bytes));
        GDNCTL_TRY(container.exec_ok(shell(k_append, std::move(words)), "store the working tree"));
    }
    const std::vector<std::string> unpack = {"python3", "-c", std::string(k_unpack), archive,
                                             folder + "/" + package.folder};
    GDNCTL_TRY(container.exec_ok(unpack, "unpack the working tree", k_unpack_limit));
    return {};
}

}  // namespace

// A command in a container, as a job.
class Run {
public:
    Run(std::shared_ptr<Client> client, std::string job, const JobRequest& request)
        : m_client(std::move(client)),
          m_container(*m_client, std::move(job)),
          m_hold(folder_of(request.beside)),
          m_folder(m_hold + "/" + last_part(request.submission_id)) {
        m_details.submission_id = request.submission_id;
        m_details.entrypoint = request.entrypoint;
        m_details.metadata = request.metadata;
        m_details.start_time = m_client->clock().wall();
        for (const JobEnv& item : request.env) m_details.env_names.push_back(item.name);
        set(JobState::running, job_message::k_running);
    }

    Status start(const JobRequest& request) {
        // The shell has opened the script by the time that it removes it: its values may be secrets.
        std::string script = "rm -f -- \"$0\"\ncd -P tree || exit 1\nexport GDNCTL_OUTPUT_DIR=\n";
        GDNCTL_TRY_ASSIGN(const std::string exports, export_lines(request.env));
        std::vector<Package> packages;
        if (request.working_dir) {
            GDNCTL_TRY_ASSIGN(packages, pack(*request.working_dir, m_client->route().stop()));
        }
        const auto folder = [&](std::size_t i) { return i < packages.size() ? packages[i].folder : std::string(); };
        if (packages.size() > 1) script += add_lines(*request.working_dir, m_hold + "/" + folder(1));
        script += exports + request.entrypoint + "\n";
        const std::string run = last_part(m_folder);
        std::vector<std::string> words = {m_hold, run, folder(0), folder(1)};
        add_words(words, to_base64(script));
        const auto argv = shell(k_start, std::move(words));
        auto started = m_container.exec(argv);
        if (started && started->exit_code == k_missing) {
            for (const Package& package : packages) {
                if (started->out.find(package.folder) == std::string::npos) continue;
                GDNCTL_TRY(send_package(m_container, package, m_hold, run));
            }
            started = m_container.exec(argv);
        }
        if (is_gone(started)) {
            return fail(ErrorKind::infrastructure, fmt::format("no command can run beside {}: {}", request.beside,
                                                               started ? started->error : started.error().message));
        }
        if (!started) return tl::unexpected(std::move(started).error());
        if (started->error.empty() && started->exit_code == 0) return {};
        return fail(ErrorKind::infrastructure,
                    fmt::format("the container of {} did not take the command: {}", request.beside,
                                text::visible(text::trim(started->error + started->err))));
    }

    const JobDetails& details() const { return m_details; }

    // Asks for the exit status and for new output, which is kept for the log.
    Status look() {
        if (is_terminal(m_details.state) || m_output.size() >= k_piece) return {};
        const auto answer = m_container.exec(shell(k_look, {m_folder, std::to_string(m_read + 1)}));
        if (is_gone(answer)) {
            m_details.error_type = job_error::k_died;
            set(JobState::failed, "the container is gone: " + (answer ? answer->error : answer.error().message));
            return {};
        }
        if (!answer) return tl::unexpected(answer.error());
        const std::size_t line = answer->out.find('\n');
        const auto bytes =
            line == std::string::npos ? std::nullopt : from_base64(std::string_view(answer->out).substr(line + 1));
        if (!bytes || answer->exit_code != 0) {
            return fail(ErrorKind::infrastructure,
                        "the container's answer about a command cannot be read: " + text::visible(answer->err));
        }
        m_output += *bytes;
        m_read += bytes->size();
        const auto code = text::parse_int(std::string_view(answer->out).substr(0, line));
        if (code && bytes->size() < k_piece) end(static_cast<int>(*code));
        return {};
    }

    // The output since the last call.
    Result<std::string> take() {
        if (m_output.empty()) GDNCTL_TRY(look());
        return std::exchange(m_output, std::string());
    }

    Result<bool> stop() {
        if (is_terminal(m_details.state)) return false;
        GDNCTL_TRY_ASSIGN(const ExecAnswer answer, m_container.exec(shell(k_stop, {m_folder})));
        m_stopped = answer.error.empty() && answer.exit_code == 0;
        return m_stopped;
    }

    Status remove() {
        GDNCTL_TRY(m_container.exec({"rm", "-rf", m_folder}));
        return {};
    }

private:
    void set(JobState state, std::string_view message) {
        m_details.state = state;
        m_details.message = message;
        if (is_terminal(state)) m_details.end_time = m_client->clock().wall();
    }

    void end(int code) {
        if (m_stopped) return set(JobState::stopped, job_message::k_stopped);
        m_details.driver_exit_code = code;
        if (code == 0) return set(JobState::succeeded, job_message::k_succeeded);
        m_details.error_type = job_error::k_command_error;
        set(JobState::failed, job_message::exit_code(code, m_output));
    }

    std::shared_ptr<Client> m_client;
    Container m_container;
    std::string m_hold, m_folder;
    JobDetails m_details;
    std::string m_output;      // not yet passed on
    std::uint64_t m_read = 0;  // bytes of output so far
    bool m_stopped = false;
};

namespace {

class RunLog final : public JobLog {
public:
    explicit RunLog(std::shared_ptr<Run> run) : m_run(std::move(run)) {}

    Result<std::size_t> pump(const Sink& sink) override {
        for (std::size_t passed = 0;;) {
            GDNCTL_TRY_ASSIGN(const std::string bytes, m_run->take());
            if (bytes.empty()) return passed;
            passed += bytes.size();
            // A piece that is not full was the end of the output.
            if (!sink(bytes) || bytes.size() < k_piece) return passed;
        }
    }

private:
    std::shared_ptr<Run> m_run;
};

}  // namespace

Result<Submitted> Runs::start(const JobRequest& request) {
    if (m_runs.contains(request.submission_id)) {
        return fail(ErrorKind::usage, job_message::already_exists(request.submission_id));
    }
    const auto run = std::make_shared<Run>(m_client, name_of(m_user, request.beside), request);
    GDNCTL_TRY(run->start(request));
    m_runs.emplace(request.submission_id, run);
    return Submitted{request.submission_id, {}};
}

Result<JobDetails> Runs::details(std::string_view id) {
    Run& run = *m_runs.find(id)->second;
    GDNCTL_TRY(run.look());
    return run.details();
}

Result<bool> Runs::stop(std::string_view id) { return m_runs.find(id)->second->stop(); }

Status Runs::remove(std::string_view id) {
    const auto it = m_runs.find(id);
    GDNCTL_TRY(it->second->remove());
    m_runs.erase(it);
    return {};
}

std::unique_ptr<JobLog> Runs::open_log(std::string_view id) {
    return std::make_unique<RunLog>(m_runs.find(id)->second);
}

}  // namespace gdnctl::iris
