#include "trireme/base/file/file.h"

#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(Descriptor, ClosesWhatItOwnsOnce) {
  int fd = -1;
  {
    const Descriptor file(dup(0));
    fd = file.get();
    EXPECT_TRUE(file.is_open());
    EXPECT_TRUE(is_open(fd));
  }
  EXPECT_FALSE(is_open(fd));
  Descriptor none;
  EXPECT_FALSE(none.is_open());
  EXPECT_EQ(none.close(), 0);
}

TEST(Descriptor, MovesAndReleases) {
  Descriptor first(dup(0));
  const int fd = first.get();
  Descriptor second(std::move(first));
  EXPECT_FALSE(first.is_open());
  const int other = dup(0);
  Descriptor third(other);
  third = std::move(second);
  second.close();
  EXPECT_TRUE(is_open(fd));
  EXPECT_FALSE(is_open(other));
  EXPECT_EQ(third.release(), fd);
  EXPECT_EQ(close(fd), 0) << "nobody else has closed it";
}

TEST(Descriptor, SaysWhatTheKernelSaysOfTheEnd) {
  Descriptor file(dup(0));
  close(file.get());
  EXPECT_EQ(file.close(), -1);
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(file.is_open());
}

}  // namespace
}  // namespace trireme
