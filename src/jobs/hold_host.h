// Sets up the host of a held TPU from here: its block in the user's ssh configuration, its keys, the tree, and its
// software.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "jobs/hold.h"

namespace gdnctl {

// "local", "us-central1", "http://..." for people.
std::string hold_place_words(const devtpu::HoldRecord& record);

// $HOME/.ssh/config.
std::filesystem::path ssh_config_path(const Context& context);
// Options for every ssh command: those that undo the user's general settings, the hold's own host, and the
// configuration file if HOME is not the account's. They do not need the alias in that file.
std::vector<std::string> ssh_options(const devtpu::HoldRecord& record, const Context& context);

// Tries the connection. Errors: authentication, infrastructure, interrupted.
Status try_ssh(const devtpu::HoldRecord& record, Context& context);

// Writes the ssh block, has gcloud install the keys, and tries the connection; sets alias and ssh_ok. A failure is
// logged as a warning: without an alias, ssh still works. Does nothing for this machine.
void reach_host(devtpu::HoldRecord& record, const std::string& ssh_user, Context& context);

// Forgets a hold that has ended. Its ssh alias is removed, or given to another hold with that name on another cluster.
Status forget_hold(const devtpu::HoldRecord& record, const Context& context);

// An error about the working tree, with the hint that fits the commands for held TPUs.
Error for_held_tree(Error error);

// Syncs the tree below `root`. Errors: those of sync_tree(); infrastructure if there is no ssh.
Result<SyncedTree> sync_to_host(const devtpu::HoldRecord& record, const std::filesystem::path& root,
                                bool replaces_other, Context& context);

// Installs uv, and the environment of a Marin checkout. On failure it logs a warning and returns false.
bool set_up_host(const devtpu::HoldRecord& record, Context& context);

}  // namespace gdnctl
