#include "trireme/comm/rendezvous/job_store.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/comm/errors.h"
#include "tests/comm/rendezvous/sockets.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kPatience{20'000};

WorldInfo info_of(int rank, int size, const std::string& store) {
  return {.rank = rank, .size = size, .job = "galley", .store = store, .is_one_host = false};
}

JobStore join(const WorldInfo& info, std::chrono::milliseconds timeout = kPatience) {
  return join_job_store(info, {.timeout = timeout});
}

std::string tcp(const std::string& host, uint16_t port) {
  return concat("tcp://", host, ":", port);
}

class JobStores : public testing::Test {
 protected:
  void SetUp() override { TearDown(); }
  void TearDown() override {
    unsetenv("TRIREME_TOKEN");
    unsetenv("TRIREME_TOKEN_FILE");
  }
  // What libtorch writes to stderr before an error counts as well.
  template <typename ErrorType, typename Call>
  void expect_one_line(const Call& call, const std::string& part) {
    testing::internal::CaptureStderr();
    const std::string text = error_of<ErrorType>(call);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_PRED2(contains, text, part);
    EXPECT_FALSE(contains(text, "\n")) << text;
  }
  const harness::TemporaryFolder folder_;
};

TEST_F(JobStores, OnThisHostNeedNoToken) {
  Port port;
  const std::string store = tcp("127.0.0.1", port.number());
  port.release();
  const JobStore zero = join(info_of(0, 2, store));
  const JobStore one = join(info_of(1, 2, store));
  EXPECT_NE(zero.server, nullptr);
  EXPECT_EQ(one.server, nullptr);
  one.store->set("oars", std::string("170"));
  EXPECT_EQ(zero.store->get_to_str("oars"), "170");
}

TEST_F(JobStores, ThatOtherHostsReachNeedATokenOnEveryRank) {
  Port port;
  const std::string store = tcp("0.0.0.0", port.number());
  port.release();
  for (const int rank : {0, 1}) {
    expect_one_line<ConfigError>([&] { join(info_of(rank, 2, store)); },
                                 "other hosts can reach the store at 0.0.0.0:");
    expect_one_line<ConfigError>([&] { join(info_of(rank, 2, store)); },
                                 "head -c 32 /dev/urandom | base64 > ~/.trireme-token");
  }
  setenv("TRIREME_TOKEN", "three banks of oars", 1);
  const JobStore zero = join(info_of(0, 2, store));
  const JobStore one = join(info_of(1, 2, store));
  one.store->set("oars", std::string("170"));
  EXPECT_EQ(zero.store->get_to_str("oars"), "170");
  setenv("TRIREME_TOKEN", "three banks of oarsmen", 1);
  expect_one_line<ConfigError>([&] { join(info_of(1, 2, store)); }, "its token is a different one");
  EXPECT_PRED2(contains, zero.server->refusals(), "1 from 127.0.0.1 (wrong token)");
}

TEST_F(JobStores, MayListenElsewhereThanTheyAreReached) {
  Port port;
  const std::string store = tcp("127.0.0.1", port.number());
  port.release();
  WorldInfo zero = info_of(0, 2, store);
  zero.listen = "127.0.0.3";
  const JobStore server = join(zero);
  EXPECT_EQ(server.host, "127.0.0.1") << "where the others reach it";
  const JobStore one = join(info_of(1, 2, tcp("127.0.0.3", port.number())));
  one.store->set("oars", std::string("170"));
  EXPECT_EQ(server.store->get_to_str("oars"), "170");
}

TEST_F(JobStores, AddressesThatCannotBeUsedAreConfigErrorsOfOneLine) {
  expect_one_line<ConfigError>([] { join(info_of(0, 1, "")); },
                               "no store to meet over; set MASTER");
  expect_one_line<ConfigError>([] { join(info_of(0, 1, "pigeon")); }, "(\"pigeon\")");
  for (const int rank : {0, 1}) {
    for (const bool launcher_serves : {false, true}) {
      WorldInfo info = info_of(rank, 2, "tcp://nohost.invalid:29500");
      info.launcher_serves_store = launcher_serves;
      expect_one_line<ConfigError>([&] { join(info); }, "\"nohost.invalid\" does not resolve");
    }
  }
  Port port;
  port.listen();
  expect_one_line<ConfigError>([&] { join(info_of(0, 1, tcp("127.0.0.1", port.number()))); },
                               "of this host is in use");
  setenv("TRIREME_TOKEN", "three banks of oars", 1);
  expect_one_line<ConfigError>([&] { join(info_of(0, 1, tcp("198.51.100.7", port.number()))); },
                               "is not an address of this host");
}

TEST_F(JobStores, AStoreThatNobodyServesIsACommErrorOfOneLine) {
  Port port;
  for (const bool launcher_serves : {false, true}) {
    WorldInfo info = info_of(1, 2, tcp("127.0.0.1", port.number()));
    info.launcher_serves_store = launcher_serves;
    expect_one_line<CommError>([&] { join(info, std::chrono::milliseconds(150)); },
                               "within 0.15 s: Connection refused; ");
  }
}

TEST_F(JobStores, OfTorchrunsAgentAreJoinedByAllRanks) {
  Port port;
  c10d::TCPStoreOptions options;
  options.port = port.number();
  options.isServer = true;
  options.waitWorkers = false;
  port.release();
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  for (const int rank : {0, 1}) {
    WorldInfo info = info_of(rank, 2, tcp("127.0.0.1", port.number()));
    info.launcher_serves_store = true;
    const JobStore joined = join(info);
    EXPECT_EQ(joined.server, nullptr);
    joined.store->set(std::to_string(rank), std::string("here"));
  }
  EXPECT_EQ(agent->get_to_str("trireme/galley/0"), "here");
  EXPECT_EQ(agent->get_to_str("trireme/galley/1"), "here");
}

TEST_F(JobStores, InAFileAreThisUsersAlone) {
  const std::string path = folder_ / "store";
  const JobStore joined = join(info_of(0, 1, "file:" + path));
  joined.store->set("oars", std::string("170"));
  EXPECT_EQ(joined.store->get_to_str("oars"), "170");
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(JobStores, FilesThatCannotBeUsedAreConfigErrorsOfOneLineAtOnce) {
  const auto refuse = [&](const std::string& path, const std::string& part) {
    expect_one_line<ConfigError>([&] { join(info_of(0, 1, "file:" + path)); }, part);
  };
  refuse(folder_.path(), "Is a directory");
  refuse(folder_ / "missing" / "store", "No such file or directory");
  refuse("/proc/1/store", "which cannot be made or opened");
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  refuse(pipe, "which is not a regular file");
  const std::string link = folder_ / "link";
  std::filesystem::create_symlink(folder_ / "target", link);
  refuse(link, "it is a link");
  refuse("/dev/null", "which is not a regular file");
}

TEST_F(JobStores, AFileOfSomethingElseIsLeftAsItIs) {
  const std::string path = folder_ / "store";
  { const JobStore joined = join(info_of(0, 2, "file:" + path)); }  // its rank 1 never came
  const std::string store = read_file(path);
  ASSERT_GT(store.size(), 30u);
  std::vector<std::string> contents = {"[model]\nlayers = 2\n", std::string(1000, '\xff'),
                                       std::string(1000, '\0'), "x", store + "\xff\xff\xff\xff"};
  for (size_t cut = 1; cut < store.size(); ++cut) {
    // What ends with a value is a store, of a job that said less.
    contents.push_back(store.substr(0, cut));
  }
  int refused = 0;
  for (const std::string& content : contents) {
    std::ofstream(path, std::ios::binary) << content;
    try {
      join(info_of(0, 2, "file:" + path));
    } catch (const ConfigError& error) {
      ++refused;
      EXPECT_PRED2(contains, error.what(), "which holds something other than a store; name a new");
      EXPECT_EQ(read_file(path), content);
    }
  }
  EXPECT_GE(refused, 30);
}

}  // namespace
}  // namespace trireme::comm
