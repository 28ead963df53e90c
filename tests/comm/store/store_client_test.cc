#include "trireme/comm/store/store_client.h"

#include <atomic>
#include <future>
#include <thread>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tests/comm/errors.h"
#include "tests/comm/rendezvous/sockets.h"
#include "trireme/base/error.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

using Bytes = std::vector<uint8_t>;

StoreClientOptions rank_at(const TcpAddress& address, int rank = 0, int size = 1) {
  return {.address = address, .job = "galley", .rank = rank, .size = size};
}

std::shared_ptr<StoreServer> serve(const TcpAddress& address, int size = 1) {
  return std::make_shared<StoreServer>(listen_on(resolve(address), address),
                                       StoreServerOptions{.job = "galley", .size = size});
}

class Client : public testing::Test {
 protected:
  Client() {
    Port port;
    address_ = port.address();
    port.release();
    store_ = c10::make_intrusive<StoreClient>(rank_at(address_), serve(address_));
  }
  TcpAddress address_;
  c10::intrusive_ptr<StoreClient> store_;
};

TEST_F(Client, DoesWhatLibtorchsStoresDo) {
  store_->set("oars", std::string("170"));
  EXPECT_EQ(store_->get_to_str("oars"), "170");
  EXPECT_EQ(store_->add("n", 3), 3);
  EXPECT_EQ(store_->add("n", 4), 7);
  EXPECT_EQ(store_->get_to_str("n"), "7");
  EXPECT_EQ(store_->c10d::Store::compareSet("flag", "", "up"), "up");
  EXPECT_EQ(store_->c10d::Store::compareSet("flag", "up", "down"), "down");
  EXPECT_TRUE(store_->check({"oars", "n"}));
  EXPECT_FALSE(store_->check({"oars", "mast"}));
  EXPECT_EQ(store_->getNumKeys(), 3);
  EXPECT_TRUE(store_->deleteKey("oars"));
  EXPECT_FALSE(store_->deleteKey("oars"));
  store_->append("log", Bytes{1, 0});
  store_->append("log", Bytes{2});
  EXPECT_EQ(store_->get("log"), (Bytes{1, 0, 2}));
  store_->multiSet({"a", "b"}, {{1}, {}});
  EXPECT_EQ(store_->multiGet({"b", "a"}), (std::vector<Bytes>{{}, {1}}));
  store_->wait({"a", "b"});
}

TEST_F(Client, PrefixesAndClonesShareTheKeys) {
  c10d::PrefixStore prefixed("banks", store_);
  prefixed.set("top", std::string("thranites"));
  EXPECT_EQ(store_->get_to_str("banks/top"), "thranites");
  EXPECT_EQ(store_->clone()->get_to_str("banks/top"), "thranites");
}

TEST_F(Client, AKeyThatNeverComesIsAnErrorOfOneLine) {
  store_->setTimeout(std::chrono::milliseconds(50));
  try {
    store_->get("mast");
    ADD_FAILURE() << "expected an error";
  } catch (const c10::DistStoreError& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "timed out after 0.05 s waiting for keys of the store: mast");
  }
  store_->set("mast", std::string("pine"));
  EXPECT_EQ(store_->get_to_str("mast"), "pine");
}

TEST_F(Client, ACallThatWaitsDelaysNoOther) {
  std::vector<std::future<std::string>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::async(std::launch::async, [this, i] {
      store_->wait({"begin"}, std::chrono::seconds(60));
      return store_->get_to_str(std::to_string(i));
    }));
  }
  for (int i = 0; i < 8; ++i) store_->set(std::to_string(i), "value " + std::to_string(i));
  store_->set("begin", std::string("1"));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(waiting[i].get(), "value " + std::to_string(i));
}

TEST_F(Client, ManyThreadsAddToOneNumber) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] {
      for (int j = 0; j < 200; ++j) store_->add("n", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->add("n", 0), 1600);
}

TEST_F(Client, LargeValuesArriveWhole) {
  Bytes value(5 << 20);
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  store_->set("large", value);
  EXPECT_EQ(store_->get("large"), value);
}

TEST_F(Client, AServerThatIsGoneIsAnErrorOfOneLine) {
  Port port;
  const TcpAddress address = port.address();
  port.release();
  auto server = serve(address);
  StoreClient client(rank_at(address));
  server.reset();
  const auto error_of_a_call = [&]() -> std::string {
    try {
      client.set("oars", std::string("170"));
      return "";
    } catch (const c10::DistNetworkError& error) {
      return error.what_without_backtrace();
    }
  };
  const std::string expected =
      concat("the store of rank 0 at 127.0.0.1:", address.port, " is gone");
  EXPECT_EQ(error_of_a_call(), expected);
  server = serve(address);
  EXPECT_EQ(error_of_a_call(), expected) << "another job's, by now";
}

TEST(StoreClient, WaitsForAServerThatComesLater) {
  Port port;
  const TcpAddress address = port.address();
  port.release();
  auto early = std::async(std::launch::async, [&] {
    StoreClient client(rank_at(address, 1, 2));
    return client.add("n", 1);
  });
  EXPECT_EQ(early.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  const auto server = serve(address, 2);
  EXPECT_EQ(early.get(), 1);
}

TEST(StoreClient, NoServerIsACommErrorAtTheTimeout) {
  Port port;
  StoreClientOptions options = rank_at(port.address(), 1, 4);
  options.timeout = std::chrono::milliseconds(120);
  EXPECT_ERROR(CommError, StoreClient(options),
               concat("rank 1 of 4: no store at 127.0.0.1:", port.number(),
                      " within 0.12 s: Connection refused; rank 0 serves it"));
}

TEST(StoreClient, AServerThatSaysNothingIsACommErrorAtTheTimeout) {
  Port port;
  port.listen();
  StoreClientOptions options = rank_at(port.address());
  options.timeout = std::chrono::milliseconds(120);
  EXPECT_ERROR(CommError, StoreClient(options), "within 0.12 s: it says nothing");
}

// What listens is anything but rank 0: each says its bytes to whoever connects.
std::thread impostor(Port& port, const std::string& words) {
  port.listen();
  return std::thread([fd = port.fd(), words] {
    const Descriptor socket(accept(fd, nullptr, nullptr));
    send_all(socket.get(), words.data(), words.size(), in_seconds(20));
    char byte;
    while (recv(socket.get(), &byte, 1, 0) > 0) {
    }
  });
}

TEST(StoreClient, AnotherServiceIsToldFromAStore) {
  Port port;
  std::thread service = impostor(port, "HTTP/1.1 400 Bad Request\r\n");
  EXPECT_ERROR(ConfigError, StoreClient(rank_at(port.address())),
               concat("127.0.0.1:", port.number(), " is not a store of this version of Trireme"));
  service.join();
}

TEST(StoreClient, AServerThatDoesNotKnowTheTokenIsNotBelieved) {
  wire::Greeting greeting;
  wire::Answer welcome;
  const std::string words =
      std::string(reinterpret_cast<const char*>(&greeting), sizeof(greeting)) +
      std::string(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
  Port port;
  std::thread service = impostor(port, words);
  StoreClientOptions options = rank_at(port.address());
  options.token = "three banks of oars";
  EXPECT_ERROR(ConfigError, StoreClient(options), "does not know this job's token");
  service.join();
}

TEST(StoreClient, ANameThatDoesNotResolveIsAConfigErrorAtOnce) {
  EXPECT_ERROR(ConfigError, StoreClient(rank_at({"nohost.invalid", 29500})),
               "\"nohost.invalid\" does not resolve");
}

}  // namespace
}  // namespace trireme::comm
