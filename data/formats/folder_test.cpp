#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "data/decode/jpeg.h"
#include "data/formats/labels.h"
#include "data/formats/part.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Labels;
using testing::message_of;
using testing::put;
using testing::put_png_split;
using testing::some_pixels;
using testing::some_png;
using testing::TemporaryFolder;

const Shape small_image{4, 5, 3};

std::string refusal(const TemporaryFolder& folder, Split split = Split::train) {
  return message_of([&] { open(folder.path(), split); });
}

std::vector<std::uint8_t> read_pixels(const Dataset& set, std::uint64_t index) {
  Scratch scratch;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(set.image_shape().count()));
  set.read(index, scratch, pixels);
  EXPECT_GT(scratch.bytes_read, 0U);
  return pixels;
}

// Gray pixels as RGB.
std::vector<std::uint8_t> thrice(const std::vector<std::uint8_t>& gray) {
  std::vector<std::uint8_t> rgb;
  for (const std::uint8_t value : gray) rgb.insert(rgb.end(), 3, value);
  return rgb;
}

TEST(Folder, ReadsPngFilesWithAPickle) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 7, 3);
  put_png_split(folder / "test", 4, 2);
  const auto train = open(folder.path(), Split::train);
  EXPECT_EQ(train->kind(), "PNG folder");
  EXPECT_EQ(train->size(), 7U);
  EXPECT_EQ(train->image_shape(), small_image);
  EXPECT_THAT(train->classes(), ElementsAre("0", "1", "2"));
  for (std::uint64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(train->label(i), static_cast<std::int32_t>(i % 3));
    EXPECT_EQ(train->name(i), folder / "train/" + std::to_string(i) + ".png");
    EXPECT_EQ(read_pixels(*train, i), some_pixels(small_image, static_cast<std::uint32_t>(i)));
  }
  const auto test = open(folder.path(), Split::test);
  EXPECT_EQ(test->size(), 4U);
  EXPECT_EQ(test->classes(), train->classes());  // though 2 does not occur in it
}

TEST(Folder, ReadsCsvWithNumbersOrNames) {
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "b.PNG", "c.png"})
    put(folder / "train/" + name, some_png(small_image));
  put(folder / "train/labels.csv", std::string("\xEF\xBB\xBF"
                                               "name,label\r\na.png,1\r\n\"b.PNG\", 0 \nc.png,1"));
  const auto numbered = open(folder.path(), Split::train);
  EXPECT_THAT(numbered->classes(), ElementsAre("0", "1"));
  EXPECT_EQ(numbered->label(0), 1);
  EXPECT_EQ(numbered->label(1), 0);
  put(folder / "train/labels.csv", std::string("c.png,dog\nb.PNG,cat\na.png,7\n"));
  const auto named = open(folder.path(), Split::train);
  EXPECT_THAT(named->classes(), ElementsAre("7", "cat", "dog"));
  EXPECT_EQ(named->label(2), 2);
  EXPECT_NE(named->fingerprint(), numbered->fingerprint());
}

// As Python's csv and pandas write them.
// Comparing each with each takes minutes.
TEST(Folder, ComparesManyClasses) {
  std::vector<std::string> classes, of_training;
  for (int i = 0; i < 200'000; ++i) of_training.push_back(fmt::format("{:06}", i));
  classes = of_training;
  classes[7] = "new";
  EXPECT_EQ(other_classes(classes, of_training),
            "has classes that the training split lacks: new, and lacks classes of the training "
            "split: 000007; give both splits the same classes");
}

TEST(Folder, ReadsQuotedFieldsOfCsv) {
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "b,c.png", "d.png"})
    put(folder / "train/" + name, some_png(small_image));
  put(folder / "train/labels.csv",
      std::string("\"name\",label\na.png,\"say \"\"hi\"\"\"\r\n \"b,c.png\" ,\t\"a, b\" \n"
                  "d.png,5\" \"\"disk\n"));
  EXPECT_THAT(open(folder.path(), Split::train)->classes(),
              ElementsAre("5\" \"\"disk", "a, b", "say \"hi\""));
}

TEST(Folder, ReadsOneFolderAClass) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "test"}) {
    for (const char* name : {"dog/2.png", "cat/1.png", "dog/1.png"}) {
      put(folder / split + "/" + name, some_png(small_image));
    }
  }
  const auto train = open(folder.path(), Split::train);
  EXPECT_THAT(train->classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(train->size(), 3U);
  EXPECT_EQ(train->label(0), 0);
  EXPECT_EQ(train->label(2), 1);
  EXPECT_EQ(open(folder.path(), Split::test)->size(), 3U);
  put(folder / "test/bird/1.png", some_png(small_image));
  EXPECT_THAT(refusal(folder, Split::test),
              HasSubstr("has classes that the training split lacks: bird;"));
}

TEST(Folder, ReadsJpegFilesOfEverySpellingWithThreeChannels) {
  const TemporaryFolder folder;
  const auto gray = encode_jpeg({9, 7, 1}, some_pixels({9, 7, 1}, 1));
  const auto colour = encode_jpeg({9, 7, 3}, some_pixels({9, 7, 3}, 2));
  put(folder / "train/cat/1.jpg", gray);
  put(folder / "train/cat/2.jpeg", colour);
  put(folder / "train/dog/3.JPG", colour);
  put(folder / "train/dog/4.JPEG", gray);
  const auto set = open(folder.path(), Split::train);
  EXPECT_EQ(set->kind(), "JPEG folder");
  EXPECT_EQ(set->image_shape(), (Shape{9, 7, 3}));
  EXPECT_EQ(set->size(), 4U);
  EXPECT_EQ(set->max_fetched_bytes(), std::max(gray.size(), colour.size()));
  for (std::uint64_t i = 0; i < 4; ++i) read_pixels(*set, i);
  const auto pixels = read_pixels(*set, 0);
  for (std::size_t i = 0; i < pixels.size(); i += 3)
    EXPECT_TRUE(pixels[i] == pixels[i + 1] && pixels[i] == pixels[i + 2]);
  put(folder / "train/dog/0.png", some_png({9, 7, 3}));
  EXPECT_EQ(open(folder.path(), Split::train)->kind(), "PNG and JPEG folder");
}

TEST(Folder, TakesAFileForWhatItsContentIs) {
  const TemporaryFolder folder;
  const auto jpeg = encode_jpeg({9, 7, 3}, some_pixels({9, 7, 3}, 2));
  put(folder / "train/a/1.jpg", some_png({9, 7, 3}, 5));
  put(folder / "train/a/2.jpg", jpeg);
  put(folder / "train/a/3.jpg", std::string("GIF89a"));
  const auto set = open(folder.path(), Split::train);
  EXPECT_EQ(read_pixels(*set, 0), some_pixels({9, 7, 3}, 5));
  read_pixels(*set, 1);
  EXPECT_THAT(message_of([&] { read_pixels(*set, 2); }), HasSubstr("3.jpg: is not a JPEG"));
}

TEST(Folder, ReadsAFileThatChangedItsSize) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 2, 1);
  const auto set = open(folder.path(), Split::train);
  const auto shorter = some_png(small_image, 0);
  auto longer = shorter;
  longer.resize(longer.size() + 5000);  // what follows the end of a PNG does not count
  put(folder / "train/1.png", longer);
  Scratch scratch;
  EXPECT_EQ(set->fetch(1, scratch).bytes.size(), longer.size());
  put(folder / "train/1.png", std::vector<std::uint8_t>(shorter.begin(), shorter.begin() + 40));
  EXPECT_EQ(set->fetch(1, scratch).bytes.size(), 40U);
}

TEST(Folder, ReadsIntegerKeysAsFileNames) {
  const TemporaryFolder folder;
  for (const char* name : {"0.png", "12.jpg"}) put(folder / "train/" + name, some_png(small_image));
  put(folder / "train/labels.pkl", std::string("\x80\x02}(K\x0cK\1K") + '\0' + "K" + '\0' + "u.");
  const auto set = open(folder.path(), Split::train);
  EXPECT_EQ(set->label(0), 0);
  EXPECT_EQ(set->label(1), 1);
}

TEST(Folder, TellsSetsApartByFingerprint) {
  const TemporaryFolder a;
  put_png_split(a / "train", 5, 2);
  const auto before = open(a.path(), Split::train)->fingerprint();
  EXPECT_EQ(open(a.path(), Split::train)->fingerprint(), before);
  Labels labels{{"0.png", 1}, {"1.png", 1}, {"2.png", 0}, {"3.png", 1}, {"4.png", 0}};
  put(a / "train/labels.pkl", write_pickle(labels));
  EXPECT_NE(open(a.path(), Split::train)->fingerprint(), before);
}

TEST(Folder, ListsWhatItLookedForAndFound) {
  const TemporaryFolder folder;
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("no data set found"), HasSubstr("found nothing")));
  put(folder / "mine/train/0.png", some_png(small_image));
  put(folder / "notes.txt", std::string("x"));
  EXPECT_THAT(refusal(folder),
              AllOf(HasSubstr("train/ and test/ or val/"), HasSubstr("-idx3-ubyte"),
                    HasSubstr("found mine/, notes.txt")));
  EXPECT_THAT(message_of([&] { open(folder / "none", Split::train); }),
              HasSubstr("there is no such folder"));
  EXPECT_THAT(message_of([&] { open(folder / "notes.txt", Split::train); }),
              HasSubstr("is not a folder"));
  put_png_split(folder / "train", 1, 1);
  put(folder / "data_batch_1.bin", std::string("x"));
  EXPECT_THAT(refusal(folder), HasSubstr("holds both train/, test/ or val/ folders"));
}

TEST(Folder, NamesAMissingSplit) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 2, 2);
  EXPECT_TRUE(has_split(folder.path(), Split::train));
  EXPECT_FALSE(has_split(folder.path(), Split::test));
  EXPECT_THAT(refusal(folder, Split::test),
              AllOf(HasSubstr("/test: there is no such folder; without a test part, "),
                    HasSubstr("--val-split 0.1")));
}

TEST(Folder, ReadsValAsTheTestPart) {
  const TemporaryFolder folder;
  put(folder / "train/cat/1.png", some_png(small_image));
  put(folder / "val/cat/2.png", some_png(small_image, 1));
  EXPECT_EQ(open(folder.path(), Split::test)->name(0), folder / "val/cat/2.png");
  put(folder / "test/cat/3.png", some_png(small_image, 1));
  EXPECT_EQ(open(folder.path(), Split::test)->name(0), folder / "test/cat/3.png");
  // The training folder alone is a set without a test part, and its parent is the whole.
  EXPECT_EQ(open(folder / "train", Split::train)->size(), 1U);
  EXPECT_THAT(message_of([&] { open(folder / "train", Split::test); }),
              HasSubstr("or give the whole set, which has one: " + folder.path()));
}

TEST(Folder, PassesOverWhatSystemsLeave) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 2, 2);
  put(folder / "train/README.txt", std::string("x"));
  put(folder / "test/0/a.png", some_png(small_image));
  put(folder / "test/1/b.png", some_png(small_image));
  put(folder / "test/1/Thumbs.db", std::string("x"));
  put(folder / "test/1/.DS_Store", std::string("x"));
  put(folder / "test/__MACOSX/0/x", std::string("x"));
  EXPECT_THAT(open(folder.path(), Split::train)->passed_over(), ElementsAre("README.txt"));
  std::filesystem::remove_all(folder / "train");
  const auto test = open(folder.path(), Split::test);
  EXPECT_EQ(test->size(), 2U);
  EXPECT_THAT(test->classes(), ElementsAre("0", "1"));
  EXPECT_THAT(test->passed_over(), ElementsAre("1/Thumbs.db", "__MACOSX"));
  put(folder / "test/1/license_plate_1.png", some_png(small_image));
  EXPECT_EQ(open(folder.path(), Split::test)->size(), 3U) << "an image, whatever its name";
}

TEST(Folder, WithoutImagesIsNone) {
  const TemporaryFolder folder;
  put(folder / "train/__MACOSX/0/x", std::string("x"));
  EXPECT_THAT(message_of([&] { open(folder.path(), Split::train); }),
              HasSubstr("/train: has no images; expected PNG or JPEG files"));
  put(folder / "train/labels.csv", std::string("file,label\n"));
  EXPECT_THAT(message_of([&] { open(folder.path(), Split::train); }), HasSubstr("/train"));
}

TEST(Folder, IsPartedByClass) {
  const TemporaryFolder folder;
  for (int i = 0; i < 30; ++i)
    put(folder / fmt::format("{}/{}.png", i % 3 ? "cat" : "dog", i), some_png(small_image));
  put(folder / "emu/1.png", some_png(small_image));
  EXPECT_TRUE(has_split(folder.path(), Split::train));
  EXPECT_FALSE(has_split(folder.path(), Split::test));
  const std::shared_ptr<const Dataset> whole = open(folder.path(), Split::train);
  const auto part = [&](Split split, std::uint64_t seed) {
    return indices_of(*whole, split, {.share = 0.1, .seed = seed});
  };
  const auto tests = part(Split::test, 0), others = part(Split::train, 0);
  std::vector<std::uint64_t> both, classes(3);
  std::merge(tests.begin(), tests.end(), others.begin(), others.end(), std::back_inserter(both));
  ASSERT_EQ(both.size(), whole->size());
  for (std::uint64_t i = 0; i < both.size(); ++i) EXPECT_EQ(both[i], i);
  for (const std::uint64_t i : tests) ++classes[static_cast<std::size_t>(whole->label(i))];
  EXPECT_THAT(classes, ElementsAre(2, 1, 0));  // of cat, dog and emu, which has one image
  EXPECT_EQ(part(Split::test, 0), tests);
  EXPECT_NE(part(Split::test, 1), tests);
  const auto set = open_part(whole, Split::test, {.share = 0.1});
  ASSERT_EQ(set->size(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(set->name(i), whole->name(tests[i]));
    EXPECT_EQ(set->label(i), whole->label(tests[i]));
  }
  EXPECT_NE(set->fingerprint(), open_part(whole, Split::train, {.share = 0.1})->fingerprint());
  EXPECT_THROW(open_part(whole, Split::test, {.share = 1}), UsageError);
}

TEST(Folder, RefusesFoldersWithoutLabelsOrFiles) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train");
  EXPECT_THAT(refusal(folder), HasSubstr("/train: is empty"));
  put(folder / "train/0.png", some_png(small_image));
  EXPECT_THAT(refusal(folder), HasSubstr("has 1 files but neither labels.pkl nor labels.csv"));
  std::filesystem::create_directories(folder / "train/cat");
  EXPECT_THAT(refusal(folder), HasSubstr("/train/0.png: is a file next to class folders"));
  std::filesystem::remove(folder / "train/0.png");
  EXPECT_THAT(refusal(folder), HasSubstr("/train/cat: the class has no files"));
  std::filesystem::create_directories(folder / "train/cat/more");
  EXPECT_THAT(refusal(folder), HasSubstr("cat/more: is a folder inside a class folder"));
}

TEST(Folder, RefusesLabelsAndFilesThatDoNotMatch) {
  const TemporaryFolder folder;
  const auto with = [&](const Labels& labels) {
    put(folder / "train/labels.pkl", write_pickle(labels));
    return refusal(folder);
  };
  put_png_split(folder / "train", 2, 2);
  EXPECT_THAT(with({{"0.png", 0}}), HasSubstr("1 files of the folder have no label: 1.png"));
  EXPECT_THAT(with({{"0.png", 0}, {"1.png", 1}, {"9.png", 1}}),
              HasSubstr("1 label has no file: 9.png"));
  EXPECT_THAT(with({{"0.png", 0}, {"1.png", 1}, {"1.png", 1}}), HasSubstr("'1.png' occurs twice"));
  EXPECT_THAT(with({{"0.png", -1}, {"1.png", 1}}), HasSubstr("'0.png' has label -1"));
  EXPECT_THAT(with({{"0.png", 0}, {"1.png", 65536}}), HasSubstr("labels must be from 0 to 65535"));
  EXPECT_THAT(with({}), HasSubstr("holds no labels"));
  put(folder / "train/labels.csv", std::string("0.png,0\n1.png,1\n"));
  EXPECT_THAT(with({{"0.png", 0}, {"1.png", 1}}), HasSubstr("both labels.csv and labels.pkl"));
}

TEST(Folder, RefusesTestLabelsThatTrainingDoesNotHave) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 3, 2);
  put_png_split(folder / "test", 3, 3);
  EXPECT_THAT(refusal(folder, Split::test),
              HasSubstr("'2.png' has label 2, but the data set has 2 classes: 0 to 1"));
  std::filesystem::remove(folder / "test/labels.pkl");
  put(folder / "test/labels.csv", std::string("0.png,cat\n1.png,cat\n2.png,dog\n"));
  EXPECT_THAT(refusal(folder, Split::test), HasSubstr("has a name as label, but the training"));
  std::filesystem::remove(folder / "train/labels.pkl");
  put(folder / "train/labels.csv", std::string("0.png,cat\n1.png,cat\n2.png,cat\n"));
  EXPECT_THAT(refusal(folder, Split::test), HasSubstr("class 'dog', which the training split"));
}

TEST(Folder, RefusesBrokenCsv) {
  const TemporaryFolder folder;
  put(folder / "train/a.png", some_png(small_image));
  const auto with = [&](const std::string& text) {
    put(folder / "train/labels.csv", text);
    return refusal(folder);
  };
  EXPECT_THAT(with("name,label\na.png\n"), HasSubstr("labels.csv: line 2: 'a.png' is not"));
  EXPECT_THAT(with("a.png,1,2\n"), HasSubstr("line 1"));
  EXPECT_THAT(with(",1\n"), HasSubstr("line 1"));
  EXPECT_THAT(with("a.png,\"\"\n"), HasSubstr("line 1: 'a.png,\"\"' is not"));
  EXPECT_THAT(with("a.png,\"b\",c\n"), HasSubstr("line 1: 'a.png,\"b\",c' is not"));
  for (const char* const line : {"a.png,\"b\n", "a.png,\"\n", "a.png,\"b\"\"\n", "\"a.png,b\n"})
    EXPECT_THAT(with(line), HasSubstr("has a quote that is not closed")) << line;
  EXPECT_THAT(with("a.png,\"b\" c\n"),
              HasSubstr("line 1: 'a.png,\"b\" c' has text after a closing quote"));
  EXPECT_THAT(with("a.png,1\na.png,1\n"), HasSubstr("'a.png' occurs twice"));
  EXPECT_THAT(with("name,label\n\n"), HasSubstr("holds no labels"));
  EXPECT_THAT(with(std::string("a\0.png", 6) + ",1\n"), HasSubstr("no label: a.png"));
}

TEST(Folder, RefusesFilesThatAreNoImagesOfTheSet) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 3, 1);
  put(folder / "train/photo.gif", std::string("x"));
  EXPECT_THAT(refusal(folder),
              AllOf(HasSubstr("photo.gif: is not a .png, .jpg or .jpeg"), HasSubstr("mogrify")));
  std::filesystem::remove(folder / "train/photo.gif");
  std::filesystem::create_directories(folder / "train/cat");
  EXPECT_THAT(refusal(folder), HasSubstr("train/cat: is a folder next to labels.pkl"));
  std::filesystem::remove(folder / "train/cat");
  put(folder / "train/1.png", some_png({5, 4, 3}));
  put(folder / "train/2.png", std::string("GIF89a"));
  const auto set = open(folder.path(), Split::train);
  EXPECT_THAT(message_of([&] { read_pixels(*set, 1); }),
              AllOf(HasSubstr("1.png: is 4 x 5 pixels"), HasSubstr("is 5 x 4"),
                    HasSubstr("--transforms random-resized-crop=32,flip,normalize "
                              "--eval-transforms resize=36,centre-crop=32,normalize")));
  put(folder / "train/1.png", some_png({4, 5, 1}));
  EXPECT_EQ(read_pixels(*set, 1), thrice(some_pixels({4, 5, 1}, 0)));
  EXPECT_THAT(message_of([&] { read_pixels(*set, 2); }), HasSubstr("2.png: is not a PNG file"));
  std::filesystem::remove(folder / "train/2.png");
  EXPECT_THAT(message_of([&] { read_pixels(*set, 2); }),
              HasSubstr("2.png: cannot be read: No such"));
}

TEST(Folder, TakesTheChannelsOfTheTestPartFromTraining) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 2, 1);
  put_png_split(folder / "test", 2, 1, {4, 5, 1});
  const auto set = open(folder.path(), Split::test);
  EXPECT_EQ(set->image_shape(), (Shape{4, 5, 3}));
  EXPECT_EQ(read_pixels(*set, 0), thrice(some_pixels({4, 5, 1}, 0)));
  put_png_split(folder / "train", 2, 1, {4, 5, 1});
  put_png_split(folder / "test", 2, 1);
  const auto colour = open(folder.path(), Split::test);
  EXPECT_THAT(message_of([&] { read_pixels(*colour, 0); }),
              HasSubstr("test/0.png: has colour (RGB PNG)"));
  std::filesystem::remove_all(folder / "train");
  EXPECT_EQ(open(folder.path(), Split::test)->image_shape(), (Shape{4, 5, 3}));
}

TEST(Folder, RefusesAColourFileInAGraySet) {
  const TemporaryFolder folder;
  put_png_split(folder / "train", 2, 1, {4, 5, 1});
  put(folder / "train/1.png", some_png({4, 5, 3}));
  const auto set = open(folder.path(), Split::train);
  EXPECT_THAT(
      message_of([&] { read_pixels(*set, 1); }),
      AllOf(HasSubstr("1.png: has colour (RGB PNG)"), HasSubstr("mogrify -colorspace Gray")));
}

}  // namespace
}  // namespace warpstep::data
