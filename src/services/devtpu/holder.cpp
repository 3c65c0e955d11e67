#include "services/devtpu/holder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base64.h"
#include "core/json.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "services/devtpu/holds.h"
#include "services/devtpu/host_connection.h"

namespace gdnctl::devtpu {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t k_year_s = 366LL * 24 * 3600;
constexpr std::chrono::minutes k_ahead{5};

constexpr std::array<std::pair<HoldEnd, std::string_view>, 4> k_ends = {{{HoldEnd::stop, "stop"},
                                                                         {HoldEnd::lease, "lease"},
                                                                         {HoldEnd::max_hold, "max-hold"},
                                                                         {HoldEnd::preempted, "preempted"}}};

void read_term(const std::map<std::string, std::string>& metadata, const char* key, std::int64_t& term) {
    const auto it = metadata.find(key);
    if (it == metadata.end()) return;
    const auto value = text::parse_int(it->second);
    if (value && *value > 0 && *value <= k_year_s) term = *value;
}

}  // namespace

Status check_terms(const Terms& terms) {
    const std::array<std::pair<const char*, std::int64_t>, 3> all = {
        {{"--lease", terms.lease_s}, {"--grace", terms.grace_s}, {"--max-hold", terms.max_hold_s}}};
    for (const auto& [option, value] : all) {
        if (value < 1 || value > k_year_s) {
            return fail(ErrorKind::usage, fmt::format("{} {}: expected 1 or more seconds", option, value));
        }
    }
    return {};
}

milliseconds heartbeat_interval(const Terms& terms) {
    return std::min<milliseconds>(seconds(30), milliseconds(seconds(terms.lease_s)) / 4);
}

void put_terms(std::map<std::string, std::string>& metadata, const Terms& terms) {
    metadata["lease_s"] = std::to_string(terms.lease_s);
    metadata["grace_s"] = std::to_string(terms.grace_s);
    metadata["max_hold_s"] = std::to_string(terms.max_hold_s);
}

Terms terms_of(const std::map<std::string, std::string>& metadata) {
    Terms terms;
    read_term(metadata, "lease_s", terms.lease_s);
    read_term(metadata, "grace_s", terms.grace_s);
    read_term(metadata, "max_hold_s", terms.max_hold_s);
    return terms;
}

WallTime lease_end(const Terms& terms, WallTime created, std::optional<WallTime> renewed) {
    const WallTime end = renewed ? *renewed + seconds(terms.lease_s) : created + seconds(terms.grace_s);
    return std::min(end, cap_end(terms, created));
}

WallTime cap_end(const Terms& terms, WallTime created) { return created + seconds(terms.max_hold_s); }

std::string_view to_text(HoldEnd end) {
    for (const auto& [value, name] : k_ends) {
        if (value == end) return name;
    }
    return "stop";
}

std::optional<HoldEnd> parse_hold_end(std::string_view text) {
    for (const auto& [value, name] : k_ends) {
        if (name == text) return value;
    }
    return std::nullopt;
}

void LeaseWatch::see(std::optional<WallTime> modified, WallTime wall, Clock::Monotonic now) {
    if (!modified) return;
    const bool first = !m_modified;
    if (m_modified == modified) return;
    m_modified = modified;
    if (first || *modified > wall + k_ahead) return;
    const auto age = std::max(wall - *modified, milliseconds(0));
    const Clock::Monotonic at = now - age;
    m_renewed = m_renewed ? std::max(*m_renewed, at) : at;
}

std::optional<HoldEnd> LeaseWatch::over(Clock::Monotonic now) const {
    if (now - m_start >= seconds(m_terms.max_hold_s)) return HoldEnd::max_hold;
    const bool lapsed =
        m_renewed ? now - *m_renewed >= seconds(m_terms.lease_s) : now - m_start >= seconds(m_terms.grace_s);
    return lapsed ? std::optional(HoldEnd::lease) : std::nullopt;
}

namespace {

constexpr std::size_t k_line_limit = std::size_t{64} << 10;

using Field = std::pair<const char*, std::string HostInfo::*>;
constexpr std::array<Field, 11> k_fields = {{{"hostname", &HostInfo::hostname},
                                             {"ip_address", &HostInfo::ip_address},
                                             {"username", &HostInfo::username},
                                             {"tpu_name", &HostInfo::tpu_name},
                                             {"gcloud_tpu_name", &HostInfo::gcloud_tpu_name},
                                             {"gcloud_zone", &HostInfo::gcloud_zone},
                                             {"gcloud_region", &HostInfo::gcloud_region},
                                             {"gcloud_project", &HostInfo::gcloud_project},
                                             {"tpu_type", &HostInfo::tpu_type},
                                             {"error", &HostInfo::error},
                                             {"node_ip", &HostInfo::node_ip}}};

std::optional<Json> object_after(std::string_view line, std::string_view marker) {
    if (!line.starts_with(marker)) return std::nullopt;
    auto json = parse_json(text::trim(line.substr(marker.size())), "holder's line");
    if (!json || !json->is_object()) return std::nullopt;
    return std::move(*json);
}

}  // namespace

Json host_info_json(const HostInfo& host) {
    Json out;
    for (const auto& [key, member] : k_fields) out[key] = host.*member;
    out["pid"] = host.pid;
    out["accel_count"] = host.accel_count;
    return out;
}

HostInfo host_info_of(const Json& object) {
    HostInfo host;
    if (!object.is_object()) return host;
    for (const auto& [key, member] : k_fields) {
        if (auto word = json::maybe_text(object, key)) host.*member = std::move(*word);
    }
    host.pid = json::integer(object, "pid").value_or(0);
    host.accel_count = json::integer(object, "accel_count").value_or(0);
    return host;
}

std::optional<HostInfo> parse_host_line(std::string_view line) {
    const auto object = object_after(line, k_host_marker);
    return object ? std::optional(host_info_of(*object)) : std::nullopt;
}

std::optional<HoldEnd> parse_released_line(std::string_view line) {
    const auto object = object_after(line, k_released_marker);
    if (!object) return std::nullopt;
    const auto reason = json::maybe_text(*object, "reason");
    return reason ? parse_hold_end(*reason) : std::nullopt;
}

void HolderLog::feed(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        if (m_partial.size() < k_line_limit) m_partial.append(bytes.substr(0, end));
        if (end == std::string_view::npos) return;
        if (auto host = parse_host_line(m_partial); host && !m_host) m_host = std::move(host);
        if (const auto over = parse_released_line(m_partial)) m_end = over;
        m_partial.clear();
        bytes.remove_prefix(end + 1);
    }
}

Zone parse_zone(std::string_view metadata_value) {
    const std::string_view value = text::trim(metadata_value);
    const std::size_t slash = value.rfind('/');
    if (slash == std::string_view::npos) return {};
    Zone out;
    out.zone = std::string(value.substr(slash + 1));
    const std::size_t dash = out.zone.rfind('-');
    if (dash != std::string::npos && dash > 0) out.region = out.zone.substr(0, dash);
    return out;
}

// Threads ask the metadata server, so that one that never answers, or only slowly, delays nothing by more than 5 s and
// the lease not at all. A redirect is refused, since the server belongs to the machine. The clock is monotonic, as in
// LeaseWatch, which implements the same rule. A marker is written by itself, because a scheduler may hand on only the
// first line of each write at once.
const std::string_view k_holder_script = R"py(
import glob, json, os, re, signal, socket, stat, sys, threading, time, urllib.request
E = os.environ.get
BASE = E("GDNCTL_METADATA_BASE") or "http://metadata.google.internal/computeMetadata/v1"
LEASE, GRACE, CAP = (float(E("GDNCTL_HOLD_" + n)) for n in ("LEASE_S", "GRACE_S", "MAX_S"))
FILE = "/tmp/gdnctl-hold/" + E("GDNCTL_HOLD_ID")

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *a):
        return None

PLAIN = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
over = []
end = over.append

def fetch(path, box):
    try:
        request = urllib.request.Request(BASE + path, headers={"Metadata-Flavor": "Google"})
        with PLAIN.open(request, timeout=5) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise ValueError("HTML")
            text = answer.read(4096).decode("utf-8", "replace").strip()
            if len(text) > 512 or any(ord(c) < 32 for c in text):
                raise ValueError("not one line of text")
            box.append((text, None))
    except Exception as e:
        box.append(("", "%s: %s" % (path, getattr(e, "code", None) or e)))

def ask(paths):
    boxes = [[] for p in paths]
    threads = [threading.Thread(target=fetch, args=(p, b), daemon=True) for p, b in zip(paths, boxes)]
    for t in threads:
        t.start()
    limit = time.monotonic() + 5
    for t in threads:
        t.join(max(0, limit - time.monotonic()))
    return [b[0] if b else ("", p + ": no answer in 5 s") for p, b in zip(paths, boxes)]

def lease_file():
    try:
        os.mkdir("/tmp/gdnctl-hold", 0o1777)
        os.chmod("/tmp/gdnctl-hold", 0o1777)
    except FileExistsError:
        pass
    fd = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    os.fchmod(fd, 0o666)
    os.close(fd)

def touched():
    try:
        found = os.lstat(FILE)
        return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else None
    except OSError:
        return None

def say(word, value):
    sys.stdout.write("\n")
    sys.stdout.flush()
    time.sleep(0.2)
    sys.stdout.write("%s %s\n" % (word, json.dumps(value)))
    sys.stdout.flush()

def node_ip():
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect(("192.0.2.1", 9))
        return s.getsockname()[0]
    except OSError:
        return "127.0.0.1"

def host_info():
    a = ask(["/instance/network-interfaces/0/access-configs/0/external-ip", "/instance/network-interfaces/0/ip",
             "/instance/attributes/instance-id", "/instance/zone", "/instance/attributes/accelerator-type",
             "/project/project-id"])
    values = [v for v, e in a]
    bad = "; ".join(e for v, e in a[:5] if e)
    address = r"^[0-9A-Fa-f.:]+$"
    outside, inside = (v if re.match(address, v) else "" for v in values[:2])
    name = values[2] if re.match(r"^[A-Za-z0-9._-]+$", values[2]) else ""
    zone = values[3].rsplit("/", 1)[-1] if re.match(r"^projects/[^/]+/zones/[a-z0-9-]+$", values[3]) else ""
    project = values[5] if re.match(r"^[a-z][a-z0-9.:-]*$", values[5]) else ""
    kind = values[4] if re.match(r"^v\d+[a-zA-Z]*-\d+$", values[4]) else ""
    chips = len(glob.glob("/dev/accel*")) or len([p for p in glob.glob("/dev/vfio/*") if p[10:].isdigit()])
    return {"hostname": socket.gethostname(), "ip_address": outside or inside, "username": E("GDNCTL_HOLD_USER") or "",
            "tpu_name": E("GDNCTL_HOLD_NAME"), "gcloud_tpu_name": name, "gcloud_zone": zone,
            "gcloud_region": zone.rpartition("-")[0], "gcloud_project": project,
            "tpu_type": E("GDNCTL_HOLD_TYPE") or kind, "error": bad, "node_ip": node_ip(), "pid": os.getpid(), "accel_count": chips}

def watch_preemption():
    while not over:
        if ask(["/instance/preempted"])[0][0].upper() == "TRUE":
            return end("preempted")
        time.sleep(2)

signal.signal(signal.SIGTERM, lambda *a: end("stop"))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
start = time.monotonic()
try:
    lease_file()
except OSError as e:
    sys.stdout.write("lease file: %s\n" % e)
seen, renewed = touched(), None
if not over:
    say("GDNCTL_HOST_INFO", host_info())
threading.Thread(target=watch_preemption, daemon=True).start()
tick = min(0.2, LEASE / 4)
while not over:
    time.sleep(tick)
    now, mark = time.monotonic(), touched()
    if mark is not None and mark != seen:
        seen, age = mark, time.time() - mark / 1e9
        if age > -300:
            renewed = max(renewed or 0, now - max(age, 0))
    if now - start >= CAP:
        end("max-hold")
    elif now - (start if renewed is None else renewed) >= (GRACE if renewed is None else LEASE):
        end("lease")
for path in ["/tmp/libtpu_lockfile", FILE] + glob.glob(FILE + ".*"):
    try:
        os.unlink(path)
    except OSError:
        pass
say("GDNCTL_RELEASED", {"reason": over[0]})
os._exit(0)
)py";

namespace {

std::string python(std::string_view script) {
    return fmt::format("exec python3 -c \"import base64;exec(base64.b64decode('{}').decode())\"", to_base64(script));
}

JobRequest common_job(const HolderRequest& request) {
    JobRequest job;
    job.submission_id = request.submission_id;
    job.resources = request.resources;
    job.metadata = {{"kind", std::string(k_hold_kind)},
                    {"tpu_name", request.tpu_name},
                    {"tpu_type", request.tpu_type},
                    {"user", request.user},
                    {"host", request.host},
                    {"nonce", request.nonce}};
    put_terms(job.metadata, request.terms);
    job.env = {{"GDNCTL_HOLD_ID", request.submission_id},
               {"GDNCTL_HOLD_NAME", request.tpu_name},
               {"GDNCTL_HOLD_TYPE", request.tpu_type},
               {"GDNCTL_HOLD_USER", request.ssh_user},
               {"GDNCTL_HOLD_LEASE_S", std::to_string(request.terms.lease_s)},
               {"GDNCTL_HOLD_GRACE_S", std::to_string(request.terms.grace_s)},
               {"GDNCTL_HOLD_MAX_S", std::to_string(request.terms.max_hold_s)},
               {"RAY_JOB_STOP_WAIT_TIME_S", "10"}};
    job.start_timeout = request.start_timeout;
    if (request.metadata_base) job.env.push_back({std::string(k_metadata_variable), *request.metadata_base});
    return job;
}

}  // namespace

JobRequest holder_job(const HolderRequest& request) {
    JobRequest job = common_job(request);
    job.entrypoint = python(k_holder_script);
    return job;
}

JobRequest local_holder_job(const HolderRequest& request, std::string_view self, const std::filesystem::path& lease) {
    JobRequest job = common_job(request);
    job.entrypoint = fmt::format("exec {} {}", text::shell_quote(self), k_local_holder_word);
    job.env.push_back({"GDNCTL_HOLD_FILE", lease.string()});
    return job;
}

JobRequest heartbeat_job(std::string_view submission_id, std::string_view heartbeat_id, std::string_view record) {
    JobRequest job;
    job.submission_id = heartbeat_id;
    job.beside = submission_id;
    job.metadata = {{"kind", "beat"}, {"hold", std::string(submission_id)}};
    job.entrypoint = touch_line(lease_path(submission_id), record);
    return job;
}

namespace fs = std::filesystem;

namespace {

constexpr milliseconds k_tick{200};
constexpr seconds k_ask_limit{5};
constexpr seconds k_silence{30};
constexpr std::size_t k_answer_limit = 512;

std::optional<WallTime> modified(const fs::path& file) {
    struct stat info{};
    if (lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
    return WallTime(std::chrono::duration_cast<milliseconds>(seconds(info.st_mtim.tv_sec) +
                                                             std::chrono::nanoseconds(info.st_mtim.tv_nsec)));
}

void say(std::ostream& out, std::string_view marker, const Json& value) {
    out << '\n' << marker << gdnctl::to_text(value) << '\n' << std::flush;
}

std::int64_t count_accelerators() {
    std::int64_t accel = 0, vfio = 0;
    std::error_code problem;
    for (fs::directory_iterator it("/dev", problem), end; !problem && it != end; it.increment(problem)) {
        if (it->path().filename().string().starts_with("accel")) ++accel;
    }
    for (fs::directory_iterator it("/dev/vfio", problem), end; !problem && it != end; it.increment(problem)) {
        if (text::parse_int(it->path().filename().string())) ++vfio;
    }
    return accel > 0 ? accel : vfio;
}

// The machine's metadata server. If it does not answer, it is not asked again for a while.
class Metadata {
public:
    Metadata(std::string base, Http& http, Clock& clock, std::stop_token stop)
        : m_base(std::move(base)), m_http(http), m_clock(clock), m_stop(std::move(stop)) {}

    std::string ask(std::string_view path) {
        if (m_base.empty() || m_clock.monotonic() < m_silent_until) return {};
        HttpRequest request;
        request.url = m_base + std::string(path);
        request.headers = {{"Metadata-Flavor", "Google"}};
        request.connect_timeout = request.first_byte_timeout = request.total_timeout = k_ask_limit;
        request.stop = m_stop;
        const auto answer = m_http.send(request);
        if (!answer) {
            m_silent_until = m_clock.monotonic() + k_silence;
            return note(path, answer.error().text());
        }
        const std::string value(text::trim(answer->body));
        const bool html = answer->header("content-type").value_or("").starts_with("text/html");
        if (answer->status != 200) return note(path, std::to_string(answer->status));
        const bool plain = !html && value.size() <= k_answer_limit && value.find('\n') == std::string::npos;
        return plain ? value : note(path, "not one line of text");
    }
    const std::string& problems() const { return m_problems; }

private:
    std::string note(std::string_view path, std::string_view what) {
        m_problems += (m_problems.empty() ? "" : "; ") + std::string(path) + ": " + std::string(what);
        return {};
    }

    std::string m_base;
    Http& m_http;
    Clock& m_clock;
    std::stop_token m_stop;
    Clock::Monotonic m_silent_until;
    std::string m_problems;
};

HostInfo host_of(const Env& env, Metadata& metadata) {
    HostInfo host;
    host.hostname = host_name().value_or("");
    host.username = env.get("GDNCTL_HOLD_USER").value_or("");
    host.tpu_name = env.get("GDNCTL_HOLD_NAME").value_or("");
    host.tpu_type = env.get("GDNCTL_HOLD_TYPE").value_or("");
    host.node_ip = "127.0.0.1";
    host.ip_address = metadata.ask("/instance/network-interfaces/0/access-configs/0/external-ip");
    if (host.ip_address.empty()) host.ip_address = metadata.ask("/instance/network-interfaces/0/ip");
    host.gcloud_tpu_name = metadata.ask("/instance/attributes/instance-id");
    const Zone zone = parse_zone(metadata.ask("/instance/zone"));
    host.gcloud_zone = zone.zone;
    host.gcloud_region = zone.region;
    host.error = metadata.problems();
    host.pid = getpid();
    host.accel_count = count_accelerators();
    return host;
}

Terms terms_from(const Env& env) {
    std::map<std::string, std::string> words;
    for (const auto& [variable, key] :
         {std::pair{"GDNCTL_HOLD_LEASE_S", "lease_s"}, std::pair{"GDNCTL_HOLD_GRACE_S", "grace_s"},
          std::pair{"GDNCTL_HOLD_MAX_S", "max_hold_s"}}) {
        if (const auto value = env.get(variable)) words[key] = *value;
    }
    return terms_of(words);
}

}  // namespace

int run_local_holder(const Env& env, Http& http, Clock& clock, std::ostream& out, std::stop_token stop) {
    const fs::path file = env.get("GDNCTL_HOLD_FILE").value_or("");
    const Terms terms = terms_from(env);
    LeaseWatch watch(terms, clock.monotonic());
    const UniqueFd lease(open(file.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!lease.valid()) {
        out << file_error(ErrorKind::local_io, "create", file, errno).message << std::endl;
        return 1;
    }
    watch.see(modified(file), clock.wall(), clock.monotonic());
    Metadata metadata(env.get(k_metadata_variable).value_or(""), http, clock, stop);
    say(out, k_host_marker, host_info_json(host_of(env, metadata)));
    std::optional<HoldEnd> end;
    auto asked = clock.monotonic();
    while (!end) {
        if (!clock.sleep_for(k_tick, stop)) end = HoldEnd::stop;
        const auto now = clock.monotonic();
        watch.see(modified(file), clock.wall(), now);
        if (!end) end = watch.over(now);
        if (!end && now - asked >= seconds(1)) {
            asked = now;
            if (metadata.ask("/instance/preempted") == "TRUE") end = HoldEnd::preempted;
        }
    }
    std::error_code ignored;
    fs::remove(file, ignored);
    say(out, k_released_marker, Json{{"reason", std::string(to_text(*end))}});
    return 0;
}

}  // namespace gdnctl::devtpu
