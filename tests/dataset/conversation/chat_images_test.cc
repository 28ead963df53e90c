#include "trireme/dataset/conversation/chat_images.h"

#include <algorithm>

#include "tests/dataset/data.h"
#include "tests/dataset/image/encoded.h"

namespace trireme::dataset {
namespace {

using Paths = std::vector<std::string>;

Paths images_of(const std::string& line) { return images_of_line(line, "chat.jsonl:7"); }

TEST(ChatImages, PathsAreThoseOfThePlacesInTheirOrder) {
  EXPECT_EQ(images_of(R"({"messages": [{"role": "user", "content": "Hi"}]})"), Paths());
  EXPECT_EQ(images_of(R"({"image": "a.png", "messages": [{"content": "<image> What?"}]})"),
            Paths({"a.png"}));
  EXPECT_EQ(images_of(R"({"images": ["a.png", "b.png"], "conversations": [
                          {"value": "<image><image>"}, {"value": "Two."}]})"),
            Paths({"a.png", "b.png"}));
  // A part with a path takes none of those beside the messages.
  EXPECT_EQ(images_of(R"({"image": "b.png", "messages": [{"content": [
                          {"type": "image", "path": "a.png"}, {"type": "text", "text": "<image>"},
                          {"type": "image_url", "url": "file:///c.png"}, {"type": "image"}]}]})"),
            Paths({"a.png", "/c.png", "b.png"}));
  EXPECT_EQ(images_of(R"({"image": null, "messages": "none"})"), Paths());
}

TEST(ChatImages, WrongLinesAreRefusedWithTheirPlace) {
  const auto expect = [](const std::string& line, const std::vector<std::string>& parts) {
    expect_config_error([&] { images_of(line); }, parts);
  };
  expect("[]", {"chat.jsonl:7"});
  expect("{", {"chat.jsonl:7"});
  expect(R"({"image": "a.png", "messages": []})", {"chat.jsonl:7 has 0 times <image>", "1 files"});
  expect(R"({"messages": [{"content": "<image>"}]})", {"has 1 times <image>", "names 0 files"});
  for (const char* const path : {"https://a.b/c.png", "data:image/png;base64,AA", ""}) {
    expect(concat(R"({"image": ")", path, R"(", "messages": [{"content": "<image>"}]})"),
           {"chat.jsonl:7", "download it first"});
  }
  expect(R"({"image": 7, "messages": [{"content": "<image>"}]})", {"chat.jsonl:7"});
}

TEST(ChatImages, EachPlaceBecomesTokensThatNobodyLearns) {
  const ChatTokens text{.tokens = {1, 9, 2, 9}, .learnt = {0, 1, 1, 0}};
  const ChatTokens whole = with_image_tokens(text, 9, 3, 2, "x:1");
  EXPECT_EQ(whole.tokens, (std::vector<int32_t>{1, 9, 9, 9, 2, 9, 9, 9}));
  EXPECT_EQ(whole.learnt, (std::vector<int32_t>{0, 0, 0, 0, 1, 0, 0, 0}));
  expect_config_error([&] { with_image_tokens(text, 9, 3, 1, "x:1"); },
                      {"x:1 has 1 images", "the chat template writes 2 times <image>"});
}

// Of the same size, and of two shapes whose middle is the same.
TEST(ChatImages, AnImageIsTheSquareInItsMiddle) {
  const TemporaryFolder folder;
  const Picture made = picture(6, 6);
  write_text(folder / "a.png", png_of(made));
  Picture wide{6, 10, {}}, high{10, 6, {}};
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 10; ++x) {
      for (int c = 0; c < 3; ++c) {
        const bool is_inside = x >= 2 && x < 8;
        wide.values.push_back(is_inside ? made.at(y, x - 2, c) : 0);
      }
    }
  }
  high.values.assign(2 * 6 * 3, 0);
  high.values.insert(high.values.end(), made.values.begin(), made.values.end());
  high.values.resize(10 * 6 * 3, 0);
  write_text(folder / "wide.png", png_of(wide));
  write_text(folder / "high.png", png_of(high));
  const std::vector<int32_t> values = read_chat_image(folder / "a.png", 6, "x:1");
  ASSERT_EQ(values.size(), 3 * 6 * 6);
  for (int y = 0; y < 6; ++y) {
    for (int x = 0; x < 6; ++x) {
      for (int c = 0; c < 3; ++c) {
        ASSERT_EQ(values[static_cast<size_t>((c * 6 + y) * 6 + x)], made.at(y, x, c));
      }
    }
  }
  EXPECT_EQ(read_chat_image(folder / "wide.png", 6, "x:1"), values);
  EXPECT_EQ(read_chat_image(folder / "high.png", 6, "x:1"), values);
}

TEST(ChatImages, ALongThinImageHasASquareToo) {
  const TemporaryFolder folder;
  write_text(folder / "thin.png", png_of(picture(1, 301)));
  for (const int64_t size : {1, 2, 7, 40}) {
    EXPECT_EQ(std::ssize(read_chat_image(folder / "thin.png", size, "x:1")), 3 * size * size);
  }
}

TEST(ChatImages, MissingAndDamagedFilesAreNamed) {
  const TemporaryFolder folder;
  expect_config_error([&] { read_chat_image(folder / "none.png", 4, "x:1"); },
                      {"x:1: ", "none.png is no file"});
  std::filesystem::create_directory(folder / "folder.png");
  expect_config_error([&] { read_chat_image(folder / "folder.png", 4, "x:1"); }, {"is no file"});
  const std::string bytes = png_of(picture(6, 6));
  write_text(folder / "cut.png", bytes.substr(0, bytes.size() / 2));
  expect_config_error([&] { read_chat_image(folder / "cut.png", 4, "x:1"); }, {"x:1: ", "cut.png"});
  write_text(folder / "text.png", "no image");
  expect_config_error([&] { read_chat_image(folder / "text.png", 4, "x:1"); }, {"text.png"});
}

}  // namespace
}  // namespace trireme::dataset
