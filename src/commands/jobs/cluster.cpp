// gdnctl cluster list and cluster check.
#include <functional>
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
    const std::string cluster = f.kind == PlaceKind::iris ? "iris" : or_dash(f.cluster_name);
    return fmt::format("{:<22} {:<20} {:<14} {:<12} {}{}\n", row.name, cluster, or_dash(f.zone), tpu ? *tpu : "-",
                       or_dash(types), row.in_use ? "  (in use)" : "");
}

Json json_of(const Row& row) {
    const auto text_or_null = [](const std::string& word) { return word.empty() ? Json(nullptr) : Json(word); };
    Json out;
    out["name"] = row.name;
    out["in_use"] = row.in_use;
    if (!row.file) {
        out["error"] = row.file.error().text();
        out["backend"] = nullptr;
        return out;
    }
    const ClusterFile& f = *row.file;
    const auto tpu = infer_tpu(f);
    out["file"] = text_or_null(f.path.string());
    out["cluster_name"] = text_or_null(f.cluster_name);
    out["zone"] = text_or_null(f.zone);
    out["project"] = text_or_null(f.project);
    out["tpu"] = tpu ? Json(*tpu) : Json(nullptr);
    out["tpu_types"] = tpu_types(f);
    out["backend"] = std::string(to_text(f.kind));
    return out;
}

}  // namespace

void describe(cli::Args& args, Options&) {
    args.about(
        "Lists the clusters that --cluster accepts: `local`, which is this machine; [clusters.NAME] of the "
        "configuration; and cluster files: infra/marin-NAME.yaml of the repository (Ray), "
        "~/.config/marin/clusters/NAME.yaml and lib/iris/config/NAME.yaml of the repository (Iris). Nothing is "
        "contacted. TPU is what `--tpu auto` stands for, TYPES what the cluster offers.");
    args.example("gdnctl cluster list");
    args.see_also("cluster check");
}

Result<ExitCode> run(const Options&, Context& context) {
    const ClusterPlaces places = cluster_places(context);
    const auto place = choose_destination({}, context);
    if (!place) log::warning("the configured cluster cannot be used: {}", place.error().text());
    std::vector<Row> rows;
    for (const std::string& name : cluster_names(places)) {
        rows.push_back({name, find_cluster(places, name)});
        const Row& row = rows.back();
        const bool same_file =
            row.file && place && place->file && !place->file->path.empty() && place->file->path == row.file->path;
        rows.back().in_use = same_file || (place && place->file && place->cluster == name);
    }
    const bool local = place && place->is_local();
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.cluster-list/1";
        out["clusters"] = Json::array({Json{{"name", "local"}, {"in_use", local}, {"backend", "local"}}});
        for (const Row& row : rows) out["clusters"].push_back(json_of(row));
        print_json(out, context);
        return ExitCode::ok;
    }
    print_lines(fmt::format("{:<22} {:<20} {:<14} {:<12} {}\n", "NAME", "CLUSTER", "ZONE", "TPU", "TYPES"), context);
    print_lines(fmt::format("{:<22} {:<20} {:<14} {:<12} {}{}\n", "local", "this machine", "-", "-", "-",
                            local ? "  (in use)" : ""),
                context);
    for (const Row& row : rows) print_lines(text_of(row), context);
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
    std::optional<ClusterAccess> access;
    std::string url;                            // as reached; empty: not reached
    std::optional<DashboardFacts> facts;        // of a Ray cluster
    std::optional<ControllerFacts> controller;  // of an Iris cluster
    std::string iris_user;                      // the first part of our jobs' names
    std::optional<Error> error;

    bool answers() const { return place.is_local() || facts || controller; }
};

Status ask(Report& report, Context& context) {
    GDNCTL_TRY_ASSIGN(report.access, open_access(report.place, context));
    const ClusterAccess& access = *report.access;
    GDNCTL_TRY_ASSIGN(report.url, access.route->url());
    if (report.place.kind == PlaceKind::iris) {
        GDNCTL_TRY_ASSIGN(report.controller, ask_controller(report.place, access, context));
        return {};
    }
    const std::string token = access.withheld ? std::string() : access.token.value;
    auto facts = ask_dashboard(context.http, report.url, token, context.stop);
    if (!facts && facts.error().kind == ErrorKind::authentication) {
        facts.error().hint = token_hint(access.token, access.withheld);
    }
    GDNCTL_TRY_ASSIGN(report.facts, std::move(facts));
    return {};
}

Report look(const JobDestination& place, Context& context) {
    Report report;
    report.place = place;
    report.iris_user = iris_user(context.env);
    if (place.is_local()) return report;
    if (Status asked = ask(report, context); !asked) report.error = std::move(asked).error();
    return report;
}

std::string number(double value) { return fmt::format("{:g}", value); }

std::string demand_text(const ClusterDemand& demand) {
    std::string out;
    for (const auto& [name, amount] : demand.resources)
        out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, number(amount));
    return fmt::format("{} x {{{}}}", demand.count, out);
}

// Where the token or the login comes from; empty: nowhere.
std::string token_origin(const Report& r) {
    if (!r.access) return {};
    return r.access->login ? r.access->login->origin() : r.access->token.origin;
}

std::string login_text(const Report& r) {
    if (!r.access) return "not known";
    if (!r.access->login) return "none needed";
    const std::string origin = r.access->login->origin();
    return origin.empty() ? "none" : origin;
}

std::string token_text(const Report& r) {
    if (!r.access) return "not known";
    if (r.access->token.value.empty()) return "none (" + text::join(r.access->token.looked, ", ") + ")";
    return r.access->token.origin + (r.access->withheld ? " (not sent in clear text)" : "");
}

std::string address_words(const Report& r) {
    const std::string address = address_text(r.place);
    if (r.place.address) return address + " (" + r.place.address->origin + ")";
    return r.url.empty() ? address : address + ", now " + r.url;
}

using Line = std::function<void(std::string_view name, const std::string& value)>;

void show_controller(const Report& r, const Line& line) {
    const ControllerFacts& facts = *r.controller;
    line("answers",
         fmt::format("yes: Iris, authentication {}, user {}", facts.auth_mode.empty() ? "not known" : facts.auth_mode,
                     facts.user.empty() ? "not known" : facts.user));
    if (facts.running) line("tasks", fmt::format("{} running, {} pending", *facts.running, *facts.pending));
    if (!facts.budget || !facts.budget->is_spent()) return;
    line("budget", fmt::format("spent ({} of {}): new jobs of {} run as BATCH and are preempted first",
                               facts.budget->spent, facts.budget->limit, r.iris_user));
}

void show_dashboard(const DashboardFacts& facts, const Line& line) {
    line("answers", fmt::format("yes: Ray {}, authentication {}, {}", facts.ray_version,
                                facts.auth_mode.empty() ? "not known" : facts.auth_mode, facts.session));
    if (!facts.load) return;
    const ClusterLoad& load = *facts.load;
    line("TPU",
         load.tpu_total ? fmt::format("{} of {} in use", number(*load.tpu_used), number(*load.tpu_total)) : "none up");
    std::string queued;
    for (const ClusterDemand& demand : load.queued) queued += (queued.empty() ? "" : "; ") + demand_text(demand);
    line("queued", queued.empty() ? "nothing" : queued);
}

void show(const Report& r, Context& context) {
    const Line line = [&](std::string_view name, const std::string& value) {
        print_lines(fmt::format("{:<10} {}\n", name, value), context, 11);
    };
    if (r.place.is_local()) {
        line("cluster", "local (" + r.place.origin + ")");
        line("answers", "yes: jobs run on this machine");
        return;
    }
    line("cluster", (r.place.cluster.empty() ? "not named" : r.place.cluster) + " (" + r.place.origin + ")");
    const bool has_file = r.place.file && !r.place.file->path.empty();
    line("file", has_file ? r.place.file->path.string() : "none");
    line("address", address_words(r));
    r.place.kind == PlaceKind::iris ? line("login", login_text(r)) : line("token", token_text(r));
    if (r.place.file) {
        const std::string types = text::join(tpu_types(*r.place.file), " ");
        line("offers", types.empty() ? "no TPU" : types);
    }
    if (r.facts) {
        show_dashboard(*r.facts, line);
    } else if (r.controller) {
        show_controller(r, line);
    } else {
        line("answers", "no");
    }
}

Json controller_json(const Report& r) {
    if (!r.controller) return nullptr;
    const ControllerFacts& facts = *r.controller;
    Json out;
    out["user"] = json::or_null(facts.user);
    out["running"] = json::or_null(facts.running);
    out["pending"] = json::or_null(facts.pending);
    out["effective_band"] = facts.budget ? json::or_null(facts.budget->band) : Json(nullptr);
    return out;
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
    out["file"] = r.place.file ? word(r.place.file->path.string()) : Json(nullptr);
    out["address"] = r.place.address ? Json(r.place.address->url) : word(r.url);
    out["address_origin"] = r.place.address      ? Json(r.place.address->origin)
                            : r.place.is_local() ? Json(nullptr)
                                                 : Json("ssh tunnel");
    out["token_origin"] = word(token_origin(r));
    out["token_withheld"] = r.access && r.access->withheld;
    out["tpu_types"] = r.place.file ? tpu_types(*r.place.file) : std::vector<std::string>();
    out["answers"] = r.answers();
    out["ray_version"] = r.facts ? word(r.facts->ray_version) : Json(nullptr);
    out["session_name"] = r.facts ? word(r.facts->session) : Json(nullptr);
    out["authentication_mode"] = r.facts        ? word(r.facts->auth_mode)
                                 : r.controller ? word(r.controller->auth_mode)
                                                : Json(nullptr);
    out["load"] = r.facts ? load_json(r.facts->load) : Json(nullptr);
    out["error"] = r.error ? Json(r.error->text()) : Json(nullptr);
    out["iris"] = controller_json(r);
    return out;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows what a job command with these options would use: cluster file, address, and token or login, and where "
        "each comes from (never the token itself). Then asks a Ray dashboard for its version, session, authentication, "
        "TPUs in use and queue, or an Iris controller for your user, its tasks and your budget. A tunnel opened for "
        "this is closed again.");
    args.positional(options.name, "NAME", "cluster to check, as for --cluster", {.complete = cli::Complete::cluster});
    describe_place(args, options.place);
    args.exit_code(0, "the cluster answers and accepts the token or login, or jobs run on this machine");
    args.exit_code(4, "no answer, or neither a Ray dashboard nor an Iris controller");
    args.example("gdnctl cluster check", "what is used by default");
    args.example("gdnctl cluster check marin");
    args.example("gdnctl cluster check --ray-address http://127.0.0.1:8265 --json");
    args.see_also("cluster list");
    args.check([&options]() -> Status {
        const bool twice = options.name && options.place.cluster && options.name != options.place.cluster;
        if (twice || (options.name && options.place.cluster_config)) {
            return fail(ErrorKind::usage, "two clusters are given: drop one of them");
        }
        if (options.name == "local" && (options.place.ray_address || options.place.iris_url)) {
            return fail(ErrorKind::usage, options.place.ray_address ? "`local` is this machine: drop --ray-address"
                                                                    : "`local` is this machine: drop --iris-url");
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
        print_json(json_of(report), context);
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
