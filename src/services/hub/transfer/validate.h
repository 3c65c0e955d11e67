// Whether a downloaded trace is whole, read as a stream.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "core/result.h"
#include "services/hub/transfer/failure.h"

namespace gdnctl::hub {

// Fed in pieces of any size; says whether they are one JSON object with a list "traceEvents".
class TraceJsonCheck {
public:
    Status feed(std::string_view bytes);  // bad_input: no JSON, with the offset
    Status finish() const;                // bad_input: cut, or another kind of JSON

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
    std::string m_open;  // '{' and '[' that are not closed
    std::string m_key;   // of the outermost object, its first characters
    std::string m_number;
    std::string_view m_literal;
    int m_hex_left = 0;
    std::uint64_t m_offset = 0;
    bool m_is_object = false, m_has_events = false;
};

// The file by its name: *.gz is inflated and its checksum compared, *.json and *.json.gz are read as a trace, *.pb as a
// message of protocol buffers; other names are not looked into. Errors: conflict (what is wrong), local_io,
// interrupted.
Outcome<void> validate_trace(int fd, std::string_view path, const std::stop_token& stop);

// A walk over the fields of a serialised XSpace and, within, of its planes. bad_input with the offset.
Status check_xspace(int fd, std::uint64_t size);

}  // namespace gdnctl::hub
