// Messages of which the receiver knows the sender, the dtype and the size before. Between hosts
// they take one round trip where others take two or more: others are announced, and the receiver
// asks for the data once it knows how much there is. If by then it is sending data of its own, the
// request waits behind them, so two ranks that send each other much take turns. Here the request
// goes with the call; post receives before sends.
#pragma once

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Added to the tag of such a message (Communicator::run). Above all tags that groups use that are
// made of others. Sized messages have tags of their own: none meets an announced message.
inline constexpr int kSizedTag = 1 << 28;

constexpr bool is_sized(int tag) { return (tag & kSizedTag) != 0; }
// As the caller gave it, for people to read.
constexpr int shown_tag(int tag) { return tag & ~kSizedTag; }

// As send() and recv() in the background, between named ranks. If dtypes or sizes differ, the
// transport may only see that the connection fails.
// Comm: n
[[nodiscard]] WorkPtr send_sized(Communicator& group, at::Tensor data, int peer,
                                 const Options& options);
[[nodiscard]] WorkPtr recv_sized(Communicator& group, at::Tensor data, int peer,
                                 const Options& options);

// Waits for the message that recv_sized() has begun to take from `peer`, and counts for how long
// (Communicator::add_wait). A sized message is one of several at once: for all of them together a
// rank waits only as long as somebody waits here.
void await_sized(Communicator& group, int peer, Work& received);

}  // namespace trireme::comm
