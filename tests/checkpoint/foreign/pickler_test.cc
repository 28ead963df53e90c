#include "trireme/checkpoint/foreign/pickle.h"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::checkpoint {
namespace {

// dcp_writer_test has Python read what it writes.
TEST(Pickler, WhatItWritesReadsBack) {
  const std::vector<int64_t> numbers = {0,
                                        255,
                                        256,
                                        -1,
                                        std::numeric_limits<int32_t>::max(),
                                        1L << 31,
                                        -(1L << 31) - 1,
                                        std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<int64_t>::max()};
  constexpr std::string_view kNames[] = {"torch.float32"};
  Pickler pickler;
  pickler.empty_list().integers(numbers).append().text(std::string(300, 'a')).append();
  pickler.global("torch", "float32").append().boolean(true).append();
  pickler.text("id").persistent().append();
  pickler.empty_dict().mark().text("k").none().set_items().append();
  const Pickle pickle(pickler.finish(), kNames, "file");
  const auto items = pickle.root().items(6);
  EXPECT_EQ(items[0].integers(20, std::numeric_limits<int64_t>::min()), numbers);
  EXPECT_EQ(items[1].text(), std::string(300, 'a'));
  EXPECT_EQ(items[2].global(), "torch.float32");
  EXPECT_EQ(items[3].kind(), PickleKind::kBoolean);
  EXPECT_EQ(items[4].reference().text(), "id");
  EXPECT_EQ(items[5].members().size(), 1u);
}

}  // namespace
}  // namespace trireme::checkpoint
