#include <memory>

#include <fmt/format.h>

#include "commands/table.h"
#include "commands/traces/trace_download.h"
#include "core/base64.h"
#include "core/log.h"
#include "core/redact.h"
#include "platform/http.h"
#include "services/hub/wandb/artifact.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl::commands::wandb_download_trace {

namespace {

struct DownloadSession {
    WandbAccess access;
    std::unique_ptr<HttpPool> pool;
    std::unique_ptr<hub::RetryingClient> client;
    std::optional<hub::OutFolder> folder;
};

// `server`: of the run's web address; empty: none.
Status connect(DownloadSession& session, const std::string& server, const TraceDownloadOptions& options,
               Context& context) {
    if (context.env.get("WANDB_IDENTITY_TOKEN_FILE")) {
        log::warning("WANDB_IDENTITY_TOKEN_FILE is not supported: the other sources of a key are used");
    }
    GDNCTL_TRY_ASSIGN(session.access, find_wandb(context.env, server));
    GDNCTL_TRY_ASSIGN(session.pool, context.http.open_pool(pool_settings(options, context)));
    http::ServiceEndpoint service;
    const auto url = http::parse_url(session.access.url);
    if (!url) {
        return fail(ErrorKind::config,
                    fmt::format("the address of W&B's server is not valid: {}", hub::shown(session.access.url)),
                    "check WANDB_BASE_URL, or base_url in W&B's settings file");
    }
    service.endpoint = *url;
    const std::string credentials = to_base64("api:" + session.access.key);
    register_secret(credentials);
    service.authorization = "Basic " + credentials;
    session.client = std::make_unique<hub::RetryingClient>(
        *session.pool, std::move(service), transfer_limits(options, context), context.clock, context.stop);
    return {};
}

// Finds the artifact and its files at the server.
Status ask(wandb::RunArtifacts& artifacts, const Options& options, const hub::Selection& selection,
           hub::Report& report) {
    GDNCTL_TRY_ASSIGN(auto listing, artifacts.list(options.run.artifact, options.run.alias, selection));
    const std::string version = listing.artifact.version_name();
    report.head[report.head.size() - 2].second = listing.artifact.collection;
    report.head.back().second = version;
    report.files = std::move(listing.files);
    if (!report.files.empty() || options.download.allow_empty) return {};
    return tl::unexpected(
        nothing_matched(fmt::format("no matching files in {}:{}", listing.artifact.collection, version), listing.others,
                        selection.prefix()));
}

// Takes them from the manifest of an earlier download that asked for the same.
Status recall(const TraceDownloadOptions& where, hub::Report& report, hub::OutFolder& folder, const Context& context) {
    auto earlier = earlier_report(where, folder, context);
    const auto same = [&](std::string_view name) {
        return hub::value_of(earlier->head, name) == hub::value_of(report.head, name);
    };
    if (!earlier || earlier->asked != report.asked || earlier->selection != report.selection || !same("source") ||
        !same("endpoint")) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("offline, and {} has no manifest of this download", hub::shown(folder.path().string())),
                    "run the same command once online");
    }
    for (const char* name : {"artifact", "version"}) {
        for (auto& [key, value] : report.head) {
            if (key == name) value = hub::value_of(earlier->head, name);
        }
    }
    report.files = std::move(earlier->files);
    return {};
}

Status download(DownloadSession& session, const Options& options, TraceDownloadOptions& where, hub::Report& report,
                Context& context) {
    GDNCTL_TRY_ASSIGN(const auto path,
                      wandb::parse_run_target(options.target, options.run.entity, options.run.project));
    if (where.output_dir.empty()) where.output_dir = ".profiles/wandb/" + path.run;
    auto selection = hub::Selection::make(where.selection);
    if (!selection) return tl::unexpected(selection.error());
    GDNCTL_TRY(check_download_options(where, context));
    if (where.offline) {
        GDNCTL_TRY_ASSIGN(auto server, find_wandb_server(context.env, path.server));
        session.access.url = std::move(server);
    } else {
        GDNCTL_TRY(connect(session, path.server, where, context));
    }
    report.head = {{"source", "wandb"},     {"endpoint", session.access.url},
                   {"entity", path.entity}, {"project", path.project},
                   {"run_id", path.run},    {"artifact", ""},
                   {"version", ""}};
    report.asked = hub::asked_text({{"entity", path.entity},
                                    {"project", path.project},
                                    {"run", path.run},
                                    {"artifact", options.run.artifact.value_or("")},
                                    {"alias", options.run.alias.value_or("")}});
    report.selection = hub::selection_text(where.selection, false);
    auto folder = hub::OutFolder::open(context.cwd / where.output_dir, true);
    if (!folder) return tl::unexpected(std::move(folder).error());
    session.folder.emplace(std::move(*folder));
    DownloadRun run{where, *session.folder, session.client.get(), {}, {}, false, where.offline, {}};
    std::optional<wandb::RunArtifacts> artifacts;
    if (where.offline) {
        GDNCTL_TRY(recall(where, report, *session.folder, context));
    } else {
        artifacts.emplace(session.access, path, *session.client);
        GDNCTL_TRY(ask(*artifacts, options, *selection, report));
        run.explain = [&artifacts](const std::string& url, int status, const HttpHeaders& headers,
                                   std::string_view body) { return artifacts->explain(url, status, headers, body); };
    }
    run.commit = report.head.back().second;
    return download_all(run, report, context);
}

}  // namespace

void describe_run(cli::Args& args, RunOptions& options) {
    constexpr std::string_view k_group = "W&B";
    args.option(options.entity, "--entity NAME", "user or team of the run", {.group = k_group, .env = "WANDB_ENTITY"});
    args.option(options.project, "--project NAME", "project of the run", {.group = k_group, .env = "WANDB_PROJECT"});
    args.option(options.artifact, "--artifact NAME[:ALIAS]", "download this artifact instead of the run's profile",
                {.group = k_group});
    args.option(options.alias, "--alias ALIAS",
                "use the artifact with this alias or version (v0) instead of the newest", {.group = k_group});
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Downloads the profile that a run logged at Weights & Biases as an artifact of type jax_profile. Each file is "
        "checked against its MD5 during the download. Run the same command again to continue an interrupted download.");
    args.about(
        "The server is WANDB_BASE_URL, base_url in W&B's settings file, or https://api.wandb.ai. The key comes from "
        "WANDB_API_KEY, the settings file or the netrc file. A web address on another host is asked there, with that "
        "host's key in the netrc file.");
    args.positional(options.target, "RUN", "ENTITY/PROJECT/RUN, the run's web address, or a run id");
    describe_run(args, options.run);
    describe_selection(args, options.download);
    describe_transfer(args, options.download, ".profiles/wandb/RUN");
    describe_download_codes(args);
    args.example("gdnctl wandb-download-trace marin-community/marin/RUN_ID",
                 "its JSON traces, below .profiles/wandb/RUN_ID");
    args.example("gdnctl wandb-download-trace RUN_ID --entity marin-community --project marin --include-xplane");
    args.see_also({"hf-download-trace", "docs/trace-downloads.md"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    DownloadSession session;
    hub::Report report;
    report.head = {{"source", "wandb"}, {"endpoint", ""}, {"entity", ""}, {"project", ""},
                   {"run_id", ""},      {"artifact", ""}, {"version", ""}};
    TraceDownloadOptions where = options.download;
    if (auto done = download(session, options, where, report, context); !done) report.error = std::move(done).error();
    return report_download(where, report, session.folder ? &*session.folder : nullptr, context);
}

}  // namespace gdnctl::commands::wandb_download_trace

namespace gdnctl::commands {

Rows wandb_trace_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&wandb_download_trace::describe, &wandb_download_trace::run>(
            "wandb-download-trace", "Traces", "download a run's profile from Weights & Biases", Tier::http)
            .without_config()};
    return k_rows;
}

}  // namespace gdnctl::commands
