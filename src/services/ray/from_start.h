// Reads a log again from its first byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "services/job/job.h"
#include "services/ray/log_join.h"
#include "services/ray/log_tail.h"

namespace gdnctl::ray {

// Skips what was passed on before. The rest is passed on as it arrives or, if only the last lines are wanted, held back
// until it is complete.
class FromStart {
public:
    static constexpr std::size_t k_held_limit = std::size_t{16} << 20;  // limit for a tail that is held back

    FromStart(std::uint64_t skip, std::optional<std::size_t> last_lines, JobLog::Sink deliver)
        : m_skip(skip),
          m_hold(last_lines),
          m_held(last_lines.value_or(0), k_held_limit),
          m_deliver(std::move(deliver)) {}

    bool feed(std::string_view piece) {
        const std::uint64_t before = m_seen;
        m_seen += piece.size();
        if (m_seen <= m_skip) return true;
        if (before < m_skip) piece.remove_prefix(static_cast<std::size_t>(m_skip - before));
        if (!m_hold) return m_deliver(piece);
        m_position.advance(piece);
        m_held.feed(piece);
        return true;
    }
    bool holds() const { return m_hold.has_value(); }
    std::string take_held() { return m_held.take(); }
    // The position after what is held back.
    LogPosition take_position() { return std::move(m_position); }

private:
    std::uint64_t m_skip, m_seen = 0;
    std::optional<std::size_t> m_hold;
    LastLines m_held;
    LogPosition m_position;
    JobLog::Sink m_deliver;
};

}  // namespace gdnctl::ray
