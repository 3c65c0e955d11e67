#include "jobs/hold_host.h"

#include <algorithm>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "jobs/tree.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "platform/progress.h"
#include "platform/ssh_options.h"
#include "services/devtpu/holds.h"
#include "services/devtpu/ssh_config.h"
#include "services/devtpu/sync.h"

namespace gdnctl {

namespace fs = std::filesystem;
using devtpu::HoldRecord;

namespace {

using std::chrono::seconds;

constexpr seconds k_key_limit{90};
constexpr seconds k_ssh_limit{25};
constexpr std::chrono::minutes k_setup_limit{60};
constexpr std::size_t k_socket_limit = 104 - 18;  // ssh adds its own suffix while it connects

fs::path home(const Context& context) { return context.env.get("HOME").value_or(""); }

fs::path account_home() {
    constexpr std::size_t k_entry_size = std::size_t{16} << 10;
    std::vector<char> buffer(k_entry_size);
    passwd entry{};
    passwd* found = nullptr;
    const int problem = getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
    return problem == 0 && found != nullptr ? fs::path(found->pw_dir) : fs::path();
}

// A folder for the sockets of shared connections, whose names are 40 characters long. Empty: no path is short enough.
fs::path control_folder(const Context& context) {
    for (const fs::path& folder : {context.state_dir / "ssh", home(context) / ".ssh"}) {
        if (folder.string().size() + 41 > k_socket_limit) continue;
        if (make_private_directory(folder)) return folder;
    }
    return {};
}

// The project of the cluster's file, or else the one in which the machine says that it is; empty: not known.
std::string project_of(const HoldRecord& record, Context& context) {
    const auto place = choose_destination(destination_of_hold(record, {}), context);
    const bool named = place && place->file && !place->file->project.empty();
    return named ? place->file->project : record.host.gcloud_project;
}

// The cluster's own tool knows how to install a key on a TPU's machine.
void put_keys(const HoldRecord& record, Context& context) {
    if (record.host.gcloud_tpu_name.empty() || record.host.gcloud_zone.empty()) return;
    ProcessSpec spec;
    spec.argv = {"gcloud", "compute"};
    if (const std::string project = project_of(record, context); !project.empty()) {
        spec.argv.push_back("--project=" + project);
    }
    for (const std::string& word :
         {std::string("tpus"), std::string("tpu-vm"), std::string("ssh"), record.host.gcloud_tpu_name,
          "--zone=" + record.host.gcloud_zone, std::string("--"), std::string("hostname")}) {
        spec.argv.push_back(word);
    }
    spec.wall_limit = k_key_limit;
    spec.stop = context.stop;
    const auto result = context.process.run(spec);
    if (result && result->ok()) return;
    log::warning("gcloud did not put your ssh key on {}: {}", record.host.gcloud_tpu_name,
                 result ? describe_end(*result, spec) : result.error().text());
}

devtpu::SshHost ssh_host(const HoldRecord& record, const Context& context) {
    devtpu::SshHost host;
    host.name = record.tpu_name;
    host.hostname = record.host.reachable_ip();
    host.user = record.host.username;
    host.key_alias = record.submission_id;
    host.known_hosts = context.state_dir / "ssh" / "known_hosts";
    host.control = control_folder(context);
    std::error_code ignored;
    const fs::path key = home(context) / ".ssh" / "google_compute_engine";
    if (fs::exists(key, ignored)) host.identity = key;
    return host;
}

// Makes the alias in the user's ssh configuration refer to this hold.
Status write_alias(const HoldRecord& record, const Context& context) {
    return devtpu::write_block(ssh_config_path(context), ssh_host(record, context));
}

// Exit codes of the set-up script for the steps that can fail.
constexpr int k_no_uv = 95, k_no_environment = 96;
constexpr std::string_view k_setup_line =
    "PATH=$PATH:$HOME/.local/bin; command -v uv >/dev/null || { curl -LsSf https://astral.sh/uv/install.sh | sh; }; "
    "if [ -f \"$HOME/.local/bin/env\" ]; then . \"$HOME/.local/bin/env\"; fi; command -v uv >/dev/null || exit 95; "
    "uv sync --all-packages --extra=tpu --python=3.11 || exit 96";

Error setup_error(const devtpu::Answer& answer) {
    if (auto complaint = devtpu::host_complaint(answer.exit_code, answer.err)) return std::move(*complaint);
    constexpr std::size_t k_shown_lines = 5;
    const auto lines = text::split(text::trim(answer.err), '\n');
    std::string said;
    for (std::size_t i = lines.size() - std::min(lines.size(), k_shown_lines); i < lines.size(); ++i) {
        if (!text::trim(lines[i]).empty()) said += "\n  " + text::visible(text::trim(lines[i]));
    }
    const std::string what = answer.exit_code == k_no_uv            ? "uv could not be installed"
                             : answer.exit_code == k_no_environment ? "`uv sync` failed"
                                                                    : fmt::format("exit code {}", answer.exit_code);
    return {ErrorKind::infrastructure, what + (said.empty() ? "" : ":" + said), {}, {}};
}

}  // namespace

std::string hold_place_words(const HoldRecord& record) {
    return record.cluster.empty() ? record.address : record.cluster;
}

fs::path ssh_config_path(const Context& context) { return home(context) / ".ssh" / "config"; }

std::vector<std::string> ssh_options(const HoldRecord& record, const Context& context) {
    std::vector<std::string> options;
    std::error_code ignored;
    if (home(context) != account_home()) {
        const fs::path config = ssh_config_path(context);
        options = {"-F", fs::exists(config, ignored) ? config.string() : "none"};
    }
    const auto add = [&](const std::vector<std::string>& words) {
        options.insert(options.end(), words.begin(), words.end());
    };
    add(ssh_overrides());
    // Sharing a connection is up to gdnctl alone, and a port that it does not ask for is not forwarded.
    add(ssh_words({{"SessionType", "default"}, {"ClearAllForwardings", "yes"}}));
    if (record.submission_id.empty() || record.host.reachable_ip().empty()) {
        add(ssh_words({{"ControlMaster", "no"}}));
        return options;
    }
    // All of the block: the alias may refer to another hold of that name, or to none if the file is read-only.
    add(ssh_words(devtpu::ssh_settings(ssh_host(record, context))));
    return options;
}

Status try_ssh(const HoldRecord& record, Context& context) {
    if (record.host.reachable_ip().empty()) {
        return fail(ErrorKind::infrastructure, "the holder found no address of its host");
    }
    GDNCTL_TRY(make_private_directory(context.state_dir / "ssh"));
    const auto connection = devtpu::ssh_connection(ssh_options(record, context), record.tpu_name, record.submission_id);
    GDNCTL_TRY_ASSIGN(const auto answer,
                      devtpu::ask_host(connection, ":", {}, k_ssh_limit, context.process, context.stop));
    if (answer.exit_code == 0) return {};
    return fail(ErrorKind::infrastructure,
                "ssh: the host's shell does not work: " + text::visible(text::trim(answer.err)));
}

void reach_host(HoldRecord& record, const std::string& ssh_user, Context& context) {
    if (record.cluster == "local") return;
    const std::string& ip = record.host.reachable_ip();
    if (ip.empty() || home(context).empty()) {
        record.ssh_ok = false;
        log::warning("{}: no ssh connection to {}",
                     ip.empty() ? "the holder found no address of its host" : "HOME is not set", record.tpu_name);
        return;
    }
    put_keys(record, context);
    if (!ssh_user.empty()) record.host.username = ssh_user;
    if (record.host.username.empty()) record.host.username = user_name(context.env);
    if (const Status written = write_alias(record, context); written) {
        record.alias = devtpu::ssh_alias(record.tpu_name);
    } else {
        log::warning("{} has no alias in your ssh configuration: {}", record.tpu_name, written.error().text());
        log::warning("hint: gdnctl's own commands do not need it: `gdnctl dev-tpu-connect --tpu-name {}` opens a shell",
                     record.tpu_name);
    }
    const Status reached = try_ssh(record, context);
    record.ssh_ok = reached.has_value();
    if (reached || context.stop.stop_requested()) return;
    log::warning("{} does not answer ssh ({}): jobs on the host keep the hold", devtpu::ssh_alias(record.tpu_name),
                 reached.error().text());
    if (!reached.error().hint.empty()) log::warning("hint: {}", reached.error().hint);
}

Status forget_hold(const HoldRecord& record, const Context& context) {
    const devtpu::HoldStore store(context.state_dir);
    GDNCTL_TRY(store.forget(record.submission_id));
    if (record.kind != PlaceKind::ray || home(context).empty()) return {};
    GDNCTL_TRY_ASSIGN(const auto all, store.all());
    const auto other = std::find_if(all.rbegin(), all.rend(), [&](const HoldRecord& one) {
        return one.tpu_name == record.tpu_name && !one.alias.empty();
    });
    if (other != all.rend()) return write_alias(*other, context);
    return devtpu::remove_block(ssh_config_path(context), record.tpu_name);
}

std::optional<devtpu::HostConnection> connection_of(const HoldRecord& record, const Context& context) {
    if (record.cluster == "local") {
        return devtpu::local_connection(devtpu::HoldStore(context.state_dir).local_folder(record.tpu_name),
                                        record.submission_id);
    }
    if (!record.ssh_ok.value_or(false)) return std::nullopt;
    return devtpu::ssh_connection(ssh_options(record, context), record.tpu_name, record.submission_id);
}

Error for_held_tree(Error error) {
    const bool of_submission = error.hint.find("--working-dir") != std::string::npos;
    if (of_submission) error.hint = "use --no-sync to leave the files on the host as they are";
    return error;
}

Result<SyncedTree> sync_to_host(const HoldRecord& record, const fs::path& root, bool replaces_other, Context& context) {
    const auto connection = connection_of(record, context);
    if (!connection) {
        return fail(ErrorKind::infrastructure, "no ssh connection to " + record.tpu_name + ": the tree was not synced",
                    "`gdnctl dev-tpu-execute --via ray` uploads the tree with the command");
    }
    const auto began = context.clock.monotonic();
    devtpu::SyncRequest request;
    auto listed = list_working_tree(root, context, TreeFilter::tracked);
    if (!listed) return tl::unexpected(for_held_tree(std::move(listed).error()));
    request.tree = std::move(*listed);
    request.source = {root.lexically_normal().string(), head_commit(root, context)};
    request.replaces_other = replaces_other;
    request.has_commit = [&](const std::string& commit) { return has_commit(root, commit, context); };
    request.hashes = context.state_dir / "sync" / record.tpu_name;
    Progress progress(context.terminal, context.clock,
                      {.label = "copying the tree to " + record.tpu_name,
                       .quiet = context.global.quiet,
                       .after = std::chrono::seconds(2)});
    progress.tick();
    GDNCTL_TRY_ASSIGN(const auto report,
                      devtpu::sync_tree(*connection, request, context.process, context.clock, context.stop));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(context.clock.monotonic() - began);
    log::info("synced {} files of {} ({}, {})", report.files, root.string(),
              report.by.empty() ? "up to date" : report.by, format_duration(took));
    return SyncedTree{root, replaces_other, report.mark};
}

bool set_up_host(const HoldRecord& record, Context& context) {
    const auto connection = connection_of(record, context);
    if (!connection || connection->is_local()) return true;
    log::info("setting up the host: uv sync --all-packages --extra=tpu --python=3.11");
    devtpu::HostCommand command;
    command.line = k_setup_line;
    command.run_id = record.submission_id + ".setup";
    command.lease_s = record.terms.lease_s;
    const auto answer =
        devtpu::ask_host(*connection, devtpu::receive_line(), devtpu::command_script(*connection, command),
                         k_setup_limit, context.process, context.stop);
    if (answer && answer->exit_code == 0) return true;
    if (context.stop.stop_requested()) return false;
    const Error error = answer ? setup_error(*answer) : answer.error();
    log::warning("setting up {} failed; the hold is kept: {}", record.tpu_name, error.text());
    log::warning("hint: {}", error.hint.empty() ? "`gdnctl dev-tpu-setup` runs the set-up again" : error.hint);
    return false;
}

}  // namespace gdnctl
