// The log of an Iris job: lines that the controller's log server hands on, read with a cursor.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "platform/clock.h"
#include "services/iris/client.h"

namespace gdnctl::iris {

// What a log needs to know about its job, kept up to date by the backend.
struct JobFacts {
    std::string cluster;                    // that runs the job; empty: the controller's own
    std::optional<Clock::Monotonic> ended;  // when the job ended; nullopt: it has not
};

// `name`: "/me/x". Lines may come up to some seconds after the job's end: pump() waits for them then.
std::unique_ptr<JobLog> make_log(std::shared_ptr<Client> client, std::string name,
                                 std::shared_ptr<const JobFacts> facts, const LogStart& start);

}  // namespace gdnctl::iris
