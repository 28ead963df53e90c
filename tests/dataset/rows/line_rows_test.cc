#include "trireme/dataset/rows/line_rows.h"

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/dataset/rows/collected.h"
#include "tests/harness/tensors.h"
#include "trireme/dataset/samples/packed_source.h"

namespace trireme::dataset {
namespace {

class LineRowsTest : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    write_text(path, text);
    return path;
  }
  // A token for each byte, between 1 and 2.
  static std::vector<int32_t> encode(std::string_view text) {
    std::vector<int32_t> tokens = {1};
    tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.push_back(2);
    return tokens;
  }
  static std::vector<Row> read(const std::vector<std::string>& paths,
                               std::optional<TextForm> form = {}) {
    const auto rows = open_line_rows(paths, {.sequence_length = 5, .encode = encode, .form = form});
    std::vector<Row> all = collected(*rows);
    EXPECT_EQ(rows->num_done(), rows->num_total());
    return all;
  }

  TemporaryFolder folder_;
};

TEST_F(LineRowsTest, TextsArePaddedAndCut) {
  const std::vector<Row> rows = read({put("a.txt", "ab\n\n  \nabcdef\r\n{\"x\n")});
  ASSERT_EQ(rows.size(), 3U);
  harness::assert_same_bits(tensor_of(rows[0], "tokens"),
                            at::tensor({1, 'a', 'b', 2, 0}, at::kLong), "padded");
  harness::assert_same_bits(tensor_of(rows[0], "documents"),
                            at::tensor({0, 0, 0, 0, int(kPaddingDocument)}, at::kLong), "padded");
  harness::assert_same_bits(tensor_of(rows[1], "tokens"),
                            at::tensor({1, 'a', 'b', 'c', 2}, at::kLong), "cut");
  EXPECT_EQ(rows[1].number, 4) << "the line's number";
}

TEST_F(LineRowsTest, JsonLinesAreTakenByNameOrWhenAskedFor) {
  const std::string json = "{\"text\": \"ab\", \"label\": \"x\"}\n";
  const std::string named = put("a.jsonl", json), other = put("a.txt", json);
  const at::Tensor expected = at::tensor({1, 'a', 'b', 2, 0}, at::kLong);
  harness::assert_same_bits(tensor_of(read({named})[0], "tokens"), expected, "by name");
  harness::assert_same_bits(tensor_of(read({other}, TextForm::kJsonLines)[0], "tokens"), expected,
                            "asked for");
  EXPECT_EQ(tensor_of(read({named}, TextForm::kLines)[0], "tokens")[1].item<int64_t>(), '{');
}

TEST_F(LineRowsTest, WrongRowsAreNamedByFileAndLine) {
  const auto refuse = [&](const std::string& text, const std::vector<std::string>& parts) {
    const std::string path = put("wrong.jsonl", text);
    expect_config_error([&] { read({path}); }, parts);
  };
  refuse("{\"text\": \"a\"}\n{\"text\": 3}\n", {"wrong.jsonl:2", "text"});
  refuse("{\"content\": \"a\"}\n", {"wrong.jsonl:1", "text"});
  refuse("{\"text\": \"a\", \"text_pair\": \"b\"}\n", {"wrong.jsonl:1", "text_pair"});
  refuse("no json\n", {"wrong.jsonl:1"});
  refuse("", {"wrong.jsonl is empty"});
}

}  // namespace
}  // namespace trireme::dataset
