// Runs a short command and returns what it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trireme::launch::inline internal {

// arguments: the program, searched in /usr/sbin, /sbin, /usr/bin and /bin, and its arguments. No
// shell. Returns its output and errors, at most 64 KiB, without the last line end.
// Throws: Error, one line with the command's own first line, when it cannot be started, fails, or
//         takes longer than `limit`, after which it is killed
std::string run_command(const std::vector<std::string>& arguments,
                        std::chrono::milliseconds limit = std::chrono::seconds(5));

}  // namespace trireme::launch::inline internal
