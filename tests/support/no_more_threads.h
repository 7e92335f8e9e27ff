// The state of a process whose system makes no more threads.
#ifndef OCTET_TESTS_SUPPORT_NO_MORE_THREADS_H_
#define OCTET_TESTS_SUPPORT_NO_MORE_THREADS_H_

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace octet {

// While it lives, new threads need stacks that no address space has room for: pthread_create fails
// with EAGAIN, and the constructor of std::thread throws.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    constexpr size_t kMoreThanThereIs = size_t{1} << 47;
    EXPECT_EQ(pthread_getattr_default_np(&saved_), 0);
    pthread_attr_t attributes;
    EXPECT_EQ(pthread_getattr_default_np(&attributes), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, kMoreThanThereIs), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
  }
  ~NoMoreThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&saved_), 0);
    EXPECT_EQ(pthread_attr_destroy(&saved_), 0);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t saved_;
};

}  // namespace octet

#endif  // OCTET_TESTS_SUPPORT_NO_MORE_THREADS_H_
