// Exchanges numbers and text between ranks, as tensors. A text over 1 GiB is a CommError on every
// rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Every rank's number, in rank order.
// Comm:       8 bytes from each rank to all
// Collective: every rank
std::vector<int64_t> all_gather_numbers(Communicator& group, int64_t number);

// Every rank's text, in rank order; lengths may differ.
// Comm:       8 bytes from each rank to all, then every rank's text to all
// Collective: every rank
std::vector<std::string> all_gather_strings(Communicator& group, std::string_view text);

// On the root, every rank's text in rank order; lengths may differ. Empty on other ranks.
// Comm:       8 bytes from each rank to all, then every rank's text to the root
// Collective: every rank
std::vector<std::string> gather_strings(Communicator& group, std::string_view text, int root);

// The root's text.
// Comm:       8 bytes, then the root's text to all
// Collective: every rank
std::string broadcast_string(Communicator& group, std::string text, int root);

}  // namespace trireme::comm
