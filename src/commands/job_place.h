// Where a job command looks for jobs: the options that all of them share, and the backend they name.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "gdnctl/cli/args.h"
#include "gdnctl/platform/context.h"
#include "gdnctl/platform/env.h"
#include "gdnctl/services/job.h"

namespace gdnctl::commands {

struct PlaceOptions {
    std::optional<std::string> cluster;
    std::optional<std::string> cluster_config;
    std::optional<std::string> ray_address;
    bool no_local = false;
};

void describe_place(cli::Args& args, PlaceOptions& options);

// USER, LOGNAME, the name in the user database, or the number: who jobs are submitted by.
std::string user_name(const Env& env);

// The repository at or above the working directory, else the working directory.
std::filesystem::path project_root(const Context& context);

// The backend that the options, the environment and the configuration name; says so on stderr when that is the local
// one by default. Errors: usage (unknown cluster), infrastructure (a cluster that cannot be reached; never a
// fall-back).
Result<std::unique_ptr<JobBackend>> open_backend(const PlaceOptions& options, Context& context);

JobPlace place_of(const JobBackend& backend, std::string_view id);

// " --cluster local" for the commands that are suggested to the user.
std::string cluster_words(const JobBackend& backend);

}  // namespace gdnctl::commands
