#include "trireme/checkpoint/foreign/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/foreign/forged.h"
#include "tests/checkpoint/foreign/torch_files.h"
#include "tests/checkpoint/saved.h"
#include "tests/harness/temporary_folder.h"

namespace trireme::checkpoint {
namespace {

using harness::TemporaryFolder;
using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Files of real torch.save, made once.
class StateDictSourceOfTorch : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    run_torch("state_dicts " + folder_->path().string());
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path path(const std::string& name) { return *folder_ / name; }
  static std::string error(const std::string& name) {
    const std::string message = checkpoint_error([&] { open_tensors(path(name)); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }

 private:
  static inline std::unique_ptr<TemporaryFolder> folder_;
};

TEST_F(StateDictSourceOfTorch, EveryDtypeAndViewReadsWithTheSameBits) {
  const auto source = open_tensors(path("plain.pt"));
  EXPECT_EQ(source->kind(), "a state dict of PyTorch");
  expect_tensors(*source, path("plain.pt"));
}

TEST_F(StateDictSourceOfTorch, EveryProtocolReads) {
  for (const char* name : {"protocol3.pt", "protocol4.pt", "protocol5.pt"}) {
    expect_tensors(*open_tensors(path(name)), path("plain.pt"));
  }
}

TEST_F(StateDictSourceOfTorch, NestedDictsAreFlattenedAndOtherValuesLeftOut) {
  expect_tensors(*open_tensors(path("trainer.pt")), path("trainer.pt"));
}

TEST_F(StateDictSourceOfTorch, AFolderOfShardsAndAFolderOfOneFileRead) {
  expect_tensors(*open_tensors(path("sharded")), path("plain.pt"));
  const TemporaryFolder folder;
  std::filesystem::copy(path("plain.pt"), folder / "pytorch_model.bin");
  expect_tensors(*open_tensors(folder.path()), path("plain.pt"));
}

TEST_F(StateDictSourceOfTorch, OtherFormsOfTorchSaveAreRefusedWithAdvice) {
  EXPECT_THAT(error("legacy.pt"), AllOf(HasSubstr("before PyTorch 1.6"), HasSubstr("torch.load")));
  EXPECT_THAT(error("tensor.pt"), HasSubstr("is one tensor without a name"));
  EXPECT_THAT(error("deflated.pt"), HasSubstr("is compressed; torch.save does not compress"));
  EXPECT_THAT(error("counter.pt"), HasSubstr("refers to collections.Counter"));
}

TEST_F(StateDictSourceOfTorch, CodeInAFileIsRefusedAndNotRun) {
  EXPECT_THAT(error("evil.pt"),
              AllOf(HasSubstr("refers to posix.system"), HasSubstr("it is not loaded")));
  EXPECT_FALSE(std::filesystem::exists(path("executed")));
}

std::string error_of_state_dict(const std::string& pickle) {
  const TemporaryFolder folder;
  overwrite(folder / "a.pt", archive_of(pickle));
  return checkpoint_error([&] { StateDictSource(folder / "a.pt"); });
}

TEST(StateDictSource, ANameThatOccursTwiceIsRefused) {
  Pickler same, nested;
  same.empty_dict().mark();
  for (int repeat = 0; repeat < 2; ++repeat) add_tensor(same.text("a"), {});
  same.set_items();
  EXPECT_THAT(error_of_state_dict(same.finish()), HasSubstr("has the tensor \"a\" twice"));
  nested.empty_dict().mark();
  add_tensor(nested.text("a.b"), {});
  nested.text("a").empty_dict().mark();
  add_tensor(nested.text("b"), {});
  nested.set_items().set_items();
  EXPECT_THAT(error_of_state_dict(nested.finish()), HasSubstr("has the tensor \"a.b\" twice"));
}

TEST(StateDictSource, ANameThatIsNotTextIsRefused) {
  for (const std::string& name :
       {std::string("a\nb"), std::string("\xff"), std::string(5000, 'a')}) {
    Pickler pickler;
    pickler.empty_dict().mark();
    add_tensor(pickler.text(name), {});
    EXPECT_THAT(error_of_state_dict(pickler.set_items().finish()),
                AllOf(HasSubstr("expected UTF-8 of at most 4096 bytes"), Not(HasSubstr("\n"))));
  }
  Pickler none;
  none.empty_dict().mark();
  add_tensor(none.none(), {});
  EXPECT_THAT(error_of_state_dict(none.set_items().finish()), HasSubstr("None; expected a string"));
}

// A list of ten references to a list of ten references to ..., and a list that contains itself.
TEST(StateDictSource, ValuesThatExplodeOrGoRoundAreRefused) {
  std::string bomb = "\x80\x02]\x94";
  for (char level = 1; level < 30; ++level) {
    bomb += "](";
    for (int repeat = 0; repeat < 10; ++repeat) bomb += {'h', static_cast<char>(level - 1)};
    bomb += "e\x94";
  }
  // Only the last value is left: a tuple takes the others.
  EXPECT_THAT(error_of_state_dict("\x80\x02(" + bomb.substr(2) + "t."),
              HasSubstr("a tree of at most 268435456 bytes"));
  EXPECT_THAT(error_of_state_dict("\x80\x02]\x94h"
                                  "\0"
                                  "a."s),
              HasSubstr("nested at most 32 deep"));
}

TEST(StateDictSource, DeepNestingIsRefused) {
  const std::string deep = "\x80\x02" + std::string(100'000, ']') + std::string(99'999, 'a') + ".";
  EXPECT_THAT(error_of_state_dict(deep), HasSubstr("nested at most 32 deep"));
}

}  // namespace
}  // namespace trireme::checkpoint
