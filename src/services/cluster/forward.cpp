#include "services/cluster/forward.h"

#include <charconv>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fd.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/ssh_options.h"

namespace gdnctl::cluster {

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

tl::unexpected<Error> refused(const TunnelConfig& config, const HeadNode& head, std::string_view said) {
    const std::string where = config.cluster.ssh_user + "@" + head.ssh_ip;
    const std::string words = text::trim(said).empty() ? std::string("it printed nothing") : last_lines(said);
    if (said.find("Permission denied") != std::string_view::npos ||
        said.find("Too many authentication failures") != std::string_view::npos) {
        return fail(ErrorKind::authentication, fmt::format("ssh to {} was refused: {}", where, words),
                    fmt::format("check that {} is the cluster's key and that you can read it",
                                config.cluster.ssh_key.string()));
    }
    return fail(ErrorKind::infrastructure, fmt::format("cannot open an ssh tunnel to {}: {}", where, words),
                fmt::format("try by hand: ssh -i {} {}", text::shell_quote(config.cluster.ssh_key.string()), where));
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
    for (const char* name : {"RAY_AUTH_TOKEN", "HF_TOKEN", "WANDB_API_KEY"}) spec.env[name] = std::nullopt;
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

Result<std::unique_ptr<Forward>> Forward::open(const TunnelConfig& config, const HeadNode& head,
                                               const ForwardTarget& target, milliseconds limit) {
    GDNCTL_TRY(make_private_directory(config.known_hosts.parent_path()));
    for (int tries = 1;; ++tries) {
        GDNCTL_TRY_ASSIGN(const int port, free_port());
        std::unique_ptr<Forward> forward(new Forward(config, forward_argv(config, head, port, target), port));
        auto open = forward->wait_until_open(config, limit);
        if (open && *open) return forward;
        const std::string said = forward->end();
        if (!open && open.error().kind != ErrorKind::infrastructure) return tl::unexpected(std::move(open).error());
        if (!open && text::trim(said).empty()) return tl::unexpected(std::move(open).error());
        if (!open || tries == k_tries || !is_port_trouble(said)) return refused(config, head, said);
    }
}

}  // namespace gdnctl::cluster
