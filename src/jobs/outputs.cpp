#include "jobs/outputs.h"

#include <set>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/http.h"
#include "platform/http_policy.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/cluster/tunnel.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

using std::chrono::milliseconds;

constexpr std::string_view k_archive = "outputs.tar.zst";

std::string size_text(std::uint64_t bytes) {
    if (bytes < 1'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
    return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

// ---- archives

tl::unexpected<Error> unsafe_member(std::string_view line) {
    return fail(ErrorKind::local_io, "unsafe path in the archive of outputs: " + text::visible(line),
                "nothing was unpacked");
}

bool leaves(const fs::path& path) {
    const fs::path normal = path.lexically_normal();
    return path.is_absolute() || normal.empty() || *normal.begin() == "..";
}

// One line of `tar --list --verbose`: "lrwxrwxrwx 0/0 0 2026-11-28 03:15:00 name -> target". Links into the folder are
// fine, but nothing may come to lie behind one.
Status check_member(std::string_view line, std::set<fs::path>& links) {
    if (std::string_view("-dlh").find(line.front()) == std::string_view::npos) return unsafe_member(line);
    std::string_view rest = line;
    for (int field = 0; field < 5; ++field) {
        const std::size_t blank = rest.find(' ');
        if (blank == std::string_view::npos) return unsafe_member(line);
        rest.remove_prefix(blank);
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    }
    const bool symbolic = line.starts_with('l'), hard = line.starts_with('h');
    const std::string_view arrow = symbolic ? " -> " : hard ? " link to " : "";
    const std::size_t end = arrow.empty() ? rest.size() : rest.find(arrow);
    if (end == std::string_view::npos) return unsafe_member(line);
    const fs::path name(rest.substr(0, end));
    if (leaves(name)) return unsafe_member(line);
    for (const fs::path& part : name) {
        if (part == "..") return unsafe_member(line);
    }
    for (fs::path at = name.lexically_normal().parent_path(); !at.empty() && at != "."; at = at.parent_path()) {
        if (links.contains(at)) return unsafe_member(line);
    }
    if (arrow.empty()) return {};
    const fs::path target(rest.substr(end + arrow.size()));
    if (target.is_absolute() || leaves(symbolic ? name.parent_path() / target : target)) {
        return unsafe_member(line);
    }
    if (symbolic) links.insert(name.lexically_normal());
    return {};
}

Result<ProcessResult> run_tar(std::vector<std::string> words, Context& context) {
    ProcessSpec spec;
    spec.argv = {"tar", "--zstd"};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.env = {{"LC_ALL", "C"}, {"TZ", "UTC"}, {"TAR_OPTIONS", std::nullopt}};
    spec.capture_limit = std::size_t{64} << 20;
    spec.stop = context.stop;
    GDNCTL_TRY_ASSIGN(ProcessResult result, context.process.run(spec));
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    return result;
}

// True: unpacked. False: there is no program for that.
Result<bool> unpack(const fs::path& archive, const fs::path& folder, Context& context) {
    const auto listed = run_tar({"--list", "--verbose", "--numeric-owner", "--quoting-style=escape", "--absolute-names",
                                 "--file", archive.string()},
                                context);
    if (!listed && listed.error().kind != ErrorKind::local_io) return tl::unexpected(listed.error());
    if (!listed || listed->err.find("annot exec") != std::string::npos) return false;
    const auto failed = [&](const ProcessResult& tar) {
        return fail(ErrorKind::bad_input,
                    "tar cannot unpack the outputs: " + text::visible(text::trim(tar.err).substr(0, 400)));
    };
    if (!listed->ok() || listed->out_truncated) return failed(*listed);
    std::set<fs::path> links;
    for (const std::string_view line : text::split(listed->out, '\n')) {
        if (!line.empty()) GDNCTL_TRY(check_member(line, links));
    }
    GDNCTL_TRY_ASSIGN(const ProcessResult tar, run_tar({"--extract", "--no-same-owner", "--no-same-permissions",
                                                        "--file", archive.string(), "--directory", folder.string()},
                                                       context));
    if (!tar.ok()) return failed(tar);
    return true;
}

// ---- places

// The API of Google Cloud Storage; another one for tests.
Result<std::string> storage_url(const Env& env) {
    const auto given = env.get("GDNCTL_GOOGLE_STORAGE_URL");
    if (!given || given->empty()) return std::string("https://storage.googleapis.com");
    const auto url = http::parse_url(*given);
    if (url && http::is_confidential(*url)) return *given;
    return fail(ErrorKind::usage, "GDNCTL_GOOGLE_STORAGE_URL must be https, or an address of this machine");
}

// "gs://bucket/object" into a file.
Status download(const std::string& uri, const fs::path& into, Context& context) {
    const std::string_view rest = std::string_view(uri).substr(5);
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos || slash == 0) return fail(ErrorKind::bad_input, "not an object: " + uri);
    GDNCTL_TRY_ASSIGN(const std::string base, storage_url(context.env));
    GDNCTL_TRY_ASSIGN(const std::string printed,
                      cluster::run_gcloud({&context.process, context.stop}, {"auth", "print-access-token"},
                                          "get an access token for " + uri));
    const std::string token(text::trim(printed));
    register_secret(token);
    HttpRequest request;
    request.url = fmt::format("{}/storage/v1/b/{}/o/{}?alt=media", base, text::percent_encode(rest.substr(0, slash)),
                              text::percent_encode(rest.substr(slash + 1)));
    request.secret_headers.emplace_back("Authorization", "Bearer " + token);
    request.to_file = into;
    request.retry.attempts = 5;
    request.stop = context.stop;
    GDNCTL_TRY_ASSIGN(const HttpResponse answer, context.http.send(request));
    if (answer.status == 200) return {};
    const ErrorKind kind = answer.status == 401 || answer.status == 403 ? ErrorKind::authentication
                           : answer.status == 404                       ? ErrorKind::remote_missing
                                                                        : ErrorKind::infrastructure;
    return fail(kind, fmt::format("cannot fetch {}: Google Cloud Storage returned {}", uri, answer.status),
                answer.status == 404 ? "outputs are deleted after some days" : "");
}

Status copy_folder(const fs::path& from, const fs::path& into) {
    std::error_code problem;
    fs::copy(from, into,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing | fs::copy_options::copy_symlinks,
             problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", from, problem.value()));
    return {};
}

Status check_hash(const StoredOutput& output, const fs::path& archive) {
    if (output.sha256.empty()) return {};
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_file_hex(HashKind::sha256, archive));
    if (hash == text::to_lower(output.sha256)) return {};
    return fail(ErrorKind::conflict, fmt::format("{} has another SHA-256 than recorded: {}", output.uri, hash),
                "nothing was unpacked");
}

Status fetch_one(const StoredOutput& output, const fs::path& folder, Context& context) {
    constexpr std::string_view k_file = "file://";
    std::error_code problem;
    fs::create_directories(folder, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", folder, problem.value()));
    GDNCTL_TRY_ASSIGN(const TempFolder scratch, TempFolder::make(folder, ".gdnctl-outputs"));
    fs::path archive = scratch.path() / k_archive;
    if (output.uri.starts_with(k_file)) {
        archive = output.uri.substr(k_file.size());
        if (fs::is_directory(archive, problem)) return copy_folder(archive, folder);
    } else if (output.uri.starts_with("gs://")) {
        GDNCTL_TRY(download(output.uri, archive, context));
    } else {
        return fail(ErrorKind::usage, "outputs at " + text::visible(output.uri) + " cannot be fetched");
    }
    GDNCTL_TRY(check_hash(output, archive));
    GDNCTL_TRY_ASSIGN(const bool unpacked, unpack(archive, folder, context));
    if (unpacked) return {};
    const fs::path kept = folder / k_archive;
    fs::copy_file(archive, kept, fs::copy_options::overwrite_existing, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", archive, problem.value()));
    log::warning("tar or zstd is missing: the outputs are kept as {}", kept.string());
    log::warning("hint: `apt-get install tar zstd; tar --zstd -xf {} -C {}`", kept.string(), folder.string());
    return {};
}

// Where a task's outputs go: nothing for a task of the job itself, "child" for one of a child job.
std::string child_of(const std::string& job_id, const std::string& task) {
    const std::string job = task.substr(0, task.rfind('/'));
    return !job_id.empty() && job.starts_with(job_id + "/") ? job.substr(job_id.size() + 1) : std::string();
}

}  // namespace

std::vector<StoredOutput> outputs_of(JobBackend& backend, std::string_view id) {
    auto outputs = backend.outputs(id);
    if (outputs) return std::move(*outputs);
    log::warning("the outputs of job {} are not known: {}", id, outputs.error().text());
    return {};
}

void ask_for_cause(JobBackend& backend, JobDetails& details) {
    if (details.state != JobState::failed || details.job_id.empty() || !details.root_cause.empty()) return;
    if (auto again = backend.details(details.submission_id)) details.root_cause = std::move(again->root_cause);
}

void show_job_end(const JobDetails& details, const std::vector<StoredOutput>& outputs) {
    if (!details.root_cause.empty()) log::info("cause, says Iris: {}", text::visible_line(details.root_cause.back()));
    for (const StoredOutput& one : outputs) {
        if (one.state == StoredOutput::State::uploaded) {
            log::info("outputs: {} ({})", text::visible(one.uri), size_text(one.bytes));
        } else {
            log::warning("the outputs of {} were not stored ({}{})", text::visible(one.task), to_text(one.state),
                         one.error.empty() ? "" : ": " + text::visible(one.error));
        }
    }
}

Status fetch_outputs(const JobDetails& details, const std::vector<StoredOutput>& outputs, const fs::path& folder,
                     Context& context) {
    bool fetched = false;
    for (const StoredOutput& one : outputs) {
        if (one.state != StoredOutput::State::uploaded) continue;
        const fs::path into = (folder / child_of(details.job_id, one.task)).lexically_normal();
        GDNCTL_TRY(fetch_one(one, into, context));
        log::info("outputs are in {}", into.string());
        fetched = true;
    }
    if (!fetched) log::info("the job stored no outputs");
    return {};
}

}  // namespace gdnctl
