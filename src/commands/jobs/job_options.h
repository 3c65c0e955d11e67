// Options shared by the commands for jobs and dev TPUs, and by the profiles of codex-loop.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "cli/args.h"
#include "jobs/held_job.h"
#include "jobs/job_destination.h"
#include "jobs/submit.h"
#include "target/target.h"

namespace gdnctl::commands {

// Errors: usage (two addresses, or one for this machine).
Status check_addresses(const DestinationOptions& options);
void describe_place(cli::Args& args, DestinationOptions& options);
void describe_submit(cli::Args& args, SubmitOptions& options);

// The settings of a profile as options, described once for ray-profile, dev-tpu-profile and the profiles of codex-loop.

using WordChoice = cli::Choice<std::string>;
extern const std::array<WordChoice, 5> k_ce_implementations;

// How a command spells them.
struct ProfileNames {
    std::string_view group = "Run";
    std::string_view prefix = "--";  // prefix of every option
    std::string_view first_step = "profile-start-step", traced_steps = "profile-num-steps";
    std::string_view run_name_help = "prefix of the run's name";
};

void describe_model(cli::Args& args, ProfileSettings& settings, const ProfileNames& names);
void describe_cross_entropy(cli::Args& args, ProfileSettings& settings, const ProfileNames& names);
void describe_run_name(cli::Args& args, ProfileSettings& settings, const ProfileNames& names);

}  // namespace gdnctl::commands

namespace gdnctl::commands::devtpu_options {

// Options shared by the dev-tpu commands.

struct Name {
    DestinationOptions place;
    std::string tpu_name;
};
void describe_name(cli::Args& args, Name& options);

using Sync = HeldSync;
void describe_sync(cli::Args& args, Sync& options);

using Run = HeldRun;
void describe_run(cli::Args& args, Run& options);

}  // namespace gdnctl::commands::devtpu_options
