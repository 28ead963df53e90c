// What the machine gives this process.
#pragma once

namespace trireme {

// Cores this process may run on; at least 1.
int num_cores();

}  // namespace trireme
