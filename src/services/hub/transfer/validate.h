// Checks whether a downloaded trace is complete, reading it as a stream.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "core/result.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

// Takes pieces of any size, and checks that they form one JSON object with a list "traceEvents".
class TraceJsonCheck {
public:
    Status feed(std::string_view bytes);  // bad_input: not JSON, with the offset
    Status finish() const;                // bad_input: truncated, or another kind of JSON

private:
    enum class Expect {
        value,
        value_or_end,
        key,
        key_or_end,
        colon,
        after,
        string,
        escape,
        hex,
        number,
        literal,
        nothing
    };
    bool step(char c);
    bool begin_value(char c);
    bool end_container(char c);
    void end_value();
    bool end_number();

    Expect m_expect = Expect::value;
    bool m_in_key = false;
    std::string m_open;  // open '{' and '['
    std::string m_key;   // of the outermost object, its first characters
    std::string m_number;
    std::string_view m_literal;
    int m_hex_left = 0;
    std::uint64_t m_offset = 0;
    bool m_is_object = false, m_has_events = false;
};

// Decides by the file's name: *.gz is inflated and its checksum compared; *.json and *.json.gz are read as a trace;
// *.pb as a protocol buffer message; others are not checked. Errors: conflict (with the cause), local_io, interrupted.
Status validate_trace(int fd, std::string_view path, const std::stop_token& stop);

// Walks over the fields of a serialised XSpace and its planes. bad_input with the offset.
Status check_xspace(int fd, std::uint64_t size);

}  // namespace gdnctl::hub
