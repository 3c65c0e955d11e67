// The host of a held TPU, from here: its block in the user's ssh configuration, its keys, the tree, and the set-up.
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
// Options for every ssh that is started: BatchMode, the hold's own host, and the configuration where HOME is not the
// account's own.
std::vector<std::string> ssh_options(const devtpu::HoldRecord& record, const Context& context);

// Writes the ssh block, has gcloud put the keys there, and tries the connection; fills in alias and ssh_ok. What does
// not work is a warning. On this machine there is nothing to do.
void reach_host(devtpu::HoldRecord& record, const std::string& ssh_user, Context& context);

// Forgets a hold that is over. Its ssh alias goes, or to another hold of the name, on another cluster.
Status forget_hold(const devtpu::HoldRecord& record, const Context& context);

// Syncs the tree. Errors: those of sync_tree(); infrastructure where there is no ssh.
Status sync_to_host(const devtpu::HoldRecord& record, const std::filesystem::path& root, Context& context);

// uv, and the environment of a Marin checkout. A failure is a warning, and false.
bool set_up_host(const devtpu::HoldRecord& record, Context& context);

}  // namespace gdnctl
