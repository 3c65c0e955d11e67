#include "services/devtpu/road.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/signals.h"
#include "services/devtpu/names.h"

namespace gdnctl::devtpu {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int k_ssh_failed = 255;
constexpr int k_no_tree_code = 97;
constexpr std::string_view k_no_tree = "gdnctl-host: no-tree";
constexpr std::string_view k_last_line = "#whole";  // of a script: without it a connection was cut while it came

// Processes of a run are known by their environment, wherever they have gone.
constexpr std::string_view k_strays = R"sh(strays() {
  for e in $(grep -laz -e "^GDNCTL_RUN=$1" /proc/[0-9]*/environ 2>/dev/null); do
    e=${e#/proc/}
    echo "${e%/environ}"
  done
}
end_strays() {
  s=$(strays "$1")
  [ -n "$s" ] || return 0
  kill -TERM $s 2>/dev/null
  i=0
  while [ "$i" -lt "$2" ] && [ -n "$(strays "$1")" ]; do sleep 0.1; i=$((i + 1)); done
  s=$(strays "$1")
  [ -z "$s" ] || kill -KILL $s 2>/dev/null
}
)sh";

// The run ends when its lease does (file gone, or not renewed for so long), when the shell that waits for it is gone,
// or when that shell has lost its parent: the connection is cut then.
constexpr std::string_view k_run = R"sh(touch -c -h "$lease" 2>/dev/null
up() { cut -d. -f1 /proc/uptime; }
parent() { read -r a b c p d </proc/$$/stat && echo "$p"; }
mine=$(parent)
GDNCTL_RUN=$run setsid sh -c "$line" </dev/null &
child=$!
watch() {
  known=0
  [ -e "$lease" ] && known=1
  last=
  since=$(up)
  while kill -0 "$child"; do
    sleep 1
    now=$(stat -c %y "$lease")
    [ "$now" = "$last" ] || { last=$now; since=$(up); }
    [ "$(parent)" = "$mine" ] || break
    [ "$known" = 0 ] || [ -e "$lease" ] || break
    [ $(($(up) - since)) -le "$limit" ] || break
  done
  end_strays "$run" 50
}
watch >/dev/null 2>&1 </dev/null &
dog=$!
trap 'kill -TERM -"$child" 2>/dev/null' HUP INT TERM
wait "$child"
rc=$?
while [ "$rc" -gt 128 ] && kill -0 "$child" 2>/dev/null; do wait "$child"; rc=$?; done
kill "$dog" 2>/dev/null
end_strays "$run" 5
[ "$rc" != 255 ] || rc=254
exit "$rc"
)sh";

}  // namespace

Road ssh_road(std::vector<std::string> options, std::string_view tpu_name, std::string_view submission_id) {
    Road road;
    road.ssh = {"ssh"};
    road.ssh.insert(road.ssh.end(), options.begin(), options.end());
    road.ssh.push_back(ssh_alias(tpu_name));
    road.base = "\"$HOME\"/.gdnctl";
    road.tree = "\"$HOME\"/marin";
    road.lease = lease_path(submission_id);
    return road;
}

std::filesystem::path local_lease(const std::filesystem::path& hold_folder, std::string_view submission_id) {
    return hold_folder / ("lease-" + std::string(submission_id));
}

Road local_road(const std::filesystem::path& hold_folder, std::string_view submission_id) {
    Road road;
    road.base = text::shell_quote(hold_folder.string());
    road.tree = text::shell_quote((hold_folder / "marin").string());
    road.lease = local_lease(hold_folder, submission_id).string();
    return road;
}

std::vector<std::string> road_argv(const Road& road, std::string_view line) {
    if (road.is_local()) return {"sh", "-c", std::string(line)};
    std::vector<std::string> argv = road.ssh;
    // exec: the line's parent is the ssh session then, whose end it can see.
    argv.push_back("exec sh -c " + text::shell_quote(line));
    return argv;
}

Error ssh_error(std::string_view stderr_text) {
    std::string said;
    for (const std::string_view line : text::split(text::trim(stderr_text), '\n')) {
        if (!text::trim(line).empty()) said = text::visible(text::trim(line));
    }
    if (said.starts_with("ssh: ")) said.erase(0, 5);
    if (said.starts_with("ssh: ")) said.erase(0, 5);
    if (said.empty()) said = "the connection was lost";
    if (stderr_text.find("IDENTIFICATION HAS CHANGED") != std::string_view::npos ||
        stderr_text.find("Host key verification failed") != std::string_view::npos) {
        return {ErrorKind::infrastructure,
                "ssh: the host's key is not the one that this hold began with: " + said,
                "another machine answers at that address; `gdnctl dev-tpu-release` and allocate again",
                {}};
    }
    if (stderr_text.find("Permission denied") != std::string_view::npos) {
        return {ErrorKind::authentication,
                "ssh: " + said,
                "`gcloud compute tpus tpu-vm ssh NAME` puts your key on the host; a key with a passphrase needs a "
                "running ssh-agent (`ssh-add`)",
                {}};
    }
    return {ErrorKind::infrastructure, "ssh: " + said, {}, {}};
}

Result<Answer> ask_host(const Road& road, std::string_view line, std::string input, milliseconds limit,
                        Process& process, std::stop_token stop) {
    ProcessSpec spec;
    spec.argv = road_argv(road, line);
    spec.stdin_bytes = std::move(input);
    spec.wall_limit = limit;
    spec.stop = std::move(stop);
    spec.grace = milliseconds(500);
    spec.leaves_behind = [](int) { return true; };  // ssh's shared connection
    GDNCTL_TRY_ASSIGN(ProcessResult result, process.run(spec));
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result.end == ProcessResult::End::wall_limit) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("{} did not answer within {}", road.is_local() ? "this host" : road.ssh.back(),
                                format_duration(limit)));
    }
    if (!road.is_local() && result.exit_code == k_ssh_failed) return tl::unexpected(ssh_error(result.err));
    if (result.err.find("No space left on device") != std::string::npos) {
        return fail(ErrorKind::infrastructure, "the disk of the TPU's host is full",
                    "look with `gdnctl dev-tpu-execute --no-sync -- df -h`");
    }
    return Answer{result.exit_code, std::move(result.out), std::move(result.err)};
}

Status touch_lease(const Road& road, milliseconds limit, Process& process, std::stop_token stop) {
    const std::string file = text::shell_quote(road.lease);
    GDNCTL_TRY_ASSIGN(const Answer answer, ask_host(road, fmt::format("test -f {0} && touch -c -h {0}", file), {},
                                                    limit, process, std::move(stop)));
    if (answer.exit_code == 0) return {};
    return fail(ErrorKind::remote_missing, "no lease file " + road.lease + " on the TPU's host");
}

std::string receive_line() {
    return fmt::format("s=$(cat); case $s in *'{0}') eval \"$s\";; esac; echo 'the command was cut short' >&2; exit 98",
                       k_last_line);
}

std::string command_script(const Road& road, const HostCommand& command) {
    std::string script =
        fmt::format("cd {} 2>/dev/null || {{ echo '{}' >&2; exit {}; }}\n", road.tree, k_no_tree, k_no_tree_code);
    script += "if [ -f \"$HOME/.local/bin/env\" ]; then . \"$HOME/.local/bin/env\"; fi\n";
    for (const JobEnv& item : command.env) {
        script += fmt::format("export {}={}\n", item.name, text::shell_quote(item.value));
    }
    script += fmt::format("run={} lease={} limit={} line={}\n", text::shell_quote(command.run_id),
                          text::shell_quote(road.lease), command.lease_s, text::shell_quote(command.line));
    return script.append(k_strays).append(k_run).append(k_last_line);
}

std::string end_line(std::string_view prefix) {
    return std::string(k_strays) + "end_strays " + text::shell_quote(prefix) + " 50";
}

std::optional<Error> host_complaint(int exit_code, std::string_view stderr_text) {
    if (exit_code != k_no_tree_code || stderr_text.find(k_no_tree) == std::string_view::npos) return std::nullopt;
    return Error{ErrorKind::infrastructure, "nothing was synced to the TPU's host yet", "leave out --no-sync once", {}};
}

}  // namespace gdnctl::devtpu
