#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fd.h"
#include "platform/fs.h"
#include "platform/host_name.h"
#include "services/devtpu/holder.h"
#include "services/devtpu/host_info.h"

namespace gdnctl::devtpu {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

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
