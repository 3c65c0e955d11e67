// The way to a dashboard on a cluster's head node: finds the node through gcloud, and forwards a local port by ssh.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "services/cluster/cluster.h"

namespace gdnctl::cluster {

// Loopback, or an address of one of this machine's interfaces.
bool is_own_address(std::string_view host);
// The header for a Ray token; none if it is empty.
HttpHeaders bearer(const std::string& token);

// Queries through the gcloud program.

// Standard output of `gcloud ARGS...`, with a limit of 30 s. `what` names the purpose ("find the head node of X").
// Errors: authentication (not logged in, no permission), remote_missing (NOT_FOUND), infrastructure, interrupted,
// terminated.
Result<std::string> run_gcloud(const GcloudAccess& gcloud, std::vector<std::string> words, std::string_view what);

struct HeadNode {
    std::string internal_ip;
    std::string ssh_ip;  // external, or internal if it has no other
};
// Error: infrastructure `No head node found for cluster X`.
Result<HeadNode> find_head_node(const GcloudAccess& gcloud, const ClusterFile& cluster);
// Parses "internal<tab>external" as printed by gcloud. Pure.
Result<HeadNode> parse_head_node(std::string_view line, std::string_view cluster_name);

// One ssh process that forwards one local port.

struct ForwardTarget {
    std::string ip;
    int port = 0;
};

// The command line for ssh. Ports that the user's configuration forwards as well may be in use: only ours counts.
std::vector<std::string> forward_argv(const TunnelConfig& config, const HeadNode& head, int local_port,
                                      const ForwardTarget& target);

// User id of the process that listens on 127.0.0.1:`port`, from the text of /proc/net/tcp; nullopt: none. Pure.
std::optional<unsigned> listener_of(std::string_view proc_net_tcp, int port);

class Forward {
public:
    // Returns once the port is listened on. If ssh ends at once without a message about the machine, it is retried with
    // another port. Errors: authentication (key refused), infrastructure (with ssh's message), interrupted, terminated.
    static Result<std::unique_ptr<Forward>> open(const TunnelConfig& config, const HeadNode& head,
                                                 const ForwardTarget& target, std::chrono::milliseconds limit);
    ~Forward() { end(); }
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    bool alive() const { return !m_ended; }
    std::string url() const;  // http://127.0.0.1:PORT
    // Ends ssh and waits for it. Returns its stderr.
    const std::string& end();

private:
    Forward(const TunnelConfig& config, std::vector<std::string> argv, int port);
    Result<bool> wait_until_open(const TunnelConfig& config, std::chrono::milliseconds limit);

    int m_port;
    std::stop_source m_stop;
    std::atomic<bool> m_ended{false};
    std::string m_said;  // valid once m_thread is joined
    std::thread m_thread;
};

}  // namespace gdnctl::cluster
