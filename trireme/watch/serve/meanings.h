// Units and meanings of metrics and of the ranks' columns, for people.
#pragma once

#include <string>
#include <string_view>

namespace trireme::watch {

// "" when it is a plain number, or unknown. A name of series: "loss", "ranks/own_seconds", ...
std::string unit_of(std::string_view name);
// A sentence without its full stop; "" when unknown.
std::string meaning_of(std::string_view name);

}  // namespace trireme::watch
