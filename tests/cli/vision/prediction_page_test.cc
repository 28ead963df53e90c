#include "trireme/cli/vision/prediction_page.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

at::Tensor picture() { return at::arange(18, at::kLong).to(at::kByte).view({3, 2, 3}); }

std::vector<Prediction> predictions(size_t num_right, size_t num_wrong) {
  std::vector<Prediction> result;
  for (size_t i = 0; i < num_right + num_wrong; ++i) {
    result.push_back({.label = 0,
                      .found = i < num_right ? 0 : 1,
                      .probability = 0.25 + 0.01 * static_cast<double>(i)});
  }
  return result;
}

// Counts the images that a page asks for.
std::string page_of(const std::vector<ClassResult>& classes, const std::vector<Prediction>& all,
                    size_t most) {
  size_t num_asked = 0;
  const std::string page = prediction_page(classes, all, most, [&](size_t index) {
    EXPECT_LT(index, all.size());
    ++num_asked;
    return picture();
  });
  EXPECT_EQ(num_asked, count(page, "<figure"));
  return page;
}

TEST(PredictionPage, ImagesAreBmpFiles) {
  const std::string bmp = to_bmp(picture());
  // 54 bytes of header, then two rows of 9 bytes and 3 more, because rows end at 4 bytes.
  ASSERT_EQ(bmp.size(), 54U + 2 * 12);
  EXPECT_EQ(bmp.substr(0, 2), "BM");
  EXPECT_EQ(bmp[2], static_cast<char>(bmp.size()));
  EXPECT_EQ(bmp[18], 3);   // wide
  EXPECT_EQ(bmp[22], 2);   // high
  EXPECT_EQ(bmp[28], 24);  // bits per pixel
  // The lower row first; blue, green, red.
  EXPECT_EQ(bmp.substr(54, 9), std::string({15, 9, 3, 16, 10, 4, 17, 11, 5}));
  EXPECT_EQ(bmp.substr(66, 9), std::string({12, 6, 0, 13, 7, 1, 14, 8, 2}));
}

TEST(PredictionPage, GreyImagesHaveThreeEqualColours) {
  const std::string bmp = to_bmp(at::full({1, 1, 1}, 77, at::kByte));
  EXPECT_EQ(bmp.substr(54), std::string({77, 77, 77, 0}));
}

TEST(PredictionPage, ShowsWrongOnesFirstTheSurestBeforeOthers) {
  const std::vector<ClassResult> classes = {{"cat", 10, 6}, {"dog", 0, 0}};
  const std::string page = page_of(classes, predictions(6, 4), 6);
  EXPECT_THAT(page, HasSubstr("60.0&nbsp;% of 10 validation images are right"));
  EXPECT_THAT(page, Not(HasSubstr("<td>dog</td>")));  // no image of it
  EXPECT_EQ(count(page, "<figure"), 6U);
  EXPECT_EQ(count(page, "class=\"wrong\""), 3U);
  EXPECT_LT(page.find("34.0&nbsp;%"), page.find("33.0&nbsp;%"));
  EXPECT_LT(page.rfind("class=\"wrong\""), page.rfind("<figure><img"));
}

TEST(PredictionPage, FillsItselfWithWhatThereIs) {
  const std::vector<ClassResult> classes = {{"cat", 6, 1}};
  EXPECT_EQ(count(page_of(classes, predictions(1, 5), 6), "<figure"), 6U);
  EXPECT_EQ(count(page_of(classes, predictions(5, 1), 6), "<figure"), 6U);
  EXPECT_EQ(count(page_of(classes, predictions(1, 1), 6), "<figure"), 2U);
  EXPECT_EQ(count(page_of({}, {}, 6), "<figure"), 0U);
}

TEST(PredictionPage, NamesAreText) {
  const std::vector<ClassResult> classes = {{"<script>\"&", 1, 1}};
  const std::string page = page_of(classes, predictions(1, 0), 6);
  EXPECT_THAT(page, Not(HasSubstr("<script>")));
  EXPECT_EQ(count(page, "&lt;script&gt;&quot;&amp;"), 2U);
}

}  // namespace
}  // namespace trireme::cli
