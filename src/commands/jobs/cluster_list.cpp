// gdnctl cluster list: the names that --cluster accepts here.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/place.h"
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
    const auto place = choose_place({}, context);
    if (!place) log::warning("the configured cluster cannot be used: {}", place.error().text());
    std::vector<Row> rows;
    for (const std::string& name : cluster_names(root)) {
        const auto path = find_cluster_file(root, root, name);
        if (!path) continue;
        rows.push_back({name, read_cluster_file(*path, context.env.get("HOME").value_or("")), false});
        rows.back().in_use = place && place->file && place->file->path == *path;
    }
    const bool local = place && place->local;
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

namespace gdnctl::commands {

constinit const cli::Command k_cluster_list_row = cli::make<&cluster_list::describe, &cluster_list::run>(
    "cluster list", "Jobs", "list the available clusters", Tier::none);

}  // namespace gdnctl::commands
