#include "trireme/base/io/async_io.h"

#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

// Memory that direct requests may use.
class Block {
 public:
  explicit Block(size_t num_bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, num_bytes))),
        num_bytes_(num_bytes) {}
  ~Block() { std::free(data_); }
  std::byte* data() { return data_; }
  void fill(int seed) {
    for (size_t i = 0; i < num_bytes_; ++i) {
      data_[i] = static_cast<std::byte>((i * 7 + i / 4096 + static_cast<size_t>(seed)) % 251);
    }
  }
  bool operator==(const Block& other) const {
    return std::memcmp(data_, other.data_, num_bytes_) == 0;
  }

 private:
  std::byte* data_;
  size_t num_bytes_;
};

// A file of zeros, direct where the file system can.
class TestFile {
 public:
  TestFile(const std::filesystem::path& folder, uint64_t num_bytes)
      : path_(folder / "blocks"),
        file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    EXPECT_EQ(reserve_space(file_.get(), 0, static_cast<int64_t>(num_bytes)), 0);
    io_ = {.descriptor = file_.get(),
           .path = path_.string(),
           .is_direct = make_direct(file_.get(), num_bytes)};
  }
  const IoFile& io() const { return io_; }

 private:
  std::filesystem::path path_;
  Descriptor file_;
  IoFile io_;
};

constexpr size_t kBlock = 64 << 10;
constexpr int kNumBlocks = 8;

// Eight writes at a time, then eight reads at a time in the opposite order.
void expect_round_trip(AsyncIo& io) {
  std::vector<std::unique_ptr<Block>> written, read;
  std::vector<AsyncIo::Ticket> tickets;
  for (int i = 0; i < kNumBlocks; ++i) {
    written.push_back(std::make_unique<Block>(kBlock));
    written.back()->fill(i);
    tickets.push_back(io.start({IoKind::kWrite, i * kBlock, written.back()->data(), kBlock}));
  }
  for (const auto ticket : tickets) io.wait(ticket);
  tickets.clear();
  for (int i = 0; i < kNumBlocks; ++i) {
    read.push_back(std::make_unique<Block>(kBlock));
    tickets.push_back(io.start({IoKind::kRead, i * kBlock, read.back()->data(), kBlock}));
  }
  for (int i = kNumBlocks - 1; i >= 0; --i) {
    io.wait(tickets[i]);
    EXPECT_TRUE(*read[i] == *written[i]) << io.name() << " block " << i;
  }
}

std::string error_of(AsyncIo& io, const IoRequest& request) {
  try {
    io.wait(io.start(request));
  } catch (const ConfigError&) {
    return "another type of error";
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What this kernel and build have of the two implementations, on one file.
std::vector<std::unique_ptr<AsyncIo>> all_kinds(const IoFile& file) {
  std::vector<std::unique_ptr<AsyncIo>> all;
  all.push_back(std::make_unique<ThreadIo>(file));
  if (auto uring = make_uring_io(file)) all.push_back(std::move(uring));
  return all;
}

// From now on this process is refused io_uring, as a container refuses it.
void refuse_uring(int code) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

TEST(AsyncIo, ReadsWhatItWroteWithManyRequestsInFlight) {
  const harness::TemporaryFolder folder;
  const TestFile file(folder.path(), kNumBlocks * kBlock);
  for (const auto& io : all_kinds(file.io())) expect_round_trip(*io);
  expect_round_trip(*make_async_io(file.io()));
}

TEST(AsyncIo, AFileBehindThePageCacheIsWorkedOnByThreads) {
  const harness::TemporaryFolder folder;
  const TestFile file(folder.path(), kNumBlocks * kBlock);
  IoFile buffered = file.io();
  ASSERT_EQ(::fcntl(buffered.descriptor, F_SETFL, O_RDWR), 0);
  buffered.is_direct = false;
  const auto io = make_async_io(buffered);
  EXPECT_EQ(io->name(), "threads");
  expect_round_trip(*io);
}

TEST(AsyncIo, ThreadsStandInWhereIoUringIsRefused) {
  for (const int code : {EPERM, ENOSYS, ENOMEM}) {
    const auto exits = harness::fork_processes(1, [&](int) {
      refuse_uring(code);
      const harness::TemporaryFolder folder;
      const TestFile file(folder.path(), kNumBlocks * kBlock);
      EXPECT_EQ(make_uring_io(file.io()), nullptr);
      const auto io = make_async_io(file.io());
      EXPECT_EQ(io->name(), "threads");
      expect_round_trip(*io);
    });
    EXPECT_EQ(exits, std::vector<harness::ExitStatus>{0}) << std::strerror(code);
  }
}

TEST(AsyncIo, AFullDiskIsAnErrorWithPathOffsetReasonAndWayOut) {
  const int fd = ::open("/dev/full", O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  Block block(kBlock);
  const IoFile full{
      .descriptor = fd, .path = "/dev/full", .is_direct = true, .advice = "; free space"};
  for (const auto& io : all_kinds(full)) {
    const std::string error = error_of(*io, {IoKind::kWrite, 12288, block.data(), kBlock});
    for (const char* part :
         {"cannot write /dev/full", "12288", "No space left on device", "; free space"}) {
      EXPECT_NE(error.find(part), std::string::npos) << io->name() << ": " << error;
    }
    EXPECT_NE(error_of(*io, {IoKind::kWrite, 0, block.data(), kBlock}), "") << "a second one";
  }
  ::close(fd);
}

TEST(AsyncIo, AWriteThatStopsHalfwayNamesTheByteItStoppedAt) {
  const auto exits = harness::fork_processes(1, [](int) {
    const harness::TemporaryFolder folder;
    const TestFile file(folder.path(), kNumBlocks * kBlock);
    Block block(kBlock);
    block.fill(0);
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kBlock + 8192, kBlock + 8192};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (const auto& io : all_kinds(file.io())) {
      const std::string error = error_of(*io, {IoKind::kWrite, kBlock, block.data(), kBlock});
      EXPECT_NE(error.find(concat("byte ", kBlock + 8192, ": File too large")), std::string::npos)
          << io->name() << ": " << error;
    }
  });
  EXPECT_EQ(exits, std::vector<harness::ExitStatus>{0});
}

TEST(AsyncIo, AReadBeyondTheFilesEndIsAnError) {
  const harness::TemporaryFolder folder;
  const TestFile file(folder.path(), kBlock);
  Block block(2 * kBlock);
  for (const auto& io : all_kinds(file.io())) {
    const std::string error = error_of(*io, {IoKind::kRead, 0, block.data(), 2 * kBlock});
    EXPECT_NE(error.find("cannot read"), std::string::npos) << error;
    EXPECT_NE(error.find("Input/output error"), std::string::npos) << error;
  }
}

TEST(AsyncIo, GoesOnceTheRequestsInFlightHaveEnded) {
  const harness::TemporaryFolder folder;
  const TestFile file(folder.path(), kNumBlocks * kBlock);
  for (size_t kind = 0; kind < all_kinds(file.io()).size(); ++kind) {
    std::vector<std::unique_ptr<Block>> written, read;
    const auto start_all = [&](AsyncIo& io, IoKind what,
                               std::vector<std::unique_ptr<Block>>& blocks) {
      for (int i = 0; i < kNumBlocks; ++i) io.start({what, i * kBlock, blocks[i]->data(), kBlock});
    };
    for (int i = 0; i < kNumBlocks; ++i) {
      for (auto* blocks : {&written, &read}) blocks->push_back(std::make_unique<Block>(kBlock));
      written[i]->fill(static_cast<int>(kind) * kNumBlocks + i);
      read[i]->fill(250);
    }
    start_all(*std::move(all_kinds(file.io())[kind]), IoKind::kWrite, written);
    start_all(*std::move(all_kinds(file.io())[kind]), IoKind::kRead, read);
    for (int i = 0; i < kNumBlocks; ++i)
      EXPECT_TRUE(*read[i] == *written[i]) << kind << " block " << i;
  }
}

}  // namespace
}  // namespace trireme
