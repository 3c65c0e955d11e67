// The later parts of a large file, each over a connection of its own, while the first part comes over the transfer's.
// They only ever save time: a part that fails stops where it is, and the transfer goes on from there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/wire.h"

namespace gdnctl::hub {

// How to cut [from, size) into parts: as many as there are `connections`, at most four, none below 16 MiB; one part
// where less than 64 MiB are left.
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
    // Asks `hop`, the address that serves the first part, for each part that is not whole and was not asked for yet.
    // Not from a receiver's calls, as cancel().
    void start(const Hop& hop, std::int64_t size);
    // What has come goes to the disk.
    void flush();
    // No more is taken from any of them.
    void drop();
    void cancel();

    const Span& front() const { return m_parts.front()->span; }
    bool front_is_coming() const { return m_parts.front()->active; }
    // Its last byte may have come before its end: the pool still knows it.
    void pop() {
        m_dropped.push_back(std::move(m_parts.front()));
        m_parts.erase(m_parts.begin());
    }

    std::vector<Span> spans() const;
    std::int64_t bytes() const;                                          // of those parts, on disk
    std::int64_t take_arrived();                                         // bytes that have come since the last call
    const std::optional<Failure>& failure() const { return m_failure; }  // of this machine: ends the whole transfer

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
