// One ssh process that forwards one local port.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "services/cluster/cluster.h"
#include "services/cluster/gcloud.h"

namespace gdnctl::cluster {

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
