// The pictures of a run's page, as SVG without scripts. Pure.
#pragma once

#include <string>

#include "loop/report/data.h"

namespace gdnctl::loop::report {

// CSS class of an iteration's colour: champion, kept, refused, trouble (of the surroundings), agent, none, open.
std::string_view colour_of(const loop::IterationView& iteration);

// The metric over the iterations: what was measured, the champion of the time as steps, and around it the band in which
// equal code falls. "" where nothing was measured.
std::string metric_chart(const Report& report);
// A square an iteration, in order, each a link to it.
std::string outcome_strip(const Report& report);
// Time of the agent, of the device and of the rest, and tokens, by iteration; neighbours share a bar when there are
// more than 150.
std::string cost_chart(const Report& report);
// A bar a class.
std::string failure_bars(const Report& report);

}  // namespace gdnctl::loop::report
