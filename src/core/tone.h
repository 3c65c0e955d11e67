// The colour of results on a terminal: green for what is good, red for what is not, yellow for what is undecided.
// Nothing else that a command reports is coloured.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl {

enum class Tone { none, good, bad, undecided };

// Of a result as the reports spell it: "OK", "WRONG", "kept", "rejected", "SUCCEEDED". Blanks around it do not count.
Tone tone_of(std::string_view result);
// Of a gain as the reports write it: "1.02x faster (1.01 to 1.03, 9 pairs)".
Tone tone_of_gain(std::string_view gain);

std::string toned(std::string_view text, Tone tone, bool color);
// `result` in its own tone.
std::string toned(std::string_view result, bool color);
// A table or a list with a result near the start of each line: that word and the first gain of the line are coloured.
// Titles and reasons, which follow, are other people's words and stay as they are.
std::string toned_rows(std::string_view text, bool color);
// `text` with every verdict in capitals ("OK", "WRONG", "FAILED") in its own tone. Words of other people's text are
// rarely verdicts in capitals.
std::string toned_verdicts(std::string_view text, bool color);

}  // namespace gdnctl
