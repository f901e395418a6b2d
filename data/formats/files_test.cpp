#include "data/formats/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "engine/core/error.h"
#include "tests/data_testing.h"

namespace warpstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::put;
using testing::some_png;
using testing::TemporaryFolder;

TEST(Files, AreFoundAlsoWhereALinkLeadsNowhere) {
  const TemporaryFolder folder;
  const std::string photos = folder / "photos", gone = photos + "/b.png";
  for (const char* name : {"/a.png", "/c.png"}) put(photos + name, some_png({2, 2, 3}));
  fs::create_symlink("nowhere", gone);
  fs::create_symlink("nowhere", photos + "/notes");
  fs::create_symlink("itself.jpg", photos + "/itself.jpg");
  const FoundFiles found = find_images({photos});
  EXPECT_THAT(found.images,
              ElementsAre(photos + "/a.png", gone, photos + "/c.png", photos + "/itself.jpg"));
  EXPECT_THAT(found.passed_over, ElementsAre(photos + "/notes"));
  EXPECT_THAT(find_images({gone, photos + "/a.png"}).images, ElementsAre(gone, photos + "/a.png"))
      << "as a shell's *.png gives it";
  const auto files = open_files(found.images, {2, 2, 3}, {"x"});
  Scratch scratch;
  EXPECT_NO_THROW(files->fetch(2, scratch));
  EXPECT_THAT([&] { files->fetch(1, scratch); },
              ThrowsMessage<DataError>(HasSubstr(gone + ": cannot be read: No such file")));
  EXPECT_THAT([&] { find_images({photos + "/d.png"}); },
              ThrowsMessage<DataError>(HasSubstr("d.png: there is no such file or folder")));
  EXPECT_THAT(find_images({photos + "/d.png", photos + "/a.png"}).missing,
              ElementsAre(photos + "/d.png"));
  EXPECT_THROW(list_folder(photos), DataError) << "the files of a data set are all there";
}

TEST(Files, AreFoundOnceWhereLinksLeadBack) {
  const TemporaryFolder folder;
  put(folder / "in/a.png", some_png({2, 2, 3}));
  for (const char* name : {"/b", "/c", "/in/d"}) fs::create_symlink(folder.path(), folder / name);
  EXPECT_THAT(find_images({folder.path()}).images, ElementsAre(folder / "in/a.png"));
}

// Root can list every folder, and is another user for as long as this lives.
class OtherUser {
 public:
  OtherUser() : user_(::geteuid()), is_other_(user_ != 0 || ::seteuid(65534) == 0) {}
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;
  ~OtherUser() {
    if (user_ == 0) {
      EXPECT_EQ(::seteuid(user_), 0);
    }
  }
  bool can_list(const std::string& path) const {
    std::error_code error;
    return is_other_ && fs::directory_iterator(path, error) != fs::directory_iterator();
  }

 private:
  uid_t user_;
  bool is_other_;
};

TEST(Files, AreFoundAlsoBesideAFolderThatIsClosed) {
  const TemporaryFolder folder;
  const std::string closed = folder / "closed";
  put(folder / "a.png", some_png({2, 2, 3}));
  put(closed + "/b.png", some_png({2, 2, 3}));
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(closed.c_str(), 0), 0);
  {
    const OtherUser user;
    if (!user.can_list(folder.path())) GTEST_SKIP() << "no other user can read temporary files";
    const FoundFiles found = find_images({folder.path()});
    EXPECT_THAT(found.images, ElementsAre(folder / "a.png"));
    EXPECT_THAT(found.unlisted, ElementsAre(HasSubstr(closed + ": cannot be listed: Permission")));
    EXPECT_THAT([&] { find_images({closed}); },
                ThrowsMessage<DataError>(HasSubstr(closed + ": cannot be listed")));
  }
  ASSERT_EQ(::chmod(closed.c_str(), 0755), 0);
  EXPECT_THAT(find_images({folder.path()}).unlisted, IsEmpty());
}

}  // namespace
}  // namespace warpstep::data
