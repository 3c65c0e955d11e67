// The way to a server on a cluster's own machine: finds the machine through gcloud, and forwards a local port by ssh,
// or by `gcloud compute ssh`.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
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

struct ControllerMachine {
    std::string name, zone;
};
// The machine of an Iris controller. Errors: config (the file does not say how to find it), infrastructure `No
// controller found for cluster X`, those of run_gcloud.
Result<ControllerMachine> find_controller(const GcloudAccess& gcloud, const ClusterFile& cluster);
// Parses "name<tab>zone" as printed by gcloud. Pure.
Result<ControllerMachine> parse_controller(std::string_view line, std::string_view cluster_name);

// One process that forwards one local port.

struct ForwardTarget {
    std::string ip;
    int port = 0;
};

// The command line for ssh. Ports that the user's configuration forwards as well may be in use: only ours counts.
std::vector<std::string> forward_argv(const TunnelConfig& config, const HeadNode& head, int local_port,
                                      const ForwardTarget& target);
// The command line for gcloud, which knows the keys and may act as another account.
std::vector<std::string> forward_argv(const ClusterFile& cluster, const ControllerMachine& machine, int local_port);

struct ForwardPlan {
    std::function<std::vector<std::string>(int local_port)> argv;
    std::string where;        // "ray@203.0.113.7", for messages
    std::string denied_hint;  // what to do if the key is refused
    std::string hint;         // what to do if it fails otherwise
};

// User id of the process that listens on 127.0.0.1:`port`, from the text of /proc/net/tcp; nullopt: none. Pure.
std::optional<unsigned> listener_of(std::string_view proc_net_tcp, int port);

class Forward {
public:
    // Returns once the port is listened on. If ssh ends at once without a message about the machine, it is retried with
    // another port. Errors: authentication (key refused), infrastructure (with ssh's message), interrupted, terminated.
    static Result<std::unique_ptr<Forward>> open(const TunnelConfig& config, const ForwardPlan& plan,
                                                 std::chrono::milliseconds limit);
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

// A route through one forwarded port. Opened on first use, reopened when it has died, closed with the object.
class Tunnel : public JobRoute {
public:
    explicit Tunnel(TunnelConfig config) : m_config(std::move(config)) {}

    Result<std::string> url() override;
    void set_deadline(std::optional<Clock::Monotonic> deadline) override;

protected:
    // What answers at the other end, and how a person would check it.
    struct Gate {
        std::string path;    // "/api/version"
        std::string server;  // "dashboard answers at the head node"
        std::string check;
    };
    // Called with the lock held. The result answers at `gate`.
    virtual Result<std::unique_ptr<Forward>> connect() = 0;
    // Whether the server is at the other end. Works without a token, because a refusal counts as an answer.
    Status check_answer(Forward& forward, const Gate& gate) const;
    std::chrono::milliseconds within(std::chrono::milliseconds limit) const;

    TunnelConfig m_config;
    std::mutex m_mutex;
    std::unique_ptr<Forward> m_forward;

private:
    std::optional<Clock::Monotonic> m_deadline;
};

}  // namespace gdnctl::cluster
