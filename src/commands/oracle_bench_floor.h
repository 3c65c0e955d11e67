// What no kernel can be faster than.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "gdnctl/oracle/kernel_under_test.h"
#include "gdnctl/platform/clock.h"

namespace gdnctl::commands::oracle_bench {

// How many times as many operations as fp32 ones a processor with these flags (of /proc/cpuinfo) may do on shorter
// types.
double gain_of_short_types(std::string_view cpuinfo);

// The least that `run` takes of some runs.
double least_seconds(const std::function<void()>& run, Clock& clock);

// Operations a second that `threads` threads cannot exceed on this processor: the best of some bursts of multiply-adds
// in registers, times that gain. Takes some 50 ms.
double most_flop_a_second(int threads, Clock& clock);

// The fault of a kernel that took `seconds` for what takes `least` seconds at best, with a margin; nullopt: it may be.
std::optional<oracle::KernelFault> impossible_time(double seconds, double least, int threads);

}  // namespace gdnctl::commands::oracle_bench
