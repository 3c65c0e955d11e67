// Under which conditions a number was measured. Numbers of different conditions are not compared. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop {

struct Fingerprint {
    // What was asked for and where it ran: target, metric, cluster, machine, settings, ... Champions are kept by it.
    std::map<std::string, std::string> asked;
    // What came of it: the implementation that was chosen in the end. The candidate's own code decides on it.
    std::map<std::string, std::string> effective;
    bool operator==(const Fingerprint&) const = default;

    // Sixteen hexadecimal digits of a hash of `asked`.
    std::string key() const;
};

// "cluster: us-central1 -> us-east5", one of each difference; empty: none.
std::vector<std::string> differences(const std::map<std::string, std::string>& before,
                                     const std::map<std::string, std::string>& after);

}  // namespace gdnctl::loop
