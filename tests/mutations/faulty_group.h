// A group that makes the mistakes of a GroupRule and is the group it is made from in all else.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"

namespace trireme::mutations {

// The groups that are split from it make them too.
std::unique_ptr<comm::Communicator> make_faulty_group(std::unique_ptr<comm::Communicator> group);

}  // namespace trireme::mutations
