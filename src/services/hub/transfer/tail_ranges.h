// The later parts of a large file, each on its own connection, while the first part arrives on the transfer's. They
// only save time: if a part fails, the transfer continues from where it stopped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/wire.h"

namespace gdnctl::hub {

// Cuts [from, size) into parts: one per connection, at most four, none below 16 MiB; a single part if less than 64 MiB
// are left.
std::vector<Span> cut_into_parts(std::int64_t from, std::int64_t size, int connections);

// Whether a Content-Range is "bytes <begin>-<end - 1>/<size>".
bool is_range(std::string_view content_range, std::int64_t begin, std::int64_t end, std::int64_t size);

class TailRanges {
public:
    TailRanges(Wire& wire, PartFile& part) : m_wire(wire), m_part(part) {}
    ~TailRanges() { cancel(); }
    TailRanges(const TailRanges&) = delete;
    TailRanges& operator=(const TailRanges&) = delete;

    // The parts after the first, in order.
    void set(const std::vector<Span>& spans);
    bool empty() const { return m_parts.empty(); }
    // Requests each incomplete part from `hop`, the address that serves the first part, unless it was already
    // requested. Must not be called from a receiver's callbacks, like cancel().
    void start(const Hop& hop, std::int64_t size);
    // Writes received data to disk.
    void flush();
    // Stops all of them.
    void drop();
    void cancel();

    const Span& front() const { return m_parts.front()->span; }
    bool front_is_coming() const { return m_parts.front()->active; }
    // Its last byte may have arrived before its end, so the pool may still know it.
    void pop() {
        m_dropped.push_back(std::move(m_parts.front()));
        m_parts.erase(m_parts.begin());
    }

    std::vector<Span> spans() const;
    std::int64_t bytes() const;                                          // of these parts, on disk
    std::int64_t take_arrived();                                         // bytes received since the last call
    const std::optional<Failure>& failure() const { return m_failure; }  // a local failure: ends the whole transfer

private:
    struct Part final : HttpReceiver {
        Part(TailRanges& its_owner, const Span& its_span)
            : owner(its_owner), span(its_span), writer(its_owner.m_part) {}
        bool on_head(int status, const HttpHeaders& headers) override;
        bool on_body(std::string_view bytes) override;
        void on_end(const HttpEnd& end) override;
        bool flush();
        bool took(std::int64_t end, Outcome<void> written);

        TailRanges& owner;
        Span span;  // of what is on disk
        BlockWriter writer;
        bool asked = false, active = false;
    };

    Wire& m_wire;
    PartFile& m_part;
    std::vector<std::unique_ptr<Part>> m_parts, m_dropped;
    std::int64_t m_size = 0, m_arrived = 0;
    std::optional<Failure> m_failure;
};

}  // namespace gdnctl::hub
