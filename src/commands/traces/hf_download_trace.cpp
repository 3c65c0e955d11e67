// gdnctl hf-download-trace: fetch profiler traces from a repository on the Hugging Face Hub.
#include <array>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "commands/table.h"
#include "commands/traces/trace_download.h"
#include "core/log.h"
#include "platform/http.h"
#include "services/hub/hf/access.h"
#include "services/hub/hf/hub.h"
#include "services/hub/hf/repo.h"
#include "services/hub/transfer/out_folder.h"

namespace gdnctl::commands::hf_download_trace {

enum class Source { hf, wandb };

struct Options {
    Source source = Source::hf;
    wandb_download_trace::RunOptions wandb;  // with --source wandb
    TraceDownloadOptions download;
    std::string repo_id;
    std::optional<std::string> target;  // the one positional word
    std::optional<hub::RepoType> repo_type;
    std::optional<std::string> revision, endpoint, token, token_file;
    bool no_token = false, head_check = false;
};

namespace {

using MaybeType = std::optional<hub::RepoType>;
constexpr std::array<cli::Choice<MaybeType>, 3> k_types = {
    {{"dataset", hub::RepoType::dataset}, {"model", hub::RepoType::model}, {"space", hub::RepoType::space}}};

constexpr std::array<cli::Choice<Source>, 2> k_sources = {
    {{"hf", Source::hf, "the Hugging Face Hub"}, {"wandb", Source::wandb, "Weights & Biases: REPO is a run"}}};

Error usage(std::string message, std::string hint = {}) {
    return Error{ErrorKind::usage, std::move(message), std::move(hint), {}};
}

Result<hub::RepoTarget> target_of(const Options& options, const hub::HfPlaces& places) {
    if (options.target && !options.repo_id.empty()) return tl::unexpected(usage("the repository is given twice"));
    const std::string word = options.target.value_or(options.repo_id);
    if (word.empty()) return tl::unexpected(usage("no repository is given", "name it with --repo-id"));
    GDNCTL_TRY_ASSIGN(auto parsed, hub::parse_repo_target(word, places.endpoint));
    if (parsed.is_address && (options.repo_type || options.revision || !options.download.selection.prefix.empty())) {
        return tl::unexpected(
            usage("the address already contains type, revision and path",
                  "leave out --repo-type, --revision and --path-prefix, or give a plain repository id"));
    }
    if (options.repo_type) parsed.type = *options.repo_type;
    if (options.revision) parsed.revision = *options.revision;
    if (parsed.revision &&
        (parsed.revision->empty() || parsed.revision->find_first_of(" \t\r\n\\") != std::string::npos)) {
        return tl::unexpected(usage(fmt::format("'{}' is not a revision", hub::shown(*parsed.revision))));
    }
    if (!parsed.is_address) parsed.path = options.download.selection.prefix;
    return parsed;
}

Result<hub::HfToken> token_of(const Options& options, const Context& context) {
    if (int{options.token.has_value()} + int{options.token_file.has_value()} + int{options.no_token} > 1) {
        return tl::unexpected(usage("only one of --token, --token-file and --no-token can be given"));
    }
    hub::TokenOptions given{options.token, std::nullopt, options.no_token};
    if (options.token_file) given.token_file = context.cwd / *options.token_file;
    GDNCTL_TRY_ASSIGN(auto found, hub::find_hf_token(context.env, given));
    return found;
}

Status check_token_way(const hub::HfPlaces& places, const hub::HfToken& token, bool insecure) {
    const auto url = http::parse_url(places.endpoint);
    if (token.value.empty() || insecure || http::is_confidential(*url)) return {};
    return fail(ErrorKind::authentication,
                fmt::format("the token from {} would be sent unencrypted to {}", token.source, url->origin()),
                "use https, --no-token, or --insecure-http on a network that you trust");
}

// What lives as long as the download.
struct DownloadSession {
    hub::HfPlaces places;
    hub::HfToken token;
    std::unique_ptr<HttpPool> pool;
    std::unique_ptr<hub::RetryingClient> client;
    std::optional<hub::OutFolder> folder;
};

Status connect(DownloadSession& session, const Options& options, Context& context) {
    HttpPoolSettings settings = pool_settings(options.download, context);
    settings.origin = context.env.get("HF_HUB_USER_AGENT_ORIGIN").value_or("");
    GDNCTL_TRY_ASSIGN(session.pool, context.http.open_pool(settings));
    http::ServiceEndpoint service;
    service.endpoint = *http::parse_url(session.places.endpoint);
    service.aliases = hub::hub_hosts();
    if (!session.token.value.empty()) service.authorization = "Bearer " + session.token.value;
    service.headers = trace_id_header();
    service.log_requests = hub::env_is_true(context.env, "HF_DEBUG");
    session.client = std::make_unique<hub::RetryingClient>(
        *session.pool, std::move(service), transfer_limits(options.download, context), context.clock, context.stop);
    return {};
}

// Gives the repository what the manifest of an earlier download knows.
void remember(hub::HfRepo& repo, const hub::Report& report, const Options& options, hub::OutFolder& folder,
              const Context& context) {
    const auto earlier = earlier_report(options.download, folder, context);
    const auto same = [&](std::string_view name) {
        return hub::value_of(earlier->head, name) == hub::value_of(report.head, name);
    };
    if (!earlier || !same("source") || !same("endpoint")) return;
    // Manifests of older versions do not have what was asked for.
    const bool same_question =
        earlier->asked.empty() ? same("repo") && same("type") && same("revision") : earlier->asked == report.asked;
    if (!same_question) return;
    std::vector<hub::TreeFile> files;
    for (const hub::Wanted& one : earlier->files) {
        hub::TreeFile file;
        file.path = one.path;
        file.size = one.size;
        if (one.digest.kind == hub::Digest::Kind::sha256) {
            file.lfs_sha256 = one.digest.hex;
            file.lfs_size = one.size;
        } else {
            file.blob_id = one.digest.hex;
        }
        files.push_back(std::move(file));
    }
    if (earlier->selection != report.selection) files.clear();
    repo.remember(hub::value_of(earlier->head, "repo"), hub::value_of(earlier->head, "commit"), std::move(files));
}

Status heads(hub::HfRepo& repo, const hub::HfListing& listing) {
    for (const hub::TreeFile& file : listing.files) {
        GDNCTL_TRY(repo.check_head(file));
    }
    return {};
}

Error no_file_of(const hub::RepoTarget& target, const hub::HfListing& listing) {
    Error none = nothing_matched(
        fmt::format("no matching files in {} '{}' at {}", name_of(target.type), listing.id, listing.commit),
        listing.others, target.path);
    if (target.is_file) none.kind = ErrorKind::remote_missing;
    return none;
}

Status download(DownloadSession& session, const Options& options, hub::Report& report, Context& context) {
    const auto places = hub::find_hf_places(context.env, options.endpoint);
    if (!places) return tl::unexpected(places.error());
    session.places = *places;
    GDNCTL_TRY_ASSIGN(auto target, target_of(options, session.places));
    report.head = {{"source", "hf"},
                   {"endpoint", session.places.endpoint},
                   {"repo", target.id},
                   {"type", std::string(name_of(target.type))},
                   {"revision", target.revision.value_or("main")},
                   {"commit", ""}};
    hub::SelectionOptions wanted = options.download.selection;
    wanted.prefix = target.path;
    report.asked = hub::asked_text({{"repo", target.id},
                                    {"type", std::string(name_of(target.type))},
                                    {"revision", target.revision.value_or("main")}});
    report.selection = hub::selection_text(wanted, target.is_file);
    GDNCTL_TRY_ASSIGN(auto selection, hub::Selection::make(std::move(wanted)));
    GDNCTL_TRY(check_download_options(options.download, context));
    auto token = token_of(options, context);
    if (!token) return tl::unexpected(std::move(token).error());
    session.token = std::move(*token);
    const bool offline = options.download.offline || session.places.offline;
    if (!offline) {
        Status ready = check_token_way(session.places, session.token, options.download.insecure_http);
        if (ready) ready = connect(session, options, context);
        if (!ready) return tl::unexpected(ready.error());
    }
    auto folder = hub::OutFolder::open(context.cwd / options.download.output_dir, true);
    if (!folder) return tl::unexpected(std::move(folder).error());
    session.folder.emplace(std::move(*folder));
    hub::HfRepo repo(target, session.places, session.token.source, session.client.get(), *session.folder);
    if (offline) remember(repo, report, options, *session.folder, context);
    GDNCTL_TRY_ASSIGN(auto listing, repo.list(selection));
    report.head[2].second = listing.id;
    report.head.back().second = listing.commit;
    if (listing.files.empty() && !options.download.allow_empty) return tl::unexpected(no_file_of(target, listing));
    report.files = repo.wanted(listing);
    DownloadRun run{options.download, *session.folder, session.client.get(), {}, listing.commit, true, offline, {}};
    run.explain = [&repo](const std::string& url, int status, const HttpHeaders& headers, std::string_view body) {
        return repo.explain(url, status, headers, body);
    };
    run.start = [&]() -> Status {
        const std::string record = hub::tree_path(listing.commit);
        if (!listing.tree_record.empty() && !options.download.flat) {
            GDNCTL_TRY(session.folder->replace(record, listing.tree_record));
        }
        return options.head_check && !offline ? heads(repo, listing) : Status();
    };
    return download_all(run, report, context);
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Downloads profiler traces from a repository on the Hugging Face Hub. Each file is checked against the Hub's "
        "hash during the download. Run the same command again to continue an interrupted download; files that are "
        "already up to date by their records are skipped, and hashed again only with --verify.");
    args.about(
        "A plain id names a dataset, unless --repo-type says otherwise. An hf:// URI or a web address without a type "
        "names a model: hf://datasets/NAMESPACE/NAME@REVISION/PATH is a dataset.");
    args.positional(options.target,
                    {.name = "REPO", .help = "repository id, hf:// URI or web address, in place of --repo-id"});
    args.option(
        options.repo_id,
        {.names = "--repo-id", .value = "REPO", .help = "repository: NAMESPACE/NAME, hf:// URI or web address"});
    args.option(options.repo_type, k_types, "--repo-type TYPE", "type of the repository", {.default_text = "dataset"});
    args.option(options.revision, "--revision REV", "branch, tag or commit", {.default_text = "main"});
    args.option(options.source, k_sources, "--source WHERE", "service to download from");
    describe_selection(args, options.download);
    describe_transfer(args, options.download, ".profiles/hf");
    constexpr std::string_view k_group = "Access";
    args.option(options.token, "--token T", "token; other users can see it in the process list",
                {.group = k_group, .default_text = "$HF_TOKEN, or the file of `hf auth login`"});
    args.option(options.token_file, "--token-file FILE", "read the token from this file",
                {.group = k_group, .complete = cli::Complete::file});
    args.flag(options.no_token, "--no-token", "send no token", {.group = k_group});
    args.option(options.endpoint, {.names = "--endpoint",
                                   .value = "URL",
                                   .help = "the Hub, or a mirror of it",
                                   .group = k_group,
                                   .default_text = "$HF_ENDPOINT, or https://huggingface.co"});
    args.flag(options.head_check, "--head-check", "ask for each file's hash again before the download",
              {.group = k_group});
    wandb_download_trace::describe_run(args, options.wandb);
    describe_download_codes(args);
    args.example("gdnctl hf-download-trace --repo-id org/repo --path-prefix run1", "the JSON traces below run1/");
    args.example("gdnctl hf-download-trace --repo-id org/repo --path-prefix run1 --include-xplane --latest-session");
    args.example("gdnctl hf-download-trace hf://datasets/org/repo@main/run1 --dry-run", "what would be fetched");
    args.see_also({"wandb-download-trace", "docs/trace-downloads.md"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.source == Source::wandb) {
        return wandb_download_trace::run({options.download, options.wandb, options.target.value_or(options.repo_id)},
                                         context);
    }
    Options given = options;
    if (given.download.output_dir.empty()) given.download.output_dir = ".profiles/hf";
    DownloadSession session;
    hub::Report report;
    report.head = {{"source", "hf"}, {"endpoint", ""}, {"repo", ""}, {"type", ""}, {"revision", ""}, {"commit", ""}};
    if (auto done = download(session, given, report, context); !done) report.error = std::move(done).error();
    return report_download(given.download, report, session.folder ? &*session.folder : nullptr, context);
}

}  // namespace gdnctl::commands::hf_download_trace

namespace gdnctl::commands {

Rows hf_trace_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&hf_download_trace::describe, &hf_download_trace::run>(
            "hf-download-trace", "Traces", "download traces from the Hugging Face Hub", Tier::http)
            .without_config()};
    return k_rows;
}

}  // namespace gdnctl::commands
