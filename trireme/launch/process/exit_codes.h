// The exit codes by which a launcher tells what a worker's end means.
#pragma once

namespace trireme::launch {

inline constexpr int kUserError = 2;      // the user can fix it: config, arguments, data
inline constexpr int kPeerLost = 3;       // another rank was lost; the run can be started again
inline constexpr int kBadCheckpoint = 4;  // a checkpoint cannot be used
inline constexpr int kNotFound = 127;     // of shells and of this launcher: no such program

}  // namespace trireme::launch
