// Numbers by name, as the text that a callback keeps in a checkpoint.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

namespace trireme::train {

using StateNumbers = std::map<std::string, double>;

// JSON; every number reads back as the same bits, NaN too.
std::string write_state(const StateNumbers& numbers);

// Throws: CheckpointError when it is not such a text, or lacks a number of `names`; the message
//         names the callback
StateNumbers read_state(const std::string& state, std::string_view callback,
                        std::initializer_list<std::string_view> names);

// numbers.at(name) as a count.
// Throws: CheckpointError when it is none, from 0 to 2^53
int64_t count_in(const StateNumbers& numbers, const std::string& name, std::string_view callback);

}  // namespace trireme::train
