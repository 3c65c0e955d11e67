// The conditions under which a number was measured. Only numbers measured under the same conditions are compared. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

struct Fingerprint {
    // What was requested and where it ran: target, metric, cluster, machine, settings, ... Champions are kept per set
    // of these.
    std::map<std::string, std::string> asked;
    // What was used in the end, such as the implementation that was chosen. The candidate's own code decides it.
    std::map<std::string, std::string> effective;
    bool operator==(const Fingerprint&) const = default;

    // Sixteen hexadecimal digits of a hash of `asked`.
    std::string key() const;
};

// "cluster: us-central1 -> us-east5", one for each difference; empty: none.
std::vector<std::string> differences(const std::map<std::string, std::string>& before,
                                     const std::map<std::string, std::string>& after);

}  // namespace gdnctl::loop
