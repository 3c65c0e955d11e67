#include "services/devtpu/host_connection.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/env.h"
#include "platform/signals.h"
#include "services/devtpu/holds.h"

namespace gdnctl::devtpu {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int k_ssh_failed = 255;
constexpr int k_no_tree_code = 97;
constexpr std::string_view k_no_tree = "gdnctl-host: no-tree";
constexpr std::string_view k_busy = "gdnctl-host: busy", k_other_tree = "gdnctl-host: other-tree";
constexpr std::string_view k_last_line = "#whole";  // of a script: without it a connection was cut while it came

// A run's processes are recognised by their environment, wherever they are, and by the process group of the run.
constexpr std::string_view k_strays = R"sh(strays() {
  for e in $(grep -laz -e "^GDNCTL_RUN=$1" /proc/[0-9]*/environ 2>/dev/null); do
    e=${e#/proc/}
    echo "${e%/environ}"
  done
  [ -z "${2:-}" ] || ! kill -0 -"$2" 2>/dev/null || echo "-$2"
}
end_strays() {
  s=$(strays "$1" "${3:-}")
  [ -n "$s" ] || return 0
  kill -TERM $s 2>/dev/null
  i=0
  while [ "$i" -lt "$2" ] && [ -n "$(strays "$1" "${3:-}")" ]; do sleep 0.1; i=$((i + 1)); done
  s=$(strays "$1" "${3:-}")
  [ -z "$s" ] || kill -KILL $s 2>/dev/null
}
)sh";

// Whether a run may continue: the holder has not removed the lease file, and the file that the run's client renews is
// not older than the lease. That is the run's own record, because others may keep renewing the lease when this client
// can no longer reach the host; on a full disk, or for the set-up, it is the lease file itself. A run that begins after
// the end of its hold finds no lease file, and ends. Where another program holds the TPU, there is no lease, and
// nothing limits the run.
constexpr std::string_view k_lasts = R"sh(known=0
[ -z "$lease" ] || known=1
beat=$lease
if [ -e "$lease" ] && [ -n "$record" ] && (umask 0; set -C; : >"$record") 2>/dev/null; then beat=$record; fi
up() { cut -d. -f1 /proc/uptime; }
last= since=$(up)
lasts() {
  [ "$known" = 1 ] || return 0
  [ -e "$lease" ] || return 1
  now=$(stat -c %y "$1")
  [ "$now" = "$last" ] || { last=$now since=$(up); }
  [ $(($(up) - since)) -le "$limit" ]
}
forget() { [ "$beat" = "$lease" ] || rm -f "$record"; }
)sh";

// The run also ends when the shell that waits for it is gone, or when that shell has lost its parent: the connection is
// cut then.
constexpr std::string_view k_run = R"sh([ "$known" = 0 ] || touch -c -h "$lease" 2>/dev/null
parent() { read -r a b c p d </proc/$$/stat && echo "$p"; }
mine=$(parent)
GDNCTL_RUN=$run setsid sh -c "$line" <&3 3<&- 8>&- &
child=$!
watch() {
  while kill -0 "$child"; do
    sleep 1 8>&-
    [ "$(parent)" = "$mine" ] || break
    lasts "$beat" || break
  done
  end_strays "$run" 50 "$child"
  forget
}
watch >/dev/null 2>&1 </dev/null &
dog=$!
trap 'kill -TERM -"$child" 2>/dev/null' HUP INT TERM
wait "$child"
rc=$?
while [ "$rc" -gt 128 ] && kill -0 "$child" 2>/dev/null; do wait "$child"; rc=$?; done
kill "$dog" 2>/dev/null
end_strays "$run" 5 "$child"
forget
[ "$rc" != 255 ] || { echo "gdnctl-host: the command's exit code is 255" >&2; rc=254; }
exit "$rc"
)sh";

// Background processes of a shell may run until the hold ends.
constexpr std::string_view k_run_in_terminal = R"sh(watch() {
  trap '' HUP INT QUIT TSTP
  over=0
  while [ "$over" = 0 ] && kill -0 $$; do sleep 1; lasts "$beat" || over=1; done
  forget
  last= since=$(up)
  while [ "$over" = 0 ] && [ -n "$(strays "$run")" ]; do sleep 2; lasts "$lease" || over=1; done
  [ "$over" = 0 ] || end_strays "$run" 50
}
watch >/dev/null 2>&1 </dev/null 8>&- &
GDNCTL_RUN=$run sh -c "$line" 8>&-
rc=$?
[ "$rc" != 255 ] || { echo "[gdnctl] the command exited with code 255; this command exits with 254" >&2; rc=254; }
exit "$rc"
)sh";

// $1: the job's shell, the only process of the job without the run in its environment.
constexpr std::string_view k_guard = R"sh(trap 'end_strays "$run" 20; forget; exit' TERM
while kill -0 "$1"; do sleep 1; lasts "$beat" || { kill -TERM "$1"; break; }; done
end_strays "$run" 50
forget
)sh";

std::string script_words(std::string_view run_id, std::string_view lease, std::string_view record,
                         std::int64_t lease_s) {
    return fmt::format("run={} lease={} record={} limit={}\n", text::shell_quote(run_id), text::shell_quote(lease),
                       text::shell_quote(record), lease_s);
}

// A command keeps the lock 8 until it has ended, and its watcher too if the command has no terminal: for itself if it
// is alone, else with others that need this tree. A sync that changes the tree needs the lock for itself. The short
// wait is for syncs. A host without flock has no locks. `refusal` gets the name of the turn as its $1.
std::string turn_script(const HostConnection& connection, const HostCommand& command, std::string_view refusal) {
    if (command.tree.empty() && !command.alone) return {};
    std::string script = fmt::format(
        "b={}\nturned() {{ {}; exit {}; }}\n"
        "command -v flock >/dev/null || flock() {{ :; }}\n"
        "if (exec 7>>\"$b/run.lock\") 2>/dev/null; then exec 8>>\"$b/run.lock\"; flock {} -w 1 8 || turned busy; fi\n",
        connection.base, refusal, k_turn_code, command.alone ? "-x" : "-s");
    if (command.tree.empty()) return script;
    script += "now=$(if [ -f \"$b/sent\" ]; then cat \"$b/sent\"; fi | sha256sum)\n";
    return script + fmt::format("[ \"${{now%% *}}\" = {} ] || turned other-tree\n", command.tree);
}

// Changes to the tree, sets the environment, and defines the names that the rest of the script uses.
std::string script_head(const HostConnection& connection, const HostCommand& command, std::string_view without_tree,
                        std::string_view refusal) {
    std::string script = fmt::format("cd {} 2>/dev/null || {}\n", connection.tree, without_tree);
    script += turn_script(connection, command, refusal);
    script += "if [ -f \"$HOME/.local/bin/env\" ]; then . \"$HOME/.local/bin/env\"; fi\nPATH=$PATH:$HOME/.local/bin\n";
    if (connection.is_local()) {
        script += "unset";
        for (const std::string_view name : active_python_variables()) script.append(" ").append(name);
        script += "\n";
    }
    for (const JobEnv& item : command.env) {
        script += fmt::format("export {}={}\n", item.name, text::shell_quote(item.value));
    }
    script += fmt::format("line={}\n", text::shell_quote(command.line));
    script += script_words(command.run_id, connection.lease, command.record, command.lease_s);
    return script.append(k_strays).append(k_lasts);
}

}  // namespace

HostConnection ssh_connection(std::vector<std::string> options, std::string_view tpu_name,
                              std::string_view submission_id) {
    HostConnection connection;
    connection.ssh = {"ssh"};
    connection.ssh.insert(connection.ssh.end(), options.begin(), options.end());
    connection.ssh.push_back(ssh_alias(tpu_name));
    connection.base = "\"$HOME\"/.gdnctl";
    connection.tree = "\"$HOME\"/marin";
    if (!submission_id.empty()) connection.lease = lease_path(submission_id);
    return connection;
}

std::filesystem::path local_lease(const std::filesystem::path& hold_folder, std::string_view submission_id) {
    return hold_folder / ("lease-" + std::string(submission_id));
}

HostConnection local_connection(const std::filesystem::path& hold_folder, std::string_view submission_id) {
    HostConnection connection;
    connection.base = text::shell_quote(hold_folder.string());
    connection.tree = text::shell_quote((hold_folder / "marin").string());
    connection.lease = local_lease(hold_folder, submission_id).string();
    return connection;
}

std::vector<std::string> host_argv(const HostConnection& connection, std::string_view line) {
    if (connection.is_local()) return {"sh", "-c", std::string(line)};
    std::vector<std::string> argv = connection.ssh;
    // exec makes the ssh session the parent of the line, which can then see the session end.
    argv.push_back("exec sh -c " + text::shell_quote(line));
    return argv;
}

namespace {

// ssh's last line, with the one before it if that names the cause. Its goodbye is left out.
std::string words_of_ssh(std::string_view stderr_text) {
    std::string last, before;
    for (std::string_view line : text::split(text::trim(stderr_text), '\n')) {
        line = text::trim(line);
        if (line.empty() || line.starts_with("Disconnected from ")) continue;
        for (int prefixes = 0; prefixes < 2 && line.starts_with("ssh: "); ++prefixes) line.remove_prefix(5);
        before = std::move(last);
        last = text::visible(line);
    }
    const bool named = before.starts_with("kex_exchange_identification: ") || before.starts_with("Load key ") ||
                       before.find(": line ") != std::string::npos;
    if (last.empty()) return "the connection was lost";
    return named ? before + "; " + last : last;
}

}  // namespace

Error ssh_error(std::string_view stderr_text) {
    const std::string said = words_of_ssh(stderr_text);
    const auto has = [&](std::string_view words) { return stderr_text.find(words) != std::string_view::npos; };
    if (has("IDENTIFICATION HAS CHANGED") || has("Host key verification failed")) {
        return {ErrorKind::infrastructure,
                fmt::format("ssh: {}: {}", k_key_changed, said),
                "another machine may be using that address: run `gdnctl dev-tpu-release`, then allocate again",
                {}};
    }
    if (has("Too many authentication failures")) {
        return {ErrorKind::authentication,
                "ssh: " + said,
                "your ssh-agent offers more keys than the host accepts: in ~/.ssh/config, give `Host dev-tpu-*` the "
                "right IdentityFile and `IdentitiesOnly yes`",
                {}};
    }
    if (has("Permission denied")) {
        return {ErrorKind::authentication,
                "ssh: " + said,
                "put your key on the host with `gcloud compute tpus tpu-vm ssh NAME --zone=ZONE --project=PROJECT`; if "
                "it has a passphrase, start an ssh-agent and run `ssh-add`",
                {}};
    }
    return {ErrorKind::infrastructure, "ssh: " + said, {}, {}};
}

std::string marked(std::string_view line) {
    return fmt::format("echo {}; {}", k_mark.substr(0, k_mark.size() - 1), line);
}

std::string_view after_mark(std::string_view out) {
    const std::size_t mark = out.find(k_mark);
    if (mark != std::string_view::npos) out.remove_prefix(mark);
    while (out.starts_with(k_mark)) out.remove_prefix(k_mark.size());  // also that of a command's script
    return out;
}

Result<Answer> ask_host(const HostConnection& connection, std::string_view line, std::string input, milliseconds limit,
                        Process& process, std::stop_token stop, std::size_t most) {
    ProcessSpec spec;
    spec.argv = host_argv(connection, marked(line));
    spec.capture_limit = most;
    spec.stdin_bytes = std::move(input);
    spec.wall_limit = limit;
    spec.stop = std::move(stop);
    spec.grace = milliseconds(500);
    spec.leaves_behind = [](int) { return true; };  // ssh's shared connection
    GDNCTL_TRY_ASSIGN(ProcessResult result, process.run(spec));
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result.end == ProcessResult::End::wall_limit) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("{} did not answer within {}",
                                connection.is_local() ? "this host" : connection.ssh.back(), format_duration(limit)));
    }
    if (!connection.is_local() && result.exit_code == k_ssh_failed) return tl::unexpected(ssh_error(result.err));
    if (result.err.find("No space left on device") != std::string::npos) {
        return fail(ErrorKind::infrastructure, "the disk of the TPU's host is full",
                    "check with `gdnctl dev-tpu-execute --tpu-name NAME --no-sync -- df -h`");
    }
    if (result.out_truncated) {
        return fail(ErrorKind::infrastructure, "the answer of the TPU's host is too long");
    }
    return Answer{result.exit_code, std::string(after_mark(result.out)), std::move(result.err)};
}

std::string touch_line(std::string_view lease, std::string_view record) {
    const std::string more = record.empty() ? std::string() : " " + text::shell_quote(record);
    return fmt::format("test -f {0} && touch -c -h {0}{1}", text::shell_quote(lease), more);
}

std::string run_record(std::string_view lease, std::string_view run_id) {
    return lease.empty() ? std::string() : std::string(lease) + std::string(run_id.substr(run_id.rfind('.')));
}

Status touch_lease(const HostConnection& connection, std::string_view record, milliseconds limit, Process& process,
                   std::stop_token stop) {
    GDNCTL_TRY_ASSIGN(const Answer answer,
                      ask_host(connection, touch_line(connection.lease, record), {}, limit, process, std::move(stop)));
    if (answer.exit_code == 0) return {};
    return fail(ErrorKind::remote_missing, "no lease file " + connection.lease + " on the TPU's host");
}

std::string receive_line(std::size_t size) {
    // A byte at a time, so that nothing of what follows is taken.
    const std::string read = size == 0 ? "cat" : fmt::format("dd bs=1 count={} 2>/dev/null", size);
    return fmt::format("s=$({}); case $s in *'{}') eval \"$s\";; esac; echo 'the command was cut short' >&2; exit 98",
                       read, k_last_line);
}

std::string command_script(const HostConnection& connection, const HostCommand& command) {
    const std::string complaint = fmt::format("{{ echo '{}' >&2; exit {}; }}", k_no_tree, k_no_tree_code);
    std::string script = script_head(connection, command, complaint, "echo \"gdnctl-host: $1\" >&2");
    script += marked(command.reads_stdin ? "exec 3<&0\n" : "exec 3</dev/null\n");
    return script.append(k_run).append(k_last_line);
}

std::string terminal_script(const HostConnection& connection, const HostCommand& command) {
    return "own=$1\nrm -f \"$own\"\n" +
           script_head(connection, command, "cd", "echo \"gdnctl-host: $1\" >\"$own\"").append(k_run_in_terminal);
}

std::string beside_guard(std::string_view submission_id, std::string_view run_id, std::int64_t lease_s) {
    const std::string lease = lease_path(submission_id);
    std::string script = script_words(run_id, lease, run_record(lease, run_id), lease_s);
    script.append(k_strays).append(k_lasts).append(k_guard);
    // The run is not in the environment that the scheduler sets, because its own processes have that as well.
    return fmt::format("env -u {0} setsid sh -c {1} sh $$ >/dev/null 2>&1 </dev/null & export {0}={2}; {3}",
                       k_run_variable, text::shell_quote(script), text::shell_quote(run_id), k_guard_end);
}

std::string end_line(std::string_view prefix) {
    return std::string(k_strays) + "end_strays " + text::shell_quote(prefix) + " 50";
}

Turn turn_of(int exit_code, std::string_view stderr_text) {
    if (exit_code != k_turn_code) return Turn::mine;
    if (stderr_text.ends_with(std::string(k_busy) + "\n")) return Turn::busy;
    return stderr_text.ends_with(std::string(k_other_tree) + "\n") ? Turn::other_tree : Turn::mine;
}

std::optional<Error> host_complaint(int exit_code, std::string_view stderr_text) {
    if (exit_code != k_no_tree_code || stderr_text.find(k_no_tree) == std::string_view::npos) return std::nullopt;
    return Error{ErrorKind::infrastructure,
                 "nothing has been synced to the TPU's host yet",
                 "run the command once without --no-sync",
                 {}};
}

}  // namespace gdnctl::devtpu
