// gdnctl cluster list and cluster check.
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "platform/context.h"
#include "platform/terminal.h"

namespace gdnctl::commands::cluster_list {

struct Options {};

namespace {

struct Row {
    std::string name;
    Result<ClusterFile> file;
    bool in_use = false;
};

std::string or_dash(const std::string& word) { return word.empty() ? "-" : word; }

std::string text_of(const Row& row) {
    if (!row.file) return fmt::format("{:<22} {}\n", row.name, row.file.error().text());
    const ClusterFile& f = *row.file;
    const auto tpu = infer_tpu(f);
    const std::string types = text::join(tpu_types(f), " ");
    return fmt::format("{:<22} {:<24} {:<14} {:<12} {}{}\n", row.name, or_dash(f.cluster_name), or_dash(f.zone),
                       tpu ? *tpu : "-", or_dash(types), row.in_use ? "  (in use)" : "");
}

Json json_of(const Row& row) {
    const auto text_or_null = [](const std::string& word) { return word.empty() ? Json(nullptr) : Json(word); };
    Json out;
    out["name"] = row.name;
    out["in_use"] = row.in_use;
    if (!row.file) {
        out["error"] = row.file.error().text();
        return out;
    }
    const ClusterFile& f = *row.file;
    const auto tpu = infer_tpu(f);
    out["file"] = f.path.string();
    out["cluster_name"] = text_or_null(f.cluster_name);
    out["zone"] = text_or_null(f.zone);
    out["project"] = text_or_null(f.project);
    out["tpu"] = tpu ? Json(*tpu) : Json(nullptr);
    out["tpu_types"] = tpu_types(f);
    return out;
}

}  // namespace

void describe(cli::Args& args, Options&) {
    args.about(
        "Lists the clusters that --cluster accepts: infra/marin-NAME.yaml of the repository, and `local`, this "
        "machine. Nothing is contacted. TPU is what `--tpu auto` stands for, TYPES what the cluster offers.");
    args.example("gdnctl cluster list");
    args.see_also("cluster check");
}

Result<ExitCode> run(const Options&, Context& context) {
    const auto root = project_root(context);
    const auto place = choose_destination({}, context);
    if (!place) log::warning("the configured cluster cannot be used: {}", place.error().text());
    std::vector<Row> rows;
    for (const std::string& name : cluster_names(root)) {
        const auto path = find_cluster_file(root, root, name);
        if (!path) continue;
        rows.push_back({name, read_cluster_file(*path, context.env.get("HOME").value_or("")), false});
        rows.back().in_use = place && place->file && place->file->path == *path;
    }
    const bool local = place && place->is_local();
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.cluster-list/1";
        out["clusters"] = Json::array({Json{{"name", "local"}, {"in_use", local}}});
        for (const Row& row : rows) out["clusters"].push_back(json_of(row));
        print_json(out, context, -1);
        return ExitCode::ok;
    }
    context.terminal.out(fmt::format("{:<22} {:<24} {:<14} {:<12} {}\n", "NAME", "CLUSTER", "ZONE", "TPU", "TYPES"));
    context.terminal.out(fmt::format("{:<22} {:<24} {:<14} {:<12} {}{}\n", "local", "this machine", "-", "-", "-",
                                     local ? "  (in use)" : ""));
    for (const Row& row : rows) context.terminal.out(text_of(row));
    if (place && place->address) log::info("in use: {} ({})", place->address->url, place->address->origin);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::cluster_list

// gdnctl cluster check: how a cluster would be reached, and whether it answers.
namespace gdnctl::commands::cluster_check {

struct Options {
    std::optional<std::string> name;
    DestinationOptions place;
};

namespace {

struct Report {
    JobDestination place;
    std::optional<RayAccess> access;
    std::string url;  // as reached; empty: not reached
    std::optional<DashboardFacts> facts;
    std::optional<Error> error;
};

Report look(const JobDestination& place, Context& context) {
    Report report;
    report.place = place;
    if (place.is_local()) return report;
    auto access = open_access(place, context);
    if (!access) {
        report.error = std::move(access).error();
        return report;
    }
    report.access = std::move(*access);
    auto url = report.access->route->url();
    if (!url) {
        report.error = std::move(url).error();
        return report;
    }
    report.url = *url;
    const std::string token = report.access->withheld ? std::string() : report.access->token.value;
    auto facts = ask_dashboard(context.http, *url, token, context.stop);
    if (facts) {
        report.facts = std::move(*facts);
    } else {
        report.error = std::move(facts).error();
        if (report.error->kind == ErrorKind::authentication) {
            report.error->hint = token_hint(report.access->token, report.access->withheld);
        }
    }
    return report;
}

std::string number(double value) { return fmt::format("{:g}", value); }

std::string demand_text(const ClusterDemand& demand) {
    std::string out;
    for (const auto& [name, amount] : demand.resources)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, number(amount));
    return fmt::format("{} x {{{}}}", demand.count, out);
}

std::string token_text(const Report& r) {
    if (!r.access) return "not known";
    if (r.access->token.value.empty()) return "none (" + text::join(r.access->token.looked, ", ") + ")";
    return r.access->token.origin + (r.access->withheld ? " (not sent in clear text)" : "");
}

std::string address_text(const Report& r) {
    if (r.place.address) return r.place.address->url + " (" + r.place.address->origin + ")";
    const std::string through = "ssh tunnel to the head node of " + r.place.file->cluster_name;
    return r.url.empty() ? through : through + ", now " + r.url;
}

void show(const Report& r, Context& context) {
    const auto line = [&](std::string_view name, const std::string& value) {
        context.terminal.out(fmt::format("{:<10} {}\n", name, value));
    };
    if (r.place.is_local()) {
        line("cluster", "local (" + r.place.origin + ")");
        line("answers", "yes: jobs run on this machine");
        return;
    }
    line("cluster", (r.place.cluster.empty() ? "not named" : r.place.cluster) + " (" + r.place.origin + ")");
    line("file", r.place.file ? r.place.file->path.string() : "none");
    line("address", address_text(r));
    line("token", token_text(r));
    if (r.place.file) {
        const std::string types = text::join(tpu_types(*r.place.file), " ");
        line("offers", types.empty() ? "no TPU" : types);
    }
    if (!r.facts) {
        line("answers", "no");
        return;
    }
    line("answers", fmt::format("yes: Ray {}, authentication {}, {}", r.facts->ray_version,
                                r.facts->auth_mode.empty() ? "not known" : r.facts->auth_mode, r.facts->session));
    if (!r.facts->load) return;
    const ClusterLoad& load = *r.facts->load;
    line("TPU",
         load.tpu_total ? fmt::format("{} of {} in use", number(*load.tpu_used), number(*load.tpu_total)) : "none up");
    std::string queued;
    for (const ClusterDemand& demand : load.queued) queued += (queued.empty() ? "" : "; ") + demand_text(demand);
    line("queued", queued.empty() ? "nothing" : queued);
}

Json load_json(const std::optional<ClusterLoad>& load) {
    if (!load) return nullptr;
    Json out;
    out["tpu_used"] = load->tpu_used ? Json(*load->tpu_used) : Json(nullptr);
    out["tpu_total"] = load->tpu_total ? Json(*load->tpu_total) : Json(nullptr);
    out["queued"] = Json::array();
    for (const ClusterDemand& demand : load->queued) {
        out["queued"].push_back({{"resources", demand.resources}, {"count", demand.count}});
    }
    return out;
}

Json json_of(const Report& r) {
    const auto word = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
    Json out;
    out["schema"] = "gdnctl.cluster-check/1";
    out["backend"] = std::string(to_text(r.place.kind));
    out["cluster"] = word(r.place.cluster);
    out["origin"] = r.place.origin;
    out["file"] = r.place.file ? Json(r.place.file->path.string()) : Json(nullptr);
    out["address"] = r.place.address ? Json(r.place.address->url) : word(r.url);
    out["address_origin"] = r.place.address      ? Json(r.place.address->origin)
                            : r.place.is_local() ? Json(nullptr)
                                                 : Json("ssh tunnel");
    out["token_origin"] = r.access ? word(r.access->token.origin) : Json(nullptr);
    out["token_withheld"] = r.access && r.access->withheld;
    out["tpu_types"] = r.place.file ? tpu_types(*r.place.file) : std::vector<std::string>();
    out["answers"] = r.place.is_local() || r.facts.has_value();
    out["ray_version"] = r.facts ? word(r.facts->ray_version) : Json(nullptr);
    out["session_name"] = r.facts ? word(r.facts->session) : Json(nullptr);
    out["authentication_mode"] = r.facts ? word(r.facts->auth_mode) : Json(nullptr);
    out["load"] = r.facts ? load_json(r.facts->load) : Json(nullptr);
    out["error"] = r.error ? Json(r.error->text()) : Json(nullptr);
    return out;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows what a job command with these options would use: cluster file, dashboard and token, and where each "
        "comes from (never the token itself). Then asks the dashboard for its version, session, authentication, TPUs "
        "in use and queue. A tunnel opened for this is closed again.");
    args.positional(options.name, "NAME", "cluster to check, as for --cluster", {.complete = cli::Complete::cluster});
    describe_place(args, options.place);
    args.exit_code(0, "the dashboard answers and accepts the token, or jobs run on this machine");
    args.exit_code(4, "no answer, or not a Ray dashboard");
    args.example("gdnctl cluster check", "what is used by default");
    args.example("gdnctl cluster check us-central1");
    args.example("gdnctl cluster check --ray-address http://127.0.0.1:8265 --json");
    args.see_also("cluster list");
    args.check([&options]() -> Status {
        const bool twice = options.name && options.place.cluster && options.name != options.place.cluster;
        if (twice || (options.name && options.place.cluster_config)) {
            return fail(ErrorKind::usage, "two clusters are given: drop one of them");
        }
        if (options.name == "local" && options.place.ray_address) {
            return fail(ErrorKind::usage, "`local` is this machine: drop --ray-address");
        }
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    DestinationOptions wanted = options.place;
    if (options.name) wanted.cluster = options.name;
    GDNCTL_TRY_ASSIGN(const JobDestination place, choose_destination(wanted, context));
    Report report = look(place, context);
    if (context.global.json) {
        print_json(json_of(report), context, -1);
    } else {
        show(report, context);
    }
    if (place.is_local() && wanted.no_local) {
        return fail(ErrorKind::infrastructure, "no cluster at hand, and the local backend is not allowed");
    }
    if (report.error) return tl::unexpected(std::move(*report.error));
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::cluster_check

namespace gdnctl::commands {

Rows cluster_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&cluster_list::describe, &cluster_list::run>("cluster list", "Jobs", "list the available clusters",
                                                               Tier::none),
        cli::make<&cluster_check::describe, &cluster_check::run>(
            "cluster check", "Jobs", "show how gdnctl reaches a cluster, and whether it answers", Tier::http)};
    return k_rows;
}

}  // namespace gdnctl::commands
