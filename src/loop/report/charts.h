// The charts of a run's page, as SVG without scripts. Pure.
#pragma once

#include <string>

#include "loop/report/data.h"

namespace gdnctl::loop::report {

// CSS class of an iteration's colour: champion, kept, refused, trouble (infrastructure or environment), agent, none,
// open.
std::string_view colour_of(const loop::IterationView& iteration);

// The metric over the iterations: the measured values, the champion at each time as steps, and around it the noise
// band, in which equal code would fall. "" if nothing was measured.
std::string metric_chart(const Report& report);
// One square per iteration, in order, each linked to it.
std::string outcome_strip(const Report& report);
// Time of the agent, the device and the rest, and tokens, per iteration. Above 150 iterations, neighbours share a bar.
std::string cost_chart(const Report& report);
std::string failure_bars(const Report& report);

}  // namespace gdnctl::loop::report
