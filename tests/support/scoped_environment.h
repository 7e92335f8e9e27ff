// A variable of the environment that a test may change: as before when this goes.
#ifndef OCTET_TESTS_SUPPORT_SCOPED_ENVIRONMENT_H_
#define OCTET_TESTS_SUPPORT_SCOPED_ENVIRONMENT_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace octet {

// Not while other threads look at the environment.
class ScopedEnvironment {
 public:
  // Not set, to begin with.
  explicit ScopedEnvironment(const char* name) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) before_ = before;
    unsetenv(name);
  }
  ~ScopedEnvironment() {
    if (before_.has_value()) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

  void Set(const char* value) const { setenv(name_, value, 1); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_SCOPED_ENVIRONMENT_H_
