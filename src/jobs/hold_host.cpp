#include "jobs/hold_host.h"

#include <algorithm>
#include <array>
#include <random>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "jobs/tree.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "services/devtpu/names.h"
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
constexpr std::size_t k_socket_limit = 104 - 18;  // ssh adds a suffix of its own while it connects

fs::path home(const Context& context) { return context.env.get("HOME").value_or(""); }

fs::path account_home() {
    constexpr std::size_t k_entry_size = std::size_t{16} << 10;
    std::vector<char> buffer(k_entry_size);
    passwd entry{};
    passwd* found = nullptr;
    const int problem = getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
    return problem == 0 && found != nullptr ? fs::path(found->pw_dir) : fs::path();
}

// A folder for the sockets of shared connections; %C is 40 characters long. Empty: no path is short enough.
fs::path control_path(const Context& context) {
    for (const fs::path& folder : {context.state_dir / "ssh", home(context) / ".ssh"}) {
        const fs::path path = folder / "%C";
        if (path.string().size() + 38 > k_socket_limit) continue;
        if (make_private_directory(folder)) return path;
    }
    return {};
}

// The cluster's own tool knows how a key gets to a TPU's machine.
void put_keys(const HoldRecord& record, Context& context) {
    if (record.host.gcloud_tpu_name.empty() || record.host.gcloud_zone.empty()) return;
    ProcessSpec spec;
    spec.argv = {
        "gcloud", "compute", "tpus", "tpu-vm", "ssh", record.host.gcloud_tpu_name, "--zone=" + record.host.gcloud_zone,
        "--",     "hostname"};
    spec.wall_limit = k_key_limit;
    spec.stop = context.stop;
    const auto result = context.process.run(spec);
    if (result && result->ok()) return;
    log::warning("gcloud did not put your ssh key on {}: {}", record.host.gcloud_tpu_name,
                 result ? describe_end(*result, spec) : result.error().text());
}

Status try_ssh(const HoldRecord& record, Context& context) {
    const auto road = devtpu::ssh_road(ssh_options(context, true), record.tpu_name, record.submission_id);
    GDNCTL_TRY_ASSIGN(const auto answer, devtpu::ask_host(road, ":", {}, k_ssh_limit, context.process, context.stop));
    if (answer.exit_code == 0) return {};
    return fail(ErrorKind::infrastructure,
                "ssh: the host's shell does not work: " + text::visible(text::trim(answer.err)));
}

}  // namespace

std::string hold_place_words(const HoldRecord& record) {
    return record.cluster.empty() ? record.address : record.cluster;
}

fs::path ssh_config_path(const Context& context) { return home(context) / ".ssh" / "config"; }

std::vector<std::string> ssh_options(const Context& context, bool batch) {
    std::vector<std::string> options;
    if (home(context) != account_home()) options = {"-F", ssh_config_path(context).string()};
    if (batch) options.insert(options.end(), {"-o", "BatchMode=yes"});
    return options;
}

void reach_host(HoldRecord& record, const std::string& ssh_user, Context& context) {
    if (record.cluster == "local") return;
    const std::string& ip = record.host.reachable_ip();
    if (ip.empty() || home(context).empty()) {
        record.ssh_ok = false;
        log::warning("{}: there is no ssh to {}",
                     ip.empty() ? "the holder found no address of its host" : "HOME is not set", record.tpu_name);
        return;
    }
    put_keys(record, context);
    devtpu::SshHost host;
    host.name = record.tpu_name;
    host.hostname = ip;
    host.user = !ssh_user.empty() ? ssh_user : record.host.username;
    if (host.user.empty()) host.user = user_name(context.env);
    host.key_alias = record.submission_id;
    host.known_hosts = context.state_dir / "ssh" / "known_hosts";
    host.control = control_path(context);
    std::error_code ignored;
    const fs::path key = home(context) / ".ssh" / "google_compute_engine";
    if (fs::exists(key, ignored)) host.identity = key;
    Status written = make_private_directory(host.known_hosts.parent_path());
    if (written) written = devtpu::write_block(ssh_config_path(context), host);
    if (!written) {
        record.ssh_ok = false;
        log::warning("the ssh configuration was not changed: {}", written.error().text());
        return;
    }
    record.alias = devtpu::ssh_alias(record.tpu_name);
    const Status reached = try_ssh(record, context);
    record.ssh_ok = reached.has_value();
    if (!reached && !context.stop.stop_requested()) {
        log::warning("{} does not answer by ssh ({}): the hold is kept by jobs beside it", record.alias,
                     reached.error().text());
    }
}

Status forget_hold(const HoldRecord& record, const Context& context) {
    const devtpu::HoldStore store(context.state_dir);
    GDNCTL_TRY(store.forget(record.submission_id));
    if (record.cluster == "local" || home(context).empty() || store.find(record.tpu_name, std::nullopt)) return {};
    return devtpu::remove_block(ssh_config_path(context), record.tpu_name);
}

std::optional<devtpu::Road> road_of(const HoldRecord& record, const Context& context) {
    if (record.cluster == "local") {
        return devtpu::local_road(devtpu::HoldStore(context.state_dir).local_folder(record.tpu_name),
                                  record.submission_id);
    }
    if (!record.ssh_ok.value_or(false)) return std::nullopt;
    return devtpu::ssh_road(ssh_options(context, true), record.tpu_name, record.submission_id);
}

Status sync_to_host(const HoldRecord& record, const fs::path& root, Context& context) {
    const auto road = road_of(record, context);
    if (!road) {
        return fail(ErrorKind::infrastructure, "there is no ssh to " + record.tpu_name + ": the tree was not synced",
                    "--no-sync holds the TPU without it; `gdnctl dev-tpu-execute --via ray` sends the tree along");
    }
    const auto began = context.clock.monotonic();
    GDNCTL_TRY_ASSIGN(const WorkingTree tree, list_working_tree(root, context, TreeFilter::tracked));
    GDNCTL_TRY_ASSIGN(const auto report, devtpu::sync_tree(*road, tree, context.process, context.stop));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(context.clock.monotonic() - began);
    log::info("synced {} files of {} ({}, {})", report.files, root.string(), report.by, format_duration(took));
    return {};
}

bool set_up_host(const HoldRecord& record, Context& context) {
    const auto road = road_of(record, context);
    if (!road || road->is_local()) return true;
    log::info("setting up the host: uv sync --all-packages --extra=tpu --python=3.11");
    devtpu::HostCommand command;
    command.line =
        "set -e; command -v uv >/dev/null || { curl -LsSf https://astral.sh/uv/install.sh | sh; }; "
        "if [ -f \"$HOME/.local/bin/env\" ]; then . \"$HOME/.local/bin/env\"; fi; "
        "uv sync --all-packages --extra=tpu --python=3.11";
    command.run_id = record.submission_id + ".setup";
    command.lease_s = record.terms.lease_s;
    const auto answer = devtpu::ask_host(*road, devtpu::receive_line(*road), devtpu::command_script(*road, command),
                                         k_setup_limit, context.process, context.stop);
    if (answer && answer->exit_code == 0) return true;
    std::string said;
    if (answer) {
        const auto lines = text::split(text::trim(answer->err), '\n');
        said = fmt::format("exit code {}: {}", answer->exit_code, text::visible(text::trim(lines.back())));
    } else {
        said = answer.error().text();
    }
    if (!context.stop.stop_requested()) log::warning("the set-up of the host failed ({}): the hold is kept", said);
    return false;
}

}  // namespace gdnctl
