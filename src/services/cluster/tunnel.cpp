// The route to a cluster's dashboard through ssh to its head node.
#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "core/log.h"
#include "platform/signals.h"
#include "services/cluster/cluster.h"
#include "services/cluster/forward.h"
#include "services/cluster/gcloud.h"
#include "services/cluster/url.h"

namespace gdnctl {

namespace {

using cluster::Forward;
using std::chrono::milliseconds;

constexpr int k_dashboard_port = 8265;
constexpr milliseconds k_shortest{1000};
constexpr milliseconds k_gcloud_limit{30'000};
constexpr milliseconds k_open_limit{30'000};
constexpr milliseconds k_agent_limit{10'000};
constexpr milliseconds k_agent_rest{60'000};  // after a failure; meanwhile the log is followed another way
constexpr milliseconds k_gate_limit{3000};
constexpr milliseconds k_gate_pause{1000};
constexpr int k_gate_tries = 3;

class Tunnel final : public RayRoute {
public:
    explicit Tunnel(TunnelConfig config) : m_config(std::move(config)) {}

    Result<std::string> url() override {
        const std::lock_guard lock(m_mutex);
        if (m_dashboard && m_dashboard->alive()) return m_dashboard->url();
        if (m_dashboard) {
            log::warning("the ssh tunnel to cluster {} has ended; opening it again", m_config.cluster.cluster_name);
            m_agents.clear();
            m_dashboard.reset();
        }
        // The head node may be a different machine by now.
        GDNCTL_TRY_ASSIGN(m_head, cluster::find_head_node({m_config.process, m_config.stop, within(k_gcloud_limit)},
                                                          m_config.cluster));
        log::info("opening an ssh tunnel to {}@{}, the head node of cluster {}", m_config.cluster.ssh_user,
                  m_head.ssh_ip, m_config.cluster.cluster_name);
        GDNCTL_TRY_ASSIGN(auto forward, Forward::open(m_config, m_head, {m_head.internal_ip, k_dashboard_port},
                                                      within(k_open_limit)));
        GDNCTL_TRY(gate(*forward));
        m_dashboard = std::move(forward);
        return m_dashboard->url();
    }

    std::optional<std::string> agent_url(const std::string& address) override {
        const std::lock_guard lock(m_mutex);
        if (!m_dashboard) return std::nullopt;
        const auto agent = cluster::parse_url(address);
        const bool plain_ip =
            agent && agent->scheme == "http" && agent->host.find_first_not_of("0123456789.") == std::string::npos;
        if (!plain_ip) return std::nullopt;
        Agent& known = m_agents[fmt::format("{}:{}", agent->host, agent->port)];
        if (known.forward && known.forward->alive()) return known.forward->url();
        const auto now = m_config.clock->monotonic();
        if (known.failed && now - *known.failed < k_agent_rest) return std::nullopt;
        known.forward.reset();
        auto forward = Forward::open(m_config, m_head, {agent->host, agent->port}, within(k_agent_limit));
        if (!forward) {
            log::debug("no tunnel to the agent {}: {}", address, forward.error().text());
            known.failed = now;
            return std::nullopt;
        }
        known.forward = std::move(*forward);
        return known.forward->url();
    }

    void set_deadline(std::optional<Clock::Monotonic> deadline) override {
        const std::lock_guard lock(m_mutex);
        m_deadline = deadline;
    }

private:
    milliseconds within(milliseconds limit) const {
        if (!m_deadline) return limit;
        const auto left = std::chrono::ceil<milliseconds>(*m_deadline - m_config.clock->monotonic());
        return std::min(limit, std::max(left, k_shortest));
    }

    struct Agent {
        std::unique_ptr<Forward> forward;
        std::optional<Clock::Monotonic> failed;
    };

    // Whether a dashboard is at the other end. Works without a token, because a refusal counts as an answer.
    Status gate(Forward& forward) {
        HttpRequest request;
        request.url = forward.url() + "/api/version";
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
                    fmt::format("no dashboard answers at the head node of cluster {}: {}{}",
                                m_config.cluster.cluster_name, why, words),
                    "check whether Ray is running: `ray status` on the head node");
    }

    TunnelConfig m_config;
    std::mutex m_mutex;
    std::optional<Clock::Monotonic> m_deadline;
    cluster::HeadNode m_head;
    std::unique_ptr<Forward> m_dashboard;
    std::map<std::string, Agent> m_agents;
};

}  // namespace

std::shared_ptr<RayRoute> make_tunnel(TunnelConfig config) { return std::make_shared<Tunnel>(std::move(config)); }

}  // namespace gdnctl
