#include "services/local/store.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/local/processes.h"

namespace gdnctl::local {

namespace {

tl::unexpected<Error> malformed(std::string_view what) {
    return fail(ErrorKind::bad_input, std::string(what) + " is damaged");
}

Resources resources_at(const Json& object, const char* key) {
    Resources out;
    const Json* it = json::object(object, key);
    if (it == nullptr) return out;
    for (const auto& [name, amount] : it->items()) {
        if (amount.is_number()) out.emplace(name, amount.get<double>());
    }
    return out;
}

Json identity_json(const ProcessIdentity& identity) {
    Json out;
    out["pid"] = identity.id.pid;
    out["start_ticks"] = identity.id.start_ticks;
    out["boot_id"] = identity.boot_id;
    out["pid_namespace"] = identity.pid_namespace;
    return out;
}

std::optional<ProcessIdentity> identity_at(const Json& object, const char* key) {
    const Json* it = json::object(object, key);
    if (it == nullptr) return std::nullopt;
    const auto pid = it->find("pid");
    const auto ticks = it->find("start_ticks");
    if (pid == it->end() || !pid->is_number_integer() || ticks == it->end() || !ticks->is_number_unsigned()) {
        return std::nullopt;
    }
    const auto number = pid->get<std::int64_t>();
    if (number <= 0 || number > (std::int64_t{1} << 30)) return std::nullopt;
    return ProcessIdentity{{static_cast<pid_t>(number), ticks->get<std::uint64_t>()},
                           json::text(*it, "boot_id"),
                           json::text(*it, "pid_namespace")};
}

}  // namespace

std::string to_json_text(const LocalRequest& request) {
    Json out;
    out["schema"] = "gdnctl.local-request/1";
    out["submission_id"] = request.submission_id;
    out["entrypoint"] = request.entrypoint;
    out["env_names"] = request.env_names;
    out["resources"] = request.resources;
    out["capacity"] = request.capacity;
    out["start_timeout_s"] = request.start_timeout_s;
    out["keep_workdir"] = request.keep_workdir;
    if (!request.bring_back.empty()) out["bring_back"] = request.bring_back;
    return to_text(out, 1) + "\n";
}

Result<LocalRequest> parse_request(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json in, parse_json(text, "request.json"));
    if (!in.is_object()) return malformed("request.json");
    LocalRequest request;
    request.submission_id = json::text(in, "submission_id");
    request.entrypoint = json::text(in, "entrypoint");
    request.env_names = json::texts(in, "env_names");
    request.resources = resources_at(in, "resources");
    request.capacity = resources_at(in, "capacity");
    request.start_timeout_s = json::number(in, "start_timeout_s").value_or(request.start_timeout_s);
    request.keep_workdir = json::boolean(in, "keep_workdir").value_or(request.keep_workdir);
    request.bring_back = json::text(in, "bring_back");
    if (request.submission_id.empty()) return malformed("request.json");
    return request;
}

std::string to_json_text(const SupervisorRecord& record) {
    Json out;
    out["supervisor"] = identity_json(record.supervisor);
    out["child"] = record.child ? identity_json(*record.child) : Json(nullptr);
    return to_text(out, 1) + "\n";
}

Result<SupervisorRecord> parse_supervisor(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json in, parse_json(text, "supervisor.json"));
    if (!in.is_object()) return malformed("supervisor.json");
    const auto supervisor = identity_at(in, "supervisor");
    if (!supervisor) return malformed("supervisor.json");
    return SupervisorRecord{*supervisor, identity_at(in, "child")};
}

std::string to_json_text(const std::vector<QueueEntry>& queue) {
    Json list = Json::array();
    for (const QueueEntry& entry : queue) {
        Json item;
        item["id"] = entry.id;
        item["resources"] = entry.resources;
        item["holds"] = entry.holds;
        list.push_back(std::move(item));
    }
    Json out;
    out["queue"] = std::move(list);
    return to_text(out, 1) + "\n";
}

Result<std::vector<QueueEntry>> parse_queue(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json in, parse_json(text, "queue.json"));
    if (!in.is_object()) return malformed("queue.json");
    const Json* list = json::array(in, "queue");
    if (list == nullptr) return malformed("queue.json");
    std::vector<QueueEntry> out;
    for (const Json& item : *list) {
        if (!item.is_object()) return malformed("queue.json");
        QueueEntry entry{json::text(item, "id"), resources_at(item, "resources"),
                         json::boolean(item, "holds").value_or(false)};
        // Ids are used as file names.
        if (!check_submission_id(entry.id)) return malformed("queue.json");
        out.push_back(std::move(entry));
    }
    return out;
}

bool can_ever_fit(const Resources& wanted, const Resources& capacity) {
    for (const auto& [name, amount] : wanted) {
        const auto it = capacity.find(name);
        if (amount > 0 && (it == capacity.end() || it->second < amount)) return false;
    }
    return true;
}

bool may_start(const std::vector<QueueEntry>& queue, std::string_view id, const Resources& capacity) {
    constexpr double k_rounding = 1e-9;  // fractions such as 0.001 do not add up exactly
    Resources left = capacity;
    Resources wanted_earlier;
    for (const QueueEntry& entry : queue) {
        if (entry.id == id || !entry.holds) continue;
        for (const auto& [name, amount] : entry.resources) left[name] -= amount;
    }
    for (const QueueEntry& entry : queue) {
        if (entry.id == id) {
            for (const auto& [name, amount] : entry.resources) {
                if (amount <= 0) continue;
                if (wanted_earlier.contains(name) || left[name] + k_rounding < amount) return false;
            }
            return true;
        }
        // A job that can never start here must not block others forever.
        if (entry.holds || !can_ever_fit(entry.resources, capacity)) continue;
        for (const auto& [name, amount] : entry.resources) {
            if (amount > 0) wanted_earlier[name] += amount;
        }
    }
    return true;
}

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_record_limit = std::size_t{16} << 20;
constexpr std::chrono::seconds k_lock_wait{60};
constexpr std::size_t k_keep_jobs = 200;
constexpr std::chrono::days k_keep_days{30};
constexpr std::string_view k_trash = ".old-";
constexpr std::string_view k_staging = ".new-";
constexpr std::string_view k_old_work = ".old-work", k_brought_back = "back";

Status check_private(const fs::path& folder) {
    struct stat info{};
    if (lstat(folder.c_str(), &info) != 0) return {};
    return make_private_directory(folder);
}

// Atomic, but without fsync: for state that means nothing after a reboot, and has one writer at a time.
Status replace_quickly(const fs::path& path, std::string_view bytes) {
    const fs::path temporary = path.parent_path() / (".new-" + path.filename().string());
    const UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    int problem = fd.valid() ? write_fully(fd.get(), bytes) : errno;
    if (problem == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) problem = errno;
    if (problem == 0) return {};
    unlink(temporary.c_str());
    return tl::unexpected(file_error(ErrorKind::local_io, "write", path, problem));
}

// The clock may have been set back while the job ran; keep the end after the start.
void keep_order(JobDetails& details) {
    if (details.start_time && details.end_time) details.end_time = std::max(*details.end_time, *details.start_time);
}

}  // namespace

Status Store::create() const {
    GDNCTL_TRY(make_private_directory(m_root.parent_path()));
    GDNCTL_TRY(make_private_directory(m_root));
    return make_private_directory(jobs());
}

Status Store::check() const {
    GDNCTL_TRY(check_private(m_root.parent_path()));
    GDNCTL_TRY(check_private(m_root));
    return check_private(jobs());
}

bool Store::exists(std::string_view id) const {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(job(id), ignored));
}

Result<FileLock> Store::lock() const {
    return FileLock::acquire(m_root / "lock", {std::chrono::milliseconds(k_lock_wait), m_clock, m_stop});
}

Result<JobDetails> Store::read(std::string_view id) const {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(file(id, "job.json"), k_record_limit));
    if (!text) return fail(ErrorKind::remote_missing, job_message::does_not_exist(id), "`gdnctl ray-list` shows them");
    auto details = parse_job_details(*text);
    if (!details || !is_known(details->state)) return tl::unexpected(unreadable_record(id, *text));
    details->submission_id = id;
    return details;
}

Error Store::unreadable_record(std::string_view id, const std::string& text) const {
    const auto json = parse_json(text, "job.json");
    if (json && json->is_object() && json->contains("status")) {
        return {ErrorKind::local_io,
                "the record of job " + std::string(id) + " has a format that this version does not know",
                "use the gdnctl that submitted it, or a newer one",
                {}};
    }
    return {ErrorKind::local_io,
            "the record of job " + std::string(id) + " is damaged",
            "remove " + job(id).string() + " when nothing of it runs any more",
            {}};
}

Status Store::write(const JobDetails& details) const {
    return atomic_replace(file(details.submission_id, "job.json"), to_text(job_details_json(details), 1) + "\n", 0600);
}

Result<LocalRequest> Store::read_request(std::string_view id) const {
    GDNCTL_TRY_ASSIGN(const std::string text,
                      read_file(file(id, "request.json"), {k_record_limit, ErrorKind::local_io}));
    return parse_request(text);
}

Result<std::optional<SupervisorRecord>> Store::read_supervisor(std::string_view id) const {
    const auto text = read_file_if_exists(file(id, "supervisor.json"), k_record_limit);
    if (!text && text.error().kind == ErrorKind::local_io) return tl::unexpected(text.error());
    if (!text || !*text) return std::nullopt;
    auto record = parse_supervisor(**text);
    return record ? std::optional(std::move(*record)) : std::nullopt;
}

bool Store::is_looked_after(std::string_view id) const {
    const auto record = read_supervisor(id);
    if (!record) return true;
    if (*record) return is_alive((*record)->supervisor);
    return !processes_with_mark(supervisor_mark(job(id)), all_processes()).empty();
}

Status Store::write_supervisor(std::string_view id, const SupervisorRecord& record) const {
    return replace_quickly(file(id, "supervisor.json"), to_json_text(record));
}

std::vector<std::string> Store::ids() const {
    std::vector<std::string> out;
    std::error_code problem;
    for (fs::directory_iterator it(jobs(), problem), end; !problem && it != end; it.increment(problem)) {
        const std::string name = it->path().filename().string();
        if (check_submission_id(name)) out.push_back(name);
    }
    std::sort(out.begin(), out.end());
    return out;
}

Result<JobDetails> Store::settle(std::string_view id) const {
    GDNCTL_TRY_ASSIGN(JobDetails details, read(id));
    if (is_terminal(details.state)) return details;
    GDNCTL_TRY_ASSIGN(const auto record, read_supervisor(id));
    if (is_looked_after(id)) return details;
    const auto child = record ? record->child : std::nullopt;
    end_orphans(job(id), child, *m_clock);
    details.state = JobState::failed;
    details.error_type = std::string(job_error::k_died);
    details.message = "Job supervisor actor died: local supervisor " +
                      (record ? std::to_string(record->supervisor.id.pid) : std::string("process")) + " is gone";
    details.end_time = m_clock->wall();
    keep_order(details);
    GDNCTL_TRY(finish(details));
    const auto request = read_request(id);
    if (request && !request->keep_workdir) remove_workdir(id);
    return details;
}

Status Store::finish(JobDetails details) const {
    GDNCTL_TRY_ASSIGN(const JobDetails before, read(details.submission_id));
    keep_order(details);
    if (!is_terminal(before.state)) GDNCTL_TRY(write(details));
    auto entries = queue();
    const auto mine = [&](const QueueEntry& entry) { return entry.id == details.submission_id; };
    if (std::erase_if(entries, mine) > 0) return write_queue(entries);
    return {};
}

std::vector<QueueEntry> Store::rebuilt_queue() const {
    std::vector<std::pair<WallTime, QueueEntry>> found;
    for (const std::string& id : ids()) {
        const auto details = read(id);
        if (!details || is_terminal(details->state)) continue;
        const auto request = read_request(id);
        if (!request || request->resources.empty()) continue;
        found.emplace_back(details->start_time.value_or(WallTime{}),
                           QueueEntry{id, request->resources, details->state == JobState::running});
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<QueueEntry> out;
    for (auto& [time, entry] : found) out.push_back(std::move(entry));
    return out;
}

std::optional<std::vector<QueueEntry>> Store::peek_queue() const {
    const auto text = read_file_if_exists(m_root / "queue.json", k_record_limit);
    if (!text || !*text) return std::nullopt;
    auto parsed = parse_queue(**text);
    return parsed ? std::optional(std::move(*parsed)) : std::nullopt;
}

std::vector<QueueEntry> Store::queue() const {
    auto entries = peek_queue();
    return entries ? std::move(*entries) : rebuilt_queue();
}

bool Store::settle_queued(std::string_view id) const {
    const auto details = settle(id);
    if (details && !is_terminal(details->state)) return false;
    auto entries = queue();
    if (std::erase_if(entries, [&](const QueueEntry& entry) { return entry.id == id; }) == 0) return true;
    return write_queue(entries).has_value();
}

Status Store::write_queue(const std::vector<QueueEntry>& queue) const {
    return replace_quickly(m_root / "queue.json", to_json_text(queue));
}

void Store::remove_folder(const fs::path& folder) const {
    std::error_code problem;
    fs::remove_all(folder, problem);
    if (problem) log::debug("cannot remove {}: {}", folder.string(), problem.message());
}

void Store::bring_back(const LocalRequest& request) const {
    if (request.bring_back.empty() || request.keep_workdir) return;
    const fs::path folder = file(request.submission_id, k_brought_back);
    std::error_code problem;
    fs::create_directory(folder, problem);
    fs::rename(file(request.submission_id, "work") / request.bring_back,
               folder / fs::path(request.bring_back).filename(), problem);
    if (problem) log::debug("cannot keep {}: {}", request.bring_back, problem.message());
}

std::optional<fs::path> Store::brought_back(std::string_view id) const {
    const auto request = read_request(id);
    if (!request || request->bring_back.empty()) return std::nullopt;
    const fs::path path = request->keep_workdir ? file(id, "work") / request->bring_back
                                                : file(id, k_brought_back) / fs::path(request->bring_back).filename();
    std::error_code ignored;
    return fs::exists(path, ignored) ? std::optional(path) : std::nullopt;
}

void Store::remove_workdir(std::string_view id) const {
    const fs::path trash = file(id, k_old_work);
    std::error_code problem;
    remove_folder(trash);
    fs::rename(file(id, "work"), trash, problem);
    if (!problem) remove_folder(trash);
}

// The supervisor, or the process that settled the job, may have been killed between writing the last record and
// cleaning up.
void Store::finish_removal(std::string_view id) const {
    std::error_code ignored;
    if (fs::exists(file(id, k_old_work), ignored)) remove_folder(file(id, k_old_work));
    if (!fs::exists(file(id, "work"), ignored)) return;
    const auto request = read_request(id);
    if (request && !request->keep_workdir && !is_looked_after(id)) remove_workdir(id);
}

void Store::prune() const {
    struct Ended {
        WallTime end;
        std::string id;
    };
    std::error_code problem;
    std::vector<fs::path> left_over;
    for (fs::directory_iterator it(jobs(), problem), end; !problem && it != end; it.increment(problem)) {
        const std::string name = it->path().filename().string();
        if (name.starts_with(k_trash)) left_over.push_back(it->path());
        if (!name.starts_with(k_staging)) continue;
        // .new-PID-TICKS-NUMBER: its submitter is still working on it, or was killed.
        const auto parts = text::split(name, '-');
        const auto pid = parts.size() > 3 ? text::parse_int(parts[1]) : std::nullopt;
        const auto info = pid ? process_info(static_cast<pid_t>(*pid)) : std::nullopt;
        if (!info || std::to_string(info->id.start_ticks) != parts[2]) left_over.push_back(it->path());
    }
    for (const fs::path& folder : left_over) remove_folder(folder);

    const WallTime oldest = m_clock->wall() - k_keep_days;
    std::vector<Ended> ended;
    for (const std::string& id : ids()) {
        const auto details = read(id);
        if (!details || !is_terminal(details->state)) continue;
        ended.push_back({details->end_time.value_or(WallTime{}), id});
    }
    std::sort(ended.begin(), ended.end(), [](const Ended& a, const Ended& b) { return a.end > b.end; });
    for (std::size_t i = 0; i < ended.size(); ++i) {
        if (i < k_keep_jobs && ended[i].end >= oldest) {
            finish_removal(ended[i].id);
            continue;
        }
        const fs::path trash = jobs() / (std::string(k_trash) + ended[i].id);
        fs::rename(job(ended[i].id), trash, problem);
        if (!problem) remove_folder(trash);
    }
}

}  // namespace gdnctl::local
