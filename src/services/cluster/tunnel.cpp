#include "services/cluster/tunnel.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <mutex>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/http_policy.h"
#include "platform/signals.h"
#include "platform/ssh_options.h"
#include "services/cluster/cluster.h"

namespace gdnctl::cluster {

namespace {

bool has_any(std::string_view text, std::initializer_list<std::string_view> signs) {
    for (const std::string_view sign : signs) {
        if (text.find(sign) != std::string_view::npos) return true;
    }
    return false;
}

// The error itself, without the notices before it and the advice after it.
std::string reason(std::string_view text) {
    const auto lines = text::split(text::trim(text), '\n');
    for (const std::string_view line : lines) {
        if (line.starts_with("ERROR:")) return text::repair_utf8(text::trim(line.substr(line.find(':') + 1)));
    }
    return text::repair_utf8(text::trim(lines.back()));
}

bool is_ip(std::string_view word) {
    return !word.empty() && word.find_first_not_of("0123456789abcdefABCDEF.:") == std::string_view::npos;
}

}  // namespace

Result<std::string> run_gcloud(const GcloudAccess& gcloud, std::vector<std::string> words, std::string_view what) {
    ProcessSpec spec;
    spec.argv = {"gcloud"};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.env["CLOUDSDK_CORE_DISABLE_PROMPTS"] = "1";
    spec.wall_limit = gcloud.limit;
    spec.stop = gcloud.stop;
    auto result = gcloud.process->run(spec);
    if (!result) {
        return fail(ErrorKind::infrastructure, fmt::format("cannot {}: {}", what, result.error().text()),
                    "install gcloud, or pass the server's address with --ray-address or --iris-url");
    }
    if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result->ok()) return std::move(result->out);
    const std::string& said = result->err;
    const std::string why = text::trim(said).empty() ? "gcloud " + describe_end(*result, spec) : reason(said);
    std::string message = fmt::format("cannot {}: {}", what, why);
    if (has_any(said, {"not currently have an active account", "gcloud auth login", "Reauthentication", "invalid_grant",
                       "UNAUTHENTICATED"})) {
        return fail(ErrorKind::authentication, std::move(message), "gcloud auth login");
    }
    if (has_any(said, {"PERMISSION_DENIED", "does not have permission", "Required '"})) {
        return fail(ErrorKind::authentication, std::move(message), "ask for access to the project");
    }
    if (said.find("NOT_FOUND") != std::string::npos) return fail(ErrorKind::remote_missing, std::move(message));
    return fail(ErrorKind::infrastructure, std::move(message), "run it by hand: gcloud " + text::shell_join(words));
}

Result<HeadNode> parse_head_node(std::string_view line, std::string_view cluster_name) {
    line = text::trim(line.substr(0, line.find('\n')));
    const auto parts = text::split(line, '\t');
    const std::string_view internal = text::trim(parts.front());
    const std::string_view external = parts.size() > 1 ? text::trim(parts[1]) : std::string_view();
    if (internal.empty()) {
        return fail(ErrorKind::infrastructure, fmt::format("No head node found for cluster {}", cluster_name),
                    "check whether it is running: gcloud compute instances list");
    }
    if (!is_ip(internal) || (!external.empty() && !is_ip(external))) {
        return fail(ErrorKind::infrastructure, fmt::format("gcloud returned no address for the head node of {}: {}",
                                                           cluster_name, text::repair_utf8(line.substr(0, 100))));
    }
    return HeadNode{std::string(internal), std::string(external.empty() ? internal : external)};
}

Result<HeadNode> find_head_node(const GcloudAccess& gcloud, const ClusterFile& cluster) {
    if (cluster.cluster_name.empty()) {
        return fail(ErrorKind::config, cluster.path.string() + " has no cluster_name",
                    "pass the dashboard's address with --ray-address");
    }
    std::vector<std::string> words = {
        "compute",
        "instances",
        "list",
        "--filter",
        fmt::format("labels.ray-cluster-name={} AND labels.ray-node-type=head", cluster.cluster_name),
        "--format",
        "value(networkInterfaces[0].networkIP,networkInterfaces[0].accessConfigs[0].natIP)",
        "--limit",
        "1"};
    // Without it, gcloud looks in the user's own default project.
    if (!cluster.project.empty()) words.push_back("--project=" + cluster.project);
    GDNCTL_TRY_ASSIGN(const std::string out,
                      run_gcloud(gcloud, std::move(words), "find the head node of " + cluster.cluster_name));
    auto head = parse_head_node(out, cluster.cluster_name);
    if (!head && !cluster.project.empty() && head.error().hint.ends_with("instances list")) {
        head.error().hint += " --project=" + cluster.project;
    }
    return head;
}

Result<ControllerMachine> parse_controller(std::string_view line, std::string_view cluster_name) {
    line = text::trim(line.substr(0, line.find('\n')));
    const auto parts = text::split(line, '\t');
    ControllerMachine machine{std::string(text::trim(parts.front())), {}};
    if (parts.size() > 1) {
        const std::string_view zone = text::trim(parts[1]);  // may be a URL
        machine.zone = zone.substr(zone.find_last_of('/') + 1);
    }
    if (machine.name.empty()) {
        return fail(ErrorKind::infrastructure, fmt::format("No controller found for cluster {}", cluster_name),
                    "check whether it is running: gcloud compute instances list");
    }
    constexpr std::string_view k_letters = "abcdefghijklmnopqrstuvwxyz0123456789-";
    for (const std::string& word : {machine.name, machine.zone}) {
        if (word.starts_with('-') || word.find_first_not_of(k_letters) != std::string::npos) {
            return fail(ErrorKind::infrastructure,
                        fmt::format("gcloud returned no machine for the controller of {}: {}", cluster_name,
                                    text::repair_utf8(line.substr(0, 100))));
        }
    }
    return machine;
}

Result<ControllerMachine> find_controller(const GcloudAccess& gcloud, const ClusterFile& cluster) {
    if (cluster.iris.label_prefix.empty()) {
        return fail(ErrorKind::config, cluster.path.string() + " has no platform.label_prefix",
                    "pass the controller's address with --iris-url");
    }
    std::vector<std::string> words = {
        "compute",
        "instances",
        "list",
        "--filter",
        fmt::format("labels.iris-{}-controller=true AND status=RUNNING", cluster.iris.label_prefix),
        "--format",
        "value(name,zone)",
        "--limit",
        "1"};
    if (!cluster.project.empty()) words.push_back("--project=" + cluster.project);
    GDNCTL_TRY_ASSIGN(const std::string out,
                      run_gcloud(gcloud, std::move(words), "find the controller of " + cluster.cluster_name));
    GDNCTL_TRY_ASSIGN(ControllerMachine machine, parse_controller(out, cluster.cluster_name));
    if (!cluster.zone.empty()) machine.zone = cluster.zone;
    return machine;
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_look{50};
constexpr milliseconds k_grace{1000};
constexpr int k_tries = 3;
constexpr std::size_t k_said_limit = 16384;

// A port that is free now. If another process takes it before ssh does, ssh ends at once.
Result<int> free_port() {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        return fail(ErrorKind::local_io, "no free port on 127.0.0.1 for an ssh tunnel");
    }
    return int{ntohs(address.sin_port)};
}

std::string last_lines(std::string_view said) {
    constexpr std::size_t k_most = 400;
    said = text::trim(said);
    if (said.size() > k_most) said = said.substr(said.size() - k_most);
    std::string out = text::repair_utf8(said);
    for (char& c : out) {
        if (c == '\r' || c == '\n') c = ' ';
    }
    return out;
}

bool is_port_trouble(std::string_view said) {
    return text::trim(said).empty() || said.find("in use") != std::string_view::npos ||
           said.find("cannot listen") != std::string_view::npos ||
           said.find("Could not request local forwarding") != std::string_view::npos;
}

tl::unexpected<Error> refused(const ForwardPlan& plan, std::string_view said) {
    const std::string words = text::trim(said).empty() ? std::string("it printed nothing") : last_lines(said);
    if (said.find("Permission denied") != std::string_view::npos ||
        said.find("Too many authentication failures") != std::string_view::npos) {
        return fail(ErrorKind::authentication, fmt::format("ssh to {} was refused: {}", plan.where, words),
                    plan.denied_hint);
    }
    return fail(ErrorKind::infrastructure, fmt::format("cannot open an ssh tunnel to {}: {}", plan.where, words),
                plan.hint);
}

ForwardPlan plan_for(const TunnelConfig& config, const HeadNode& head, const ForwardTarget& target) {
    const std::string key = config.cluster.ssh_key.string();
    const std::string where = config.cluster.ssh_user + "@" + head.ssh_ip;
    return {[=](int port) { return forward_argv(config, head, port, target); }, where,
            fmt::format("check that {} is the cluster's key and that you can read it", key),
            fmt::format("try by hand: ssh -i {} {}", text::shell_quote(key), where)};
}

}  // namespace

std::vector<std::string> forward_argv(const TunnelConfig& config, const HeadNode& head, int local_port,
                                      const ForwardTarget& target) {
    std::vector<std::string> argv = {"ssh", "-N"};
    const auto add = [&](const std::vector<std::string>& words) {
        argv.insert(argv.end(), words.begin(), words.end());
    };
    add(ssh_overrides());
    // A connection that somebody shares would take over the port and leave it open.
    add(ssh_words({{"ClearAllForwardings", "no"},
                   {"ControlMaster", "no"},
                   {"ControlPath", "none"},
                   {"ControlPersist", "no"},
                   {"ConnectTimeout", "20"},
                   {"ServerAliveInterval", "15"},
                   {"ServerAliveCountMax", "4"},
                   {"IdentitiesOnly", "yes"},
                   {"StrictHostKeyChecking", "accept-new"},
                   {"CheckHostIP", "no"},
                   {"UserKnownHostsFile", ssh_path(config.known_hosts)}}));
    add({"-i", config.cluster.ssh_key.string(), "-L",
         fmt::format("127.0.0.1:{}:{}:{}", local_port, target.ip, target.port),
         config.cluster.ssh_user + "@" + head.ssh_ip});
    return argv;
}

std::vector<std::string> forward_argv(const ClusterFile& cluster, const ControllerMachine& machine, int local_port) {
    std::vector<std::string> argv = {"gcloud", "compute", "ssh", machine.name};
    if (!cluster.project.empty()) argv.insert(argv.end(), {"--project", cluster.project});
    if (!machine.zone.empty()) argv.insert(argv.end(), {"--zone", machine.zone});
    if (!cluster.iris.impersonate.empty()) argv.push_back("--impersonate-service-account=" + cluster.iris.impersonate);
    const std::string ports = fmt::format("127.0.0.1:{}:localhost:{}", local_port, cluster.iris.port);
    argv.insert(argv.end(), {"--", "-L", ports, "-N", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o",
                             "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"});
    return argv;
}

std::optional<unsigned> listener_of(std::string_view proc_net_tcp, int port) {
    // "  0: 0100007F:2049 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 ..."
    const std::string wanted = fmt::format("0100007F:{:04X}", port);
    for (const std::string_view line : text::split(proc_net_tcp, '\n')) {
        std::vector<std::string_view> words;
        for (const std::string_view word : text::split(line, ' ')) {
            if (!word.empty()) words.push_back(word);
        }
        if (words.size() < 8 || words[1] != wanted || words[3] != "0A") continue;
        if (const auto uid = text::parse_int(words[7])) return static_cast<unsigned>(*uid);
    }
    return std::nullopt;
}

Forward::Forward(const TunnelConfig& config, std::vector<std::string> argv, int port) : m_port(port) {
    ProcessSpec spec;
    spec.argv = std::move(argv);
    // Secrets that ssh does not need: a SendEnv of the user's must not carry them to the head node.
    for (const char* name : {"RAY_AUTH_TOKEN", "MARIN_CLUSTER_TOKEN", "HF_TOKEN", "WANDB_API_KEY"}) {
        spec.env[name] = std::nullopt;
    }
    spec.env["CLOUDSDK_CORE_DISABLE_PROMPTS"] = "1";
    spec.capture_limit = k_said_limit;
    spec.grace = k_grace;
    spec.stop = m_stop.get_token();
    m_thread = std::thread([this, spec = std::move(spec), process = config.process] {
        const auto result = process->run(spec);
        m_said = result ? result->err : result.error().text();
        m_ended = true;
    });
}

const std::string& Forward::end() {
    m_stop.request_stop();
    if (m_thread.joinable()) m_thread.join();
    return m_said;
}

std::string Forward::url() const { return fmt::format("http://127.0.0.1:{}", m_port); }

// True: one of our user's processes listens; false: ssh has ended, or another user has taken the port.
Result<bool> Forward::wait_until_open(const TunnelConfig& config, milliseconds limit) {
    const auto deadline = config.clock->monotonic() + limit;
    while (alive()) {
        GDNCTL_TRY_ASSIGN(const std::string table, read_file("/proc/net/tcp"));
        const auto uid = listener_of(table, m_port);
        // If another user listens on our port, that process would get the token.
        if (uid) return *uid == geteuid();
        if (config.clock->monotonic() >= deadline) {
            return fail(ErrorKind::infrastructure,
                        fmt::format("ssh did not open the tunnel within {}", format_duration(limit)));
        }
        if (!config.clock->sleep_for(k_look, config.stop)) return tl::unexpected(stopped_error());
    }
    return false;
}

Result<std::unique_ptr<Forward>> Forward::open(const TunnelConfig& config, const ForwardPlan& plan,
                                               milliseconds limit) {
    for (int tries = 1;; ++tries) {
        GDNCTL_TRY_ASSIGN(const int port, free_port());
        std::unique_ptr<Forward> forward(new Forward(config, plan.argv(port), port));
        auto open = forward->wait_until_open(config, limit);
        if (open && *open) return forward;
        const std::string said = forward->end();
        if (!open && open.error().kind != ErrorKind::infrastructure) return tl::unexpected(std::move(open).error());
        if (!open && text::trim(said).empty()) return tl::unexpected(std::move(open).error());
        if (!open || tries == k_tries || !is_port_trouble(said)) return refused(plan, said);
    }
}

namespace {

constexpr milliseconds k_shortest{1000};
constexpr milliseconds k_gate_limit{3000};
constexpr milliseconds k_gate_pause{1000};
constexpr int k_gate_tries = 3;

}  // namespace

Result<std::string> Tunnel::url() {
    const std::lock_guard lock(m_mutex);
    if (m_forward && m_forward->alive()) return m_forward->url();
    if (m_forward) {
        log::warning("the ssh tunnel to cluster {} has ended; opening it again", m_config.cluster.cluster_name);
        m_forward.reset();
    }
    // The server may be on a different machine by now.
    GDNCTL_TRY_ASSIGN(m_forward, connect());
    return m_forward->url();
}

void Tunnel::set_deadline(std::optional<Clock::Monotonic> deadline) {
    const std::lock_guard lock(m_mutex);
    m_deadline = deadline;
}

milliseconds Tunnel::within(milliseconds limit) const {
    if (!m_deadline) return limit;
    const auto left = std::chrono::ceil<milliseconds>(*m_deadline - m_config.clock->monotonic());
    return std::min(limit, std::max(left, k_shortest));
}

Status Tunnel::check_answer(Forward& forward, const Gate& gate) const {
    HttpRequest request;
    request.url = forward.url() + gate.path;
    request.connect_timeout = request.first_byte_timeout = request.total_timeout = within(k_gate_limit);
    request.stop = m_config.stop;
    std::string why;
    for (int tries = 1;; ++tries) {
        auto answer = m_config.http->send(request);
        if (answer) {
            constexpr std::array k_alive = {200, 401, 403};
            if (std::find(k_alive.begin(), k_alive.end(), answer->status) != k_alive.end()) return {};
            why = fmt::format("HTTP status {}", answer->status);
        } else if (answer.error().kind == ErrorKind::interrupted || answer.error().kind == ErrorKind::terminated) {
            return tl::unexpected(std::move(answer).error());
        } else {
            why = answer.error().message;
        }
        if (tries == k_gate_tries || within(k_gate_limit) < k_gate_limit) break;
        if (!m_config.clock->sleep_for(k_gate_pause, m_config.stop)) return tl::unexpected(stopped_error());
    }
    std::string said = forward.end();
    std::replace(said.begin(), said.end(), '\n', ' ');
    const std::string words = said.empty() ? std::string() : fmt::format(" (ssh: {})", said.substr(0, 400));
    return fail(ErrorKind::infrastructure,
                fmt::format("no {} of cluster {}: {}{}", gate.server, m_config.cluster.cluster_name, why, words),
                gate.check);
}

}  // namespace gdnctl::cluster

namespace gdnctl {

// The two tunnels: to a Ray dashboard on the head node, and to an Iris controller.

namespace {

using cluster::Forward;
using std::chrono::milliseconds;

constexpr int k_dashboard_port = 8265;
constexpr milliseconds k_gcloud_limit{30'000};
constexpr milliseconds k_open_limit{30'000};
constexpr milliseconds k_gcloud_ssh_limit{60'000};  // it may create a key first
constexpr milliseconds k_agent_limit{10'000};
constexpr milliseconds k_agent_rest{60'000};  // after a failure; meanwhile the log is followed another way

class RayTunnel final : public cluster::Tunnel {
public:
    using Tunnel::Tunnel;

    Result<HttpHeaders> headers(bool /*refused*/) override { return cluster::bearer(m_config.token); }

    std::optional<std::string> agent_url(const std::string& address) override {
        const std::lock_guard lock(m_mutex);
        if (!m_forward) return std::nullopt;
        const auto agent = http::parse_url(address);
        const bool plain_ip =
            agent && agent->scheme == "http" && agent->host.find_first_not_of("0123456789.") == std::string::npos;
        if (!plain_ip) return std::nullopt;
        Agent& known = m_agents[fmt::format("{}:{}", agent->host, agent->port)];
        if (known.forward && known.forward->alive()) return known.forward->url();
        const auto now = m_config.clock->monotonic();
        if (known.failed && now - *known.failed < k_agent_rest) return std::nullopt;
        known.forward.reset();
        auto forward = Forward::open(m_config, cluster::plan_for(m_config, m_head, {agent->host, agent->port}),
                                     within(k_agent_limit));
        if (!forward) {
            log::debug("no tunnel to the agent {}: {}", address, forward.error().text());
            known.failed = now;
            return std::nullopt;
        }
        known.forward = std::move(*forward);
        return known.forward->url();
    }

private:
    struct Agent {
        std::unique_ptr<Forward> forward;
        std::optional<Clock::Monotonic> failed;
    };

    Result<std::unique_ptr<Forward>> connect() override {
        m_agents.clear();
        GDNCTL_TRY_ASSIGN(m_head, cluster::find_head_node({m_config.process, m_config.stop, within(k_gcloud_limit)},
                                                          m_config.cluster));
        log::info("opening an ssh tunnel to {}@{}, the head node of cluster {}", m_config.cluster.ssh_user,
                  m_head.ssh_ip, m_config.cluster.cluster_name);
        GDNCTL_TRY(make_private_directory(m_config.known_hosts.parent_path()));
        const auto plan = cluster::plan_for(m_config, m_head, {m_head.internal_ip, k_dashboard_port});
        GDNCTL_TRY_ASSIGN(auto forward, Forward::open(m_config, plan, within(k_open_limit)));
        GDNCTL_TRY(check_answer(*forward, {"/api/version", "dashboard answers at the head node",
                                           "check whether Ray is running: `ray status` on the head node"}));
        return forward;
    }

    cluster::HeadNode m_head;
    std::map<std::string, Agent> m_agents;
};

// Needs no token: the controller trusts connections from its own machine, and rejects a token that it does not know.
class IrisTunnel final : public cluster::Tunnel {
public:
    using Tunnel::Tunnel;

private:
    Result<std::unique_ptr<Forward>> connect() override {
        const ClusterFile& cluster = m_config.cluster;
        GDNCTL_TRY_ASSIGN(const auto machine,
                          cluster::find_controller({m_config.process, m_config.stop, within(k_gcloud_limit)}, cluster));
        log::info("opening an ssh tunnel to {}, the controller of cluster {}", machine.name, cluster.cluster_name);
        const std::string by_hand = "try by hand: gcloud compute ssh " + machine.name;
        const cluster::ForwardPlan plan{[&](int port) { return cluster::forward_argv(cluster, machine, port); },
                                        machine.name, by_hand, by_hand};
        GDNCTL_TRY_ASSIGN(auto forward, Forward::open(m_config, plan, within(k_gcloud_ssh_limit)));
        GDNCTL_TRY(check_answer(*forward, {"/health", "controller answers on its machine",
                                           "check whether Iris is running on " + machine.name}));
        return forward;
    }
};

}  // namespace

std::shared_ptr<JobRoute> make_tunnel(TunnelConfig config) {
    if (config.cluster.kind == PlaceKind::iris) return std::make_shared<IrisTunnel>(std::move(config));
    return std::make_shared<RayTunnel>(std::move(config));
}

}  // namespace gdnctl
