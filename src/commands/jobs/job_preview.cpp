#include "commands/jobs/job_preview.h"

#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "commands/print.h"
#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fd.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "services/job/package.h"
#include "services/ray/ray_jobs.h"

namespace gdnctl::commands {

namespace {

namespace fs = std::filesystem;

struct Preview {
    std::size_t files = 0;
    std::uint64_t package_bytes = 0;  // size of the archive; 0: no package
    std::string working_dir;          // source of the package: a folder, a URI, or "none"
    Json request;                     // with the values of variables and secrets masked
};

// Packs into a temporary file that ends with this process.
Result<std::uint64_t> packed_size(const WorkingTree& tree, const Context& context) {
    std::error_code problem;
    fs::path folder = fs::temp_directory_path(problem);
    if (problem) folder = "/tmp";
    std::string path = (folder / "gdnctl-preview.XXXXXX").string();
    const UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "create", path, errno));
    auto size = pack_tree(tree, path, context.stop);
    fs::remove(path, problem);
    return size;
}

std::string resources_text(const std::map<std::string, double>& resources) {
    std::string out;
    for (const auto& [name, amount] : resources) out += fmt::format("{}{} {:g}", out.empty() ? "" : ", ", name, amount);
    return out.empty() ? "none asked for" : out;
}

std::string address_text(const Place& place) {
    if (place.local) return "this machine";
    return place.address ? place.address->url : "ssh tunnel to the head node of " + place.file->cluster_name;
}

Result<Preview> preview_request(const JobRequest& request, const Context& context) {
    Preview preview;
    preview.working_dir = request.working_dir_uri.empty() ? "none" : request.working_dir_uri;
    std::string uri;
    if (request.working_dir) {
        preview.working_dir = request.working_dir->root.string();
        preview.files = request.working_dir->files.size();
        GDNCTL_TRY_ASSIGN(preview.package_bytes, packed_size(*request.working_dir, context));
        uri = "gcs://_ray_pkg_<sha1>_<nonce>.zip";
    }
    GDNCTL_TRY_ASSIGN(const std::string body, preview_submission(request, uri));
    GDNCTL_TRY_ASSIGN(preview.request, parse_json(body, "the request"));
    preview.request["entrypoint"] = redact(request.entrypoint);
    return preview;
}

void put_preview(Json& object, const Place& place, const JobRequest& request, const Preview& preview) {
    object["backend"] = place.local ? "local" : "ray";
    object["cluster"] = place.cluster.empty() ? Json(nullptr) : Json(place.cluster);
    object["address"] = address_text(place);
    object["submission_id"] = request.submission_id;
    object["entrypoint"] = own_command(request.entrypoint);
    object["env_names"] = names_of(request.env);
    object["resources"] = request.resources;
    object["package"] = {{"working_dir", preview.working_dir},
                         {"files", preview.files},
                         {"size_bytes", preview.package_bytes},
                         {"limit_bytes", k_package_limit}};
    object["request"] = preview.request;
}

std::string preview_text(const Place& place, const JobRequest& request, const Preview& preview) {
    std::string out;
    const auto line = [&](std::string_view name, std::string_view value) {
        out += fmt::format("{:<12} {}\n", name, value);
    };
    line("place", fmt::format("{} ({})", place.cluster.empty() ? "ray" : place.cluster, address_text(place)));
    line("job", request.submission_id);
    line("command", own_command(request.entrypoint));
    line("resources", resources_text(request.resources));
    const std::string names = text::join(names_of(request.env), " ");
    line("environment", names.empty() ? "nothing of its own" : names);
    line("package",
         request.working_dir
             ? fmt::format("{} files of {}, {:.1f} MB of at most {:.1f} MB", preview.files, preview.working_dir,
                           static_cast<double>(preview.package_bytes) / 1e6, static_cast<double>(k_package_limit) / 1e6)
             : preview.working_dir);
    out += "POST /api/jobs/\n" + to_text(preview.request, 2) + "\n";
    return out;
}

}  // namespace

Result<ExitCode> show_preview(const JobPlan& plan, const SubmitOptions& options, const Place& place,
                              std::string_view schema, Context& context) {
    GDNCTL_TRY_ASSIGN(const JobRequest request, request_for(plan, options, !place.local, context));
    GDNCTL_TRY_ASSIGN(const Preview preview, preview_request(request, context));
    if (context.global.json) {
        Json out;
        out["schema"] = std::string(schema);
        put_preview(out, place, request, preview);
        print_json(out, context, -1);
    } else {
        context.terminal.out(preview_text(place, request, preview));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands
