// A C interface over the classes of tkrzw::DBM, as thin as it can be: one call each, no copies on the way. The
// classes are called through their common base, as Tkrzw's own benchmark calls them.
//
// A skip database keeps the last value of a key when it is synchronised, as the original benchmark has it do for random keys.
//
// Answers: 0 done, 1 no such record, -1 anything else. Pointers handed out by `tkrzw_read` and
// `tkrzw_jump` live until the next such call of the same thread or position.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "tkrzw_dbm_baby.h"
#include "tkrzw_dbm_cache.h"
#include "tkrzw_dbm_hash.h"
#include "tkrzw_dbm_skip.h"
#include "tkrzw_dbm_std.h"
#include "tkrzw_dbm_tiny.h"
#include "tkrzw_dbm_tree.h"
#include "tkrzw_lib_common.h"

namespace {

struct Position {
  std::unique_ptr<tkrzw::DBM::Iterator> iterator;
  std::string key;
  std::string value;
};

inline int Answer(const tkrzw::Status& status) {
  if (status == tkrzw::Status::SUCCESS) return 0;
  return status == tkrzw::Status::NOT_FOUND_ERROR ? 1 : -1;
}

inline tkrzw::DBM* Dbm(void* dbm) { return static_cast<tkrzw::DBM*>(dbm); }

inline int32_t OpenOptions(int create) {
  return create ? tkrzw::File::OPEN_TRUNCATE : tkrzw::File::OPEN_NO_CREATE;
}

// An open database of a class with its parameters, or null.
template <typename Class>
void* Opened(const char* path, size_t path_len, int create,
             const typename Class::TuningParameters& parameters) {
  auto dbm = std::make_unique<Class>();
  const tkrzw::Status status =
      dbm->OpenAdvanced(std::string(path, path_len), true, OpenOptions(create), parameters);
  if (status != tkrzw::Status::SUCCESS) return nullptr;
  return static_cast<tkrzw::DBM*>(dbm.release());
}

using Visit = void (*)(void* context, const char* key, size_t key_len, const char* value,
                       size_t value_len);

class Scan final : public tkrzw::DBM::RecordProcessor {
 public:
  Scan(Visit visit, void* context) : visit_(visit), context_(context) {}
  std::string_view ProcessFull(std::string_view key, std::string_view value) override {
    visit_(context_, key.data(), key.size(), value.data(), value.size());
    return NOOP;
  }

 private:
  const Visit visit_;
  void* const context_;
};

}  // namespace

extern "C" {

const char* tkrzw_version() { return tkrzw::PACKAGE_VERSION; }

// Buckets below one leave the library's default.
void* tkrzw_open_hash(const char* path, size_t path_len, int create, int64_t buckets) {
  tkrzw::HashDBM::TuningParameters parameters;
  if (buckets > 0) parameters.num_buckets = buckets;
  return Opened<tkrzw::HashDBM>(path, path_len, create, parameters);
}

// Below one, each leaves the library's default.
void* tkrzw_open_tree(const char* path, size_t path_len, int create, int32_t align_pow,
                      int64_t buckets, int32_t page_size, int32_t cached_pages) {
  tkrzw::TreeDBM::TuningParameters parameters;
  if (align_pow > 0) parameters.align_pow = align_pow;
  if (buckets > 0) parameters.num_buckets = buckets;
  if (page_size > 0) parameters.max_page_size = page_size;
  if (cached_pages > 0) parameters.max_cached_pages = cached_pages;
  return Opened<tkrzw::TreeDBM>(path, path_len, create, parameters);
}

// Below one, each leaves the library's default.
void* tkrzw_open_skip(const char* path, size_t path_len, int create, int64_t sort_mem_size,
                      int32_t cached_records) {
  tkrzw::SkipDBM::TuningParameters parameters;
  if (sort_mem_size > 0) parameters.sort_mem_size = sort_mem_size;
  if (cached_records > 0) parameters.max_cached_records = cached_records;
  return Opened<tkrzw::SkipDBM>(path, path_len, create, parameters);
}

// A database in memory: 1 tiny, 2 baby, 3 cache, 4 std hash, 5 std tree. `size` is how many buckets it has, or
// records it may have (cache); below one it is the library's default.
void* tkrzw_make(int kind, int64_t size) {
  if (size < 1) size = -1;
  tkrzw::DBM* dbm = nullptr;
  switch (kind) {
    case 1: dbm = new tkrzw::TinyDBM(size); break;
    case 2: dbm = new tkrzw::BabyDBM(); break;
    case 3: dbm = new tkrzw::CacheDBM(size); break;
    case 4: dbm = new tkrzw::StdHashDBM(size); break;
    case 5: dbm = new tkrzw::StdTreeDBM(); break;
  }
  return dbm;
}

// One that was opened is closed; one that was made is only given up.
int tkrzw_close(void* dbm) {
  const int answer = Dbm(dbm)->IsOpen() ? Answer(Dbm(dbm)->Close()) : 0;
  delete Dbm(dbm);
  return answer;
}

int64_t tkrzw_count(void* dbm) { return Dbm(dbm)->CountSimple(); }

int tkrzw_set(void* dbm, const char* key, size_t key_len, const char* value,
                   size_t value_len) {
  return Answer(Dbm(dbm)->Set(std::string_view(key, key_len), std::string_view(value, value_len)));
}

// With a null value pointer, as the original benchmark calls it: the value is not even read.
int tkrzw_has(void* dbm, const char* key, size_t key_len) {
  return Answer(Dbm(dbm)->Get(std::string_view(key, key_len), nullptr));
}

int tkrzw_read(void* dbm, const char* key, size_t key_len, const char** value,
                    size_t* value_len) {
  thread_local std::string text;
  const int answer = Answer(Dbm(dbm)->Get(std::string_view(key, key_len), &text));
  *value = text.data();
  *value_len = text.size();
  return answer;
}

int tkrzw_remove(void* dbm, const char* key, size_t key_len) {
  return Answer(Dbm(dbm)->Remove(std::string_view(key, key_len)));
}

int tkrzw_sync(void* dbm, int hard) {
  if (auto* skip = dynamic_cast<tkrzw::SkipDBM*>(Dbm(dbm))) {
    return Answer(
        skip->SynchronizeAdvanced(hard != 0, nullptr, tkrzw::SkipDBM::ReduceToLast));
  }
  return Answer(Dbm(dbm)->Synchronize(hard != 0));
}

int tkrzw_scan(void* dbm, Visit visit, void* context) {
  Scan scan(visit, context);
  return Answer(Dbm(dbm)->ProcessEach(&scan, false));
}

void* tkrzw_position(void* dbm) {
  auto* position = new Position();
  position->iterator = Dbm(dbm)->MakeIterator();
  return position;
}

int tkrzw_jump(void* at, const char* key, size_t key_len, const char** found,
                    size_t* found_len, const char** value, size_t* value_len) {
  auto* position = static_cast<Position*>(at);
  int answer = Answer(position->iterator->Jump(std::string_view(key, key_len)));
  if (answer == 0) answer = Answer(position->iterator->Get(&position->key, &position->value));
  *found = position->key.data();
  *found_len = position->key.size();
  *value = position->value.data();
  *value_len = position->value.size();
  return answer;
}

void tkrzw_position_free(void* at) { delete static_cast<Position*>(at); }

}  // extern "C"
