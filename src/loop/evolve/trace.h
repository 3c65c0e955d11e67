// The structured trace in front of a model's reply: one JSON object that says what is tried and why. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::loop::evolve {

struct TracedReply {
    std::optional<std::string> trace;  // the text of a whole object; nullopt: there is none
    std::string reply;                 // without it
    std::string technique;             // of the trace; empty: it names none
};

// The first fenced json block, or an object that the reply begins with. What does not parse stays in the reply.
TracedReply split_trace(std::string_view message);

}  // namespace gdnctl::loop::evolve
