// What no kernel can be faster than.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "oracle/judge/kernel_fault.h"
#include "platform/clock.h"

namespace gdnctl::harness {

// How many times as many operations as fp32 ones a processor with these flags (of /proc/cpuinfo) may do on shorter
// types.
double gain_of_short_types(std::string_view cpuinfo);

// The least that `run` takes of some runs.
double least_seconds(const std::function<void()>& run, Clock& clock, int runs = 8);

// Operations a second that `threads` threads cannot exceed on this processor: the best of many short bursts of
// multiply-adds in registers on one thread, times the threads and that gain. Short, and on one, because a machine that
// is busy would look slow, and honest kernels impossible. Takes some 60 ms.
double most_flop_a_second(int threads, Clock& clock);

// Seconds in which `threads` threads can at best read and write `bytes` in all, half of each: half the best time of one
// thread with its share, since other caches may be nearer. Of more than 64 MiB a share, what 64 MiB take.
double least_seconds_of_bytes(double bytes, int threads, Clock& clock);

// The fault of a kernel that took `seconds` for what takes `least` seconds at best, with a margin; nullopt: it may be.
std::optional<oracle::KernelFault> impossible_time(double seconds, double least, int threads);

}  // namespace gdnctl::harness
