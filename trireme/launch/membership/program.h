// What must be the same on all hosts of a job, as text: lines "key = value" for the version, the
// command and each key of its config.
#pragma once

#include <string>
#include <string_view>

namespace trireme::launch::inline internal {

// The lines of a TOML text as "section.key = value". Good enough to compare two files; a value over
// several lines is several lines.
std::string config_lines(std::string_view toml);

// Names what differs: "train.steps is 300, and 200 on the leader; ..."; "" when nothing does.
// theirs: the host's; ours: the leader's.
std::string program_difference(std::string_view theirs, std::string_view ours);

}  // namespace trireme::launch::inline internal
