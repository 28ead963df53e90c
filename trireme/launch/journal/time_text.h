// Points in time as text: those that the journal writes, and those that a user asks for.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::launch {

// The time of this host's clock, in UTC. Clocks of several hosts may differ.
using WallTime = std::chrono::system_clock::time_point;

// "2026-11-25T07:12:01.123456Z", always 27 characters, for the years 0 to 9999.
std::string to_text(WallTime time);

// Reads to_text()'s form, with no or up to nine digits behind the second. Empty for any other text.
std::optional<WallTime> parse_time(std::string_view text);

// Reads what a user means by "since": a duration before `now` ("90s", "10m", "2h", "1.5h", "3d"), a
// time as parse_time() reads it, or a shorter one ("2026-11-25", "2026-11-25T07:12").
// Throws: ConfigError; `what` names the option
WallTime parse_since(std::string_view text, std::string_view what, WallTime now);

}  // namespace trireme::launch
