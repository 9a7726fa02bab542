// A C interface over the classes of tkrzw::DBM, as thin as it can be: one call each, no copies on the way. The
// classes are called through their common base, as Tkrzw's own benchmark calls them.
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
#include "tkrzw_dbm_std.h"
#include "tkrzw_dbm_tiny.h"
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

}  // namespace

extern "C" {

const char* tkrzw_version() { return tkrzw::PACKAGE_VERSION; }

// Buckets below one leave the library's default.
void* tkrzw_open_hash(const char* path, size_t path_len, int create, int64_t buckets) {
  auto* dbm = new tkrzw::HashDBM();
  tkrzw::HashDBM::TuningParameters parameters;
  if (buckets > 0) parameters.num_buckets = buckets;
  const int32_t options =
      create ? tkrzw::File::OPEN_TRUNCATE : tkrzw::File::OPEN_NO_CREATE;
  if (dbm->OpenAdvanced(std::string(path, path_len), true, options, parameters) !=
      tkrzw::Status::SUCCESS) {
    delete dbm;
    return nullptr;
  }
  return static_cast<tkrzw::DBM*>(dbm);
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

int tkrzw_sync(void* dbm, int hard) { return Answer(Dbm(dbm)->Synchronize(hard != 0)); }

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
