#include "trireme/comm/shared/heap.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "tests/comm/errors.h"
#include "tests/comm/shared/kept_segments.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/shared/collectives.h"
#include "trireme/comm/shared/message_rings.h"
#include "trireme/comm/shared/shared_communicator.h"

namespace trireme::comm {
namespace {

constexpr size_t kPeerArena = 1 << 20;
constexpr size_t kPeerCount = 1000;
constexpr size_t kPeerBytes = kPeerCount * sizeof(float);
constexpr float kOurs = 1;
constexpr auto kTheirs = std::bit_cast<float>(0x40404040);  // at every byte the same

using Floats = std::vector<float>;

collectives::Bytes bytes_of(Floats& values) { return std::as_writable_bytes(std::span(values)); }

// Writes memory that a rank is using, as no rank should.
__attribute__((no_sanitize("thread"))) void rewrite(volatile uint64_t& word, uint64_t from,
                                                    uint64_t to) {
  while (word != from) sched_yield();
  word = to;
}
__attribute__((no_sanitize("thread"))) void overwrite(volatile uint64_t& word, uint64_t value) {
  word = value;
}

// A rank as it should be, and a peer of which a test writes every word that travels. All memory
// that the peer could mean holds kTheirs.
class Pair {
 public:
  explicit Pair(size_t slot_bytes) : options_{"pair", slot_bytes, std::chrono::seconds(60)} {
    const size_t heap_offset = round_up(Exchange::segment_bytes(2, options_), 4096);
    segment_ = make_thread_segments()->create("pair", 0, {heap_offset, 2 * kPeerArena});
    heap_ = Heap::in(segment_, heap_offset, kPeerArena, 0, 2);
    ours_ = std::make_unique<Exchange>(segment_, 0, 2, options_);
    theirs_ = std::make_unique<Exchange>(segment_, 1, 2, options_);
    fill({heap_->at(0), 2 * kPeerArena});
    for (int phase = 0; phase < 2; ++phase) {
      fill({theirs_->mine(), slot_bytes});
      meet();
    }
  }
  Exchange& theirs() { return *theirs_; }
  std::byte* our_slot() { return ours_->mine(); }
  collectives::Shared shared() { return {*ours_, *heap_}; }

  // Our rank's error in `function`; empty when it succeeds. The peer posts what is in its note and
  // slot, does `before`, and then takes part in whatever comes.
  template <typename Function>
  std::string error_of(
      const Function& function, const std::function<void()>& before = [] {}) {
    ours_->begin({"test"}, {});
    theirs_->begin({"test"}, {});
    std::thread peer([&] {
      try {
        before();
        for (int i = 0; i < 4; ++i) theirs_->meet();
      } catch (const CommError&) {
      }
      theirs_.reset();  // our rank waits no longer
    });
    std::string error;
    try {
      function();
    } catch (const CommError& caught) {
      error = caught.what();
    }
    ours_->abort("the test is over");
    peer.join();
    return error;
  }

 private:
  static void fill(std::span<std::byte> memory) {
    std::fill_n(reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float), kTheirs);
  }
  void meet() {
    ours_->begin({"test"}, {});
    theirs_->begin({"test"}, {});
    std::thread peer([&] { theirs_->meet(); });
    ours_->meet();
    peer.join();
  }

  ExchangeOptions options_;
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<Heap> heap_;
  std::unique_ptr<Exchange> ours_;
  std::unique_ptr<Exchange> theirs_;
};

// What a peer says of one of its blocks, as collectives.cc lays it out in front of a slot.
struct Entry {
  uint64_t place, size, expected;
};
Entry& entry_for_us(Pair& pair) { return *reinterpret_cast<Entry*>(pair.theirs().mine()); }
Entry& entry_for_itself(Pair& pair) { return (&entry_for_us(pair))[1]; }

enum class Kind { kAllReduce, kReduceScatter, kShare, kAllToAll };
constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kReduceScatter, Kind::kShare, Kind::kAllToAll};

// Our rank's part in a collective with blocks of kPeerCount floats.
struct Collective {
  Kind kind;
  Floats input = Floats(kPeerCount, kOurs);
  Floats other = Floats(kPeerCount, kOurs);
  Floats output = Floats(kPeerCount, 0);
  Floats own = Floats(kPeerCount, 0);

  void run(const collectives::Shared& shared) {
    const collectives::Reduction sum{at::kFloat, ReduceOp::kSum};
    const collectives::ConstBytes inputs[] = {bytes_of(input), bytes_of(other)};
    const collectives::Bytes outputs[] = {bytes_of(own), bytes_of(output)};
    switch (kind) {
      case Kind::kAllReduce:
        output = input;
        return collectives::all_reduce(shared, bytes_of(output), sum);
      case Kind::kReduceScatter:
        return collectives::reduce_scatter(shared, bytes_of(output), inputs, sum);
      case Kind::kShare: return collectives::share(shared, outputs, inputs[0]);
      case Kind::kAllToAll: return collectives::all_to_all(shared, outputs, inputs);
    }
  }
  // A sum of both, or the peer's own word for one.
  bool is_right() const {
    return std::ranges::all_of(output, [&](float value) {
      const bool is_sum = kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
      return value == kTheirs || (is_sum && value == kOurs + kTheirs);
    });
  }
};

// The peer's words of a well-behaved call whose block lies at `place`.
void post(Pair& pair, Kind kind, uint64_t place) {
  const bool is_symmetric = place != Heap::kOrdinary;
  Exchange::Note& note = pair.theirs().note();
  switch (kind) {
    case Kind::kAllReduce: note[0] = place; break;
    case Kind::kReduceScatter:
      note[0] = is_symmetric ? 1 : 0;
      note[1] = is_symmetric ? 0 : 1;
      entry_for_us(pair).place = place;
      break;
    case Kind::kShare:
      note[0] = place;
      note[1] = kPeerBytes;
      break;
    case Kind::kAllToAll:
      entry_for_us(pair) = {place, kPeerBytes, kPeerBytes};
      entry_for_itself(pair) = {Heap::kOrdinary, kPeerBytes, kPeerBytes};
      break;
  }
}

TEST(PeerMemory, CollectivesTakePlacesWithinTheHeap) {
  for (const Kind kind : kKinds) {
    for (const uint64_t place :
         {uint64_t{0}, kPeerArena - kPeerBytes, 2 * kPeerArena - kPeerBytes}) {
      Pair pair(16 << 10);
      Collective call{kind};
      post(pair, kind, place);
      EXPECT_EQ(pair.error_of([&] { call.run(pair.shared()); }), "");
      EXPECT_TRUE(call.is_right()) << static_cast<int>(kind) << " at " << place;
    }
  }
}

TEST(PeerMemory, CollectivesRefusePlacesOutsideOfTheHeapAndNameThePeer) {
  const uint64_t places[] = {2 * kPeerArena,    2 * kPeerArena - kPeerBytes + 64,
                             kPeerArena - 64,  // into the next arena
                             ~uint64_t{0} - 1,  ~uint64_t{0} - kPeerBytes,
                             uint64_t{1} << 46, uint64_t{1} << 63};
  for (const Kind kind : kKinds) {
    for (const uint64_t place : places) {
      Pair pair(16 << 10);
      Collective call{kind};
      post(pair, kind, place);
      const std::string error = pair.error_of([&] { call.run(pair.shared()); });
      EXPECT_PRED2(contains, error, "test #3 of group pair (2 ranks)");
      EXPECT_PRED2(contains, error,
                   concat("rank 1 says that its ", kPeerBytes, " bytes lie at ", place));
    }
  }
}

TEST(PeerMemory, SumsRefuseAPlaceBetweenTwoElements) {
  for (const Kind kind : {Kind::kAllReduce, Kind::kReduceScatter}) {
    Pair pair(16 << 10);
    Collective call{kind};
    post(pair, kind, 66);
    EXPECT_PRED2(contains, pair.error_of([&] { call.run(pair.shared()); }), "lie at 66 in");
  }
}

TEST(PeerMemory, ReduceScatterRefusesABlockThatIsNeitherStagedNorSymmetric) {
  Pair pair(4 << 10);  // a block is more than the peer's share of its slot
  Collective call{Kind::kReduceScatter};
  post(pair, Kind::kReduceScatter, Heap::kOrdinary);
  pair.theirs().note()[1] = 0;
  EXPECT_PRED2(contains, pair.error_of([&] { call.run(pair.shared()); }),
               "rank 1 says that it stages nothing, and stages 4000 bytes");
}

TEST(PeerMemory, OtherSizesThanOursAreRefused) {
  for (const uint64_t size : {uint64_t{0}, kPeerBytes - 4, kPeerBytes + 4, ~uint64_t{0}}) {
    Pair pair(16 << 10);
    Collective call{Kind::kShare};
    post(pair, Kind::kShare, Heap::kOrdinary);
    pair.theirs().note()[1] = size;
    EXPECT_PRED2(contains, pair.error_of([&] { call.run(pair.shared()); }),
                 concat("rank 1 sends ", size, " bytes to rank 0, which expects 4000"));
  }
  for (const uint64_t size : {uint64_t{0}, kPeerBytes - 4, ~uint64_t{0}}) {
    for (const bool sends : {false, true}) {
      Pair pair(16 << 10);
      Collective call{Kind::kAllToAll};
      post(pair, Kind::kAllToAll, Heap::kOrdinary);
      (sends ? entry_for_us(pair).size : entry_for_us(pair).expected) = size;
      EXPECT_PRED2(contains, pair.error_of([&] { call.run(pair.shared()); }),
                   sends ? concat("rank 1 sends ", size, " bytes to rank 0, which expects 4000")
                         : concat("rank 0 sends 4000 bytes to rank 1, which expects ", size));
    }
  }
}

// Our own words, changed before we look at the peer's: we compare with what we know ourselves.
TEST(PeerMemory, ASizeOfOursThatThePeerHasRewrittenIsNotBelieved) {
  Pair pair(16 << 10);
  Collective call{Kind::kAllToAll};
  call.output = Floats(kPeerCount / 2, 0);  // what we expect of the peer
  post(pair, Kind::kAllToAll, Heap::kOrdinary);
  uint64_t* const expected = &reinterpret_cast<Entry*>(pair.our_slot())[1].expected;
  const auto rewrite_ours = [&] { rewrite(*expected, kPeerBytes / 2, kPeerBytes); };
  EXPECT_PRED2(contains, pair.error_of([&] { call.run(pair.shared()); }, rewrite_ours),
               "rank 1 sends 4000 bytes to rank 0, which expects 2000");
}

// Any words at all: an error, or sums and copies of what is there. In a process of its own, so that
// a crash is a failure like others.
TEST(PeerMemory, RandomWordsOfAPeerEndInAnErrorOrInRightData) {
  const auto statuses = harness::fork_processes(1, [](int) {
    std::mt19937_64 random(7);
    const auto word = [&]() -> uint64_t {
      const uint64_t any = random();
      switch (random() % 8) {
        case 0: return Heap::kOrdinary;
        case 1: return any % 4;
        case 2: return any % (2 * kPeerArena);
        case 3: return any % (2 * kPeerArena) / 64 * 64;
        case 4: return kPeerBytes;
        case 5: return uint64_t{1} << any % 64;
        case 6: return Heap::kOrdinary - any % (2 * kPeerBytes);
        default: return any;
      }
    };
    int num_errors = 0;
    constexpr int kRounds = 300;
    for (int round = 0; round < kRounds; ++round) {
      Pair pair(random() % 2 == 0 ? 4 << 10 : 16 << 10);
      Collective call{kKinds[random() % 4]};
      post(pair, call.kind, random() % 2 == 0 ? Heap::kOrdinary : word());
      if (random() % 2 == 0) pair.theirs().note()[random() % 2] = word();
      const bool has_entries = call.kind == Kind::kReduceScatter || call.kind == Kind::kAllToAll;
      uint64_t* const entries = &entry_for_us(pair).place;
      if (has_entries && random() % 2 == 0) entries[random() % 6] = word();
      const std::string error = pair.error_of([&] { call.run(pair.shared()); });
      num_errors += error.empty() ? 0 : 1;
      EXPECT_TRUE(!error.empty() || call.is_right()) << "round " << round;
    }
    EXPECT_GT(num_errors, kRounds / 8);
    EXPECT_LT(num_errors, kRounds * 7 / 8);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

TEST(PeerMemory, TextEndsWithItsMemoryAndHasNoControlCharacters) {
  const char unended[4] = {'a', 'b', 'c', 'd'};
  EXPECT_EQ(text_of_peer(unended), "abcd");
  EXPECT_EQ(text_of_peer("a\0b"), "a");
  EXPECT_EQ(text_of_peer("\x1b[2J\n\x7fü"), "?[2J??ü");
}

// The words of a call that differs, all of them wrong: an unended name, and no such reduction.
TEST(PeerMemory, ACallThatCannotBeIsStillReported) {
  const ExchangeOptions options{"pair", 4096, std::chrono::seconds(60)};
  const size_t num_bytes = Exchange::segment_bytes(2, options);
  const auto segment = make_thread_segments()->create("pair", 0, {num_bytes});
  Exchange ours(segment, 0, 2, options);
  Exchange theirs(segment, 1, 2, options);
  ours.begin({"barrier"}, {});
  theirs.begin({"peers-call", 1, 1, 1, 1, 1}, {});
  const std::string name = "peers-call";
  auto* const memory = reinterpret_cast<char*>(segment->data());
  char* const found = std::search(memory, memory + num_bytes, name.begin(), name.end());
  ASSERT_NE(found, memory + num_bytes);
  std::fill_n(found, 56, 'A');  // the name and the numbers behind it
  std::thread peer([&] { EXPECT_ERROR(CommError, theirs.meet(), "different operations"); });
  EXPECT_ERROR(CommError, ours.meet(), "rank 1 " + std::string(24, 'A') + "(");
  peer.join();
}

TEST(PeerMemory, AReasonWithoutAnEndIsCutAtItsEnd) {
  const ExchangeOptions options{"pair", 4096, std::chrono::seconds(60)};
  const auto segment =
      make_thread_segments()->create("pair", 0, {Exchange::segment_bytes(2, options)});
  Exchange ours(segment, 0, 2, options);
  Exchange theirs(segment, 1, 2, options);
  theirs.abort(std::string(1000, 'B'));
  auto* const memory = reinterpret_cast<char*>(segment->data());
  char* const reason = std::search_n(memory, memory + 4096, 100, 'B');  // a nonce has few
  std::fill_n(reason, 2000, 'B');
  const std::string error = error_of<CommError>([&] { ours.check_aborted(); });
  EXPECT_GT(error.size(), 400u);
  EXPECT_LT(error.size(), 500u);
}

// What a rank does with the others, until an error.
void take_part(Communicator& group) {
  const Options soon{.timeout = std::chrono::milliseconds(200)};
  const int next = (group.rank() + 1) % group.size();
  const int last = (group.rank() + group.size() - 1) % group.size();
  const at::Tensor large = group.symmetric_empty({20000}, at::kFloat);
  large.fill_(1);
  for (int round = 0; round < 1000; ++round) {
    group.all_reduce(large, soon)->wait();
    std::vector<at::Tensor> blocks;
    for (int rank = 0; rank < group.size(); ++rank) blocks.push_back(at::zeros({3000}));
    group.all_gather(blocks, blocks[group.rank()], soon)->wait();
    std::vector<WorkPtr> works;
    for (int tag = 0; tag < 10; ++tag) {
      const at::Tensor& data = tag % 2 == 0 ? large : blocks[0];
      const Options behind{.timeout = soon.timeout, .tag = tag, .background = true};
      works.push_back(group.send(data, next, behind));
    }
    for (int tag = 9; tag >= 0; --tag) {
      at::Tensor got = at::empty({tag % 2 == 0 ? 20000 : 3000});
      group.recv(got, last, {.timeout = soon.timeout, .tag = tag})->wait();
    }
    for (const WorkPtr& work : works) work->wait();
  }
}

// A rank that writes anything anywhere among the words that ranks read of each other, while they
// work: whatever it does, nobody crashes.
TEST(PeerMemory, WordsThatARankScattersOverAllControlMemoryCrashNobody) {
  constexpr int kRanks = 3;
  GroupOptions options;
  options.slot_bytes = 8 << 10;
  options.heap_bytes = 4 << 20;
  options.timeout = std::chrono::seconds(2);  // of joining: the words may hide who has left
  const size_t envelopes = Exchange::segment_bytes(kRanks, {"world", options.slot_bytes});
  const size_t notes = envelopes - 2 * kRanks * options.slot_bytes;
  const size_t num_envelope_bytes = MessageRings::segment_size(kRanks).committed;
  for (int seed = 0; seed < 16; ++seed) {
    const std::string job = harness::unique_job();
    const auto statuses = harness::fork_processes(kRanks, [&](int rank) {
      const auto segments = std::make_shared<KeptSegments>(make_shm_segments());
      std::unique_ptr<SharedCommunicator> group;
      try {
        group = SharedCommunicator::join({job, segments, nullptr}, job, rank, kRanks, options);
      } catch (const CommError&) {
        return;  // rank 2 was there before this one had left the meeting
      }
      std::atomic<bool> is_over = false;
      std::thread scatterer([&] {
        std::mt19937_64 random(seed);
        std::byte* const memory = segments->last()->data();
        while (rank == 2 && !is_over.load()) {
          const bool is_note = random() % 2 == 0;
          const size_t offset =
              is_note ? random() % notes : envelopes + random() % num_envelope_bytes;
          const uint64_t any = random();
          const uint64_t words[] = {0, 1, any % 8, ~uint64_t{0}, uint64_t{1} << any % 64, any};
          overwrite(*reinterpret_cast<uint64_t*>(memory + offset / 8 * 8), words[random() % 6]);
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
      });
      try {
        take_part(*group);
      } catch (const CommError&) {
      }
      is_over.store(true);
      scatterer.join();
    });
    EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(kRanks, 0)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trireme::comm
