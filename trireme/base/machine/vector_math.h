// libtorch's element-wise functions, the same bits from the first call on.
#pragma once

namespace trireme {

// oneMKL chooses a function's kernel in its first call. Threads that make first calls at the same
// time may get one of half the digits for that call alone (pytorch/pytorch#188792; libtorch 2.13
// here: cos in fp64 wrong by 7e-9 in one process of 1,500). So this makes the first calls, once in
// a process: exp, log, sin and the others that libtorch takes from oneMKL, fp32 and fp64. Every
// Communicator has called it.
void settle_vector_math();

}  // namespace trireme
